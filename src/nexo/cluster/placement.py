"""The rules of placement: which shard a name lives in, which node should have a shard, and what a
node has to do next. Nothing here knows a clock, a network or chance.

The shard of a name is the SHA-256 of its *stem* (the first eight bytes, big-endian) modulo the
number of shards. The stem is what stands before the first dot, without what Nexo derives by itself:
`orders`, `orders_dlq`, `orders.fifo`, `nexo.archive.orders` and `orders.billing` (the queue of the
group `billing` of a topic `orders`) have the stem `orders`, and so has `orders` of any AWS account.
They live together, so that a message moves between them in one commit. `nexo.events.7` are the
events of shard 7, and live there.

A shard belongs to the living node with the highest score for it (rendezvous hashing): when a node
comes or goes, only the shards move that it gets or had.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.names import ARCHIVE_PREFIX, events_shard

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

DEAD_LETTER_SUFFIX = "_dlq"


def stem_of(name: str) -> str:
    """What decides where a queue or topic lives."""
    plain = name.removeprefix(ARCHIVE_PREFIX).rpartition("/")[2]  # of another AWS account or region
    first = plain.partition(".")[0]
    return first.removesuffix(DEAD_LETTER_SUFFIX) or first


def shard_of(name: str, shards: int) -> int:
    """The shard that a queue or topic lives in."""
    events_of = events_shard(name)
    if events_of is not None:
        return events_of % shards
    return _number(stem_of(name)) % shards


def wanted_owner(shard: int, nodes: Iterable[str]) -> str | None:
    """The node that should have a shard; None if there is no node."""
    return max(nodes, key=lambda node: (_score(shard, node), node), default=None)


class Wishes:
    """Which node should have each shard, remembered: when a node comes or goes, only what that
    changes is computed. All of it is four million hashes for 4,096 shards and 1,000 nodes."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._best: dict[int, tuple[int, str] | None] = {}

    def of(self, shards: Iterable[int], nodes: Iterable[str]) -> dict[int, str | None]:
        """The same as `wanted_owner` of each of these shards."""
        now, best = set(nodes), self._best
        gone, come = self._nodes - now, now - self._nodes
        found: dict[int, tuple[int, str] | None] = {}
        for shard in shards:
            known = best.get(shard)
            if known is not None and known[1] in gone:
                known = None
            rivals = now if known is None else come
            if rivals:
                scores = [(_score(shard, node), node) for node in rivals]
                known = max(scores) if known is None else max(known, max(scores))
            found[shard] = known
        self._nodes, self._best = now, found
        return {shard: None if known is None else known[1] for shard, known in found.items()}

    def hashes(self, shards: Collection[int], nodes: Iterable[str]) -> int:
        """About how many it would have to compute."""
        now = set(nodes)
        lost = sum(known is None or known[1] not in now for known in self._best.values())
        anew = lost + max(0, len(shards) - len(self._best))
        return anew * len(now) + (len(shards) - anew) * len(now - self._nodes)


def _score(shard: int, node: str) -> int:
    return _number(f"{node}\0{shard}")


def _number(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")


class NodeState(msgspec.Struct, frozen=True):
    """A node as the table has it. `left_s` is what is left of its lease; below 0: it has ended."""

    name: str
    run: int
    rpc: str
    http: str
    version: str
    is_draining: bool
    left_s: float

    @property
    def is_living(self) -> bool:
        return self.left_s > 0


class ClusterState(msgspec.Struct, frozen=True):
    """The tables as one transaction saw them: nodes by name, and the owner of each shard."""

    nodes: dict[str, NodeState]
    owners: dict[int, str | None]

    def living(self) -> list[str]:
        return sorted(node.name for node in self.nodes.values() if node.is_living)

    def candidates(self) -> list[str]:
        """The nodes that shards go to. If all that live are draining, nothing moves."""
        living = [node for node in self.nodes.values() if node.is_living]
        return sorted(node.name for node in living if not node.is_draining)


class Plan(msgspec.Struct, frozen=True):
    """What a node has to do: open what is its own, take what nobody has, give away the rest."""

    lost: list[int]
    opened: list[int]
    taken: list[int]
    given: list[tuple[int, str]]


def plan_of(
    state: ClusterState,
    me: str,
    held: Mapping[int, object] | set[int],
    wishes: Wishes | None = None,
) -> Plan:
    """What the node `me` has to do, which holds these shards now. `wishes` of the plan before make
    this one quick."""
    wished = (wishes or Wishes()).of(state.owners, state.candidates())
    living = set(state.living())
    lost = sorted(shard for shard in held if state.owners.get(shard) != me)
    opened, taken, given = [], [], []
    for shard, owner in sorted(state.owners.items()):
        wanted = wished[shard]
        if owner == me:
            if wanted is not None and wanted != me:
                given.append((shard, wanted))
            elif shard not in held:
                opened.append(shard)
        elif owner not in living and wanted == me:
            taken.append(shard)
    return Plan(lost, opened, taken, given)


def moves(before: Iterable[str], after: Iterable[str], shards: int) -> int:
    """How many shards have another owner when the living nodes change."""
    was, now = list(before), list(after)
    return sum(wanted_owner(shard, was) != wanted_owner(shard, now) for shard in range(shards))


class Lease:
    """A node's own view of its lease, on a clock that neither jumps nor stands still.

    The server counts a lease from when it renews it, the node from when it asked: so the node's
    ends first. `margin_s` is for clocks that do not run alike."""

    __slots__ = ("_lease_s", "_renewed_s", "_until_s")

    def __init__(self, lease_s: float, margin_s: float) -> None:
        self._lease_s = lease_s - margin_s
        self._renewed_s: float | None = None
        self._until_s = float("-inf")

    def renewed(self, asked_s: float) -> None:
        """The server has renewed it, asked at that time."""
        self._renewed_s = asked_s
        self._until_s = max(self._until_s, asked_s + self._lease_s)

    def age_s(self, now_s: float) -> float:
        """How long ago it was renewed; 0 if it never was."""
        return 0.0 if self._renewed_s is None else now_s - self._renewed_s

    def end(self) -> None:
        self._until_s = float("-inf")

    def is_held(self, now_s: float) -> bool:
        return now_s < self._until_s

    def left_s(self, now_s: float) -> float:
        return self._until_s - now_s
