"""The cluster that this broker is a node of: its nodes and shards, and where shards are to go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from nexo.doors.admin_http.operation import Operation
from nexo.doors.admin_http.request import Count
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import NAME_CHARS_MAX

if TYPE_CHECKING:
    from nexo.doors.admin_http import operation
    from nexo.doors.admin_http.operation import Call

_PATH = "/api/v1/cluster"


class NoCluster(InvalidArgument):
    code = "no_cluster"
    http_status = 404


class ClusterNode(msgspec.Struct, frozen=True):
    """`state` is `up`, `draining` or `down`; `lease_s` is the time left of its lease."""

    name: str
    state: str
    shards: Count
    rpc: str
    http: str
    version: str
    lease_s: float


class ClusterShard(msgspec.Struct, frozen=True):
    """`node` owns it, or null; `epoch` counts its owners. `transfers_waiting` messages wait to go
    to a queue in another shard, the oldest for `transfers_oldest_s`; null: its node did not say."""

    shard: Count
    node: str | None
    epoch: Count
    transfers_waiting: Count | None
    transfers_oldest_s: float | None


class ClusterFigures(msgspec.Struct, frozen=True):
    """As the node `told_by` knows it. `postgresql_away_s`: PostgreSQL has not answered it for
    so long, and the rest is as it was then; null: it answers."""

    nodes: list[ClusterNode]
    shards: list[ClusterShard]
    told_by: str
    postgresql_away_s: float | None


class DrainedNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a node."""

    node: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]


def _cluster(call: Call) -> operation.Cluster:
    found = call.surroundings.cluster
    if found is None:
        raise NoCluster("this broker is not a node of a cluster", "see nexo cluster create --help")
    return found


async def _info(call: Call) -> ClusterFigures:
    found = await _cluster(call).figures()
    return msgspec.convert(found, ClusterFigures, from_attributes=True)


async def _drain(call: Call) -> ClusterFigures:
    await _cluster(call).drain(call.body.node)
    return await _info(call)


async def _rebalance(call: Call) -> ClusterFigures:
    await _cluster(call).rebalance()
    return await _info(call)


CLUSTER = (
    Operation(
        "cluster_info",
        "GET",
        _PATH,
        "Nodes, shards and their owners; 404 on a broker that is not part of a cluster",
        _info,
        ClusterFigures,
        refusals=(404,),
    ),
    Operation(
        "drain_node",
        "POST",
        f"{_PATH}/drain",
        "Move all shards of a node to the others, and keep it without shards",
        _drain,
        ClusterFigures,
        body=DrainedNode,
        refusals=(404,),
    ),
    Operation(
        "rebalance_cluster",
        "POST",
        f"{_PATH}/rebalance",
        "Give all living nodes their share of the shards; ends draining",
        _rebalance,
        ClusterFigures,
        refusals=(404,),
    ),
)
