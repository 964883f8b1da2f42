"""The cluster: its nodes with their leases and shards, and the latest moves. Only a node of one has
this page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from nexo.doors.console import formatting
from nexo.doors.console.pages import badges
from nexo.doors.console.request import at
from nexo.doors.console.streams import Frame, made_of, streamed
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import CONSOLE_MOVES_SHOWN

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.request import Call


class Cluster(Protocol):
    """What a node knows of its cluster."""

    @property
    def node(self) -> str: ...

    @property
    def silent(self) -> list[str]:
        """Nodes that have not told what they have when they were last asked."""

    def now(self) -> Any:
        """Nodes and shards, as `nexo cluster status` tells them."""

    def moves(self) -> list[Any]:
        """Those of shards, the latest first."""

    async def drain(self, node: str) -> None: ...

    async def rebalance(self) -> None: ...


class NotAPage(InvalidArgument):
    code = "no_such_page"
    http_status = 404


def _cluster(call: Call) -> Cluster:
    found: Cluster | None = call.shared.surroundings.cluster
    if found is None:
        raise NotAPage("this broker is not a node of a cluster", "see nexo cluster create")
    return found


async def cluster(call: Call) -> Response:
    shown = _cluster(call)
    figures, moves = shown.now(), shown.moves()[:CONSOLE_MOVES_SHOWN]
    return await call.page(
        "cluster.html",
        {"nodes": "cluster_nodes.html", "moves": "cluster_moves.html"},
        figures=figures,
        node=shown.node,
        silent=shown.silent,
        values=_values(figures),
        nodes_made_of=_made_of(shown, figures),
        moves=moves,
        moves_made_of=made_of(moves),
        live=at("live", "cluster"),
    )


async def live_cluster(call: Call) -> Response:
    shown = _cluster(call)

    def frame() -> Frame:
        figures = shown.now()
        parts = {
            "nodes": _made_of(shown, figures),
            "moves": made_of(shown.moves()[:CONSOLE_MOVES_SHOWN]),
        }
        return Frame(_values(figures) | badges(call), parts)

    return streamed(call.shared.pulse.stream(call.caller, frame))


def _values(figures: Any) -> dict[str, str]:
    up = sum(each.state != "down" for each in figures.nodes)
    living = {each.name for each in figures.nodes if each.state != "down"}
    told = {
        "cluster.up": f"{up} of {len(figures.nodes)}",
        "cluster.unowned": formatting.number(
            sum(each.node not in living for each in figures.shards)
        ),
    }
    waiting = dict.fromkeys((each.name for each in figures.nodes), 0)
    oldest_s = 0.0
    for each in figures.shards:
        waiting[each.node] = waiting.get(each.node, 0) + (each.transfers_waiting or 0)
        oldest_s = max(oldest_s, each.transfers_oldest_s or 0)
    told["cluster.waiting"] = formatting.number(sum(waiting.values()))
    told["cluster.oldest"] = formatting.span(oldest_s * 1000) if oldest_s else formatting.NOTHING
    for each in figures.nodes:
        told[f"n.{each.name}.waiting"] = formatting.number(waiting[each.name])
        told[f"n.{each.name}.shards"] = formatting.number(each.shards)
        told[f"n.{each.name}.lease"] = f"{each.lease_s:.0f} s" if each.lease_s else "ended"
    return told


def _made_of(shown: Cluster, figures: Any) -> str:
    nodes = [(each.name, each.state, each.version) for each in figures.nodes]
    return made_of(nodes, shown.silent, figures.postgresql_away_s is None)


async def drain(call: Call) -> Response:
    node = call.field("node")
    with call.told():
        await _cluster(call).drain(node)
    return call.back(at("cluster"), f"Draining node {node}. Its shards move to the other nodes.")


async def rebalance(call: Call) -> Response:
    with call.told():
        await _cluster(call).rebalance()
    return call.back(at("cluster"), "Rebalancing. Each living node gets its share of the shards.")
