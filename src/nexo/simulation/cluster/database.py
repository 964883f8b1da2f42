"""The database of a cluster in memory: the tables `node`, `owner` and `shard`, the journal of each
shard, and the same rules as in PostgreSQL. A transaction is done at one moment, whole or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.engine.audit import RecordFold
from nexo.journal.memory import MemoryDisk, MemoryJournal
from nexo.journal.postgresql_cluster import NodeRow, Tables
from nexo.simulation.history import Violation
from nexo.vocabulary.errors import Fenced
from nexo.vocabulary.limits import CLUSTER_LEASE_S

if TYPE_CHECKING:
    from collections.abc import Callable


class Known(msgspec.Struct):
    """A row of the table `node`."""

    name: str
    run: int
    rpc: str
    http: str
    version: str
    until_s: float
    is_draining: bool = False


class Database:
    """`now_s` is the clock of the server; what changes in the tables is told to `listeners`."""

    def __init__(self, shards: int, now_s: Callable[[], float]) -> None:
        self.shards = shards
        self.now_s = now_s
        self.nodes: dict[str, Known] = {}
        self.owners: dict[int, str | None] = dict.fromkeys(range(shards))
        self.disks = {shard: MemoryDisk() for shard in range(shards)}
        self.opened_by: dict[int, tuple[str, int]] = {}  # the node and run that raised the epoch
        self.tokens = (0, b"")
        self.listeners: dict[object, Callable[[], None]] = {}

    def tables(self, node: str, run: int) -> SimulatedTables:
        return SimulatedTables(self, node, run)

    def is_living(self, node: str | None) -> bool:
        return node in self.nodes and self.nodes[node].until_s > self.now_s()

    def holds(self, shard: int, epoch: int) -> bool:
        """The fence of a commit."""
        return self.disks[shard].epoch == epoch

    def raise_epoch(self, shard: int, node: str, run: int) -> int:
        """Only the owner may, in its present run."""
        known = self.nodes.get(node)
        if self.owners[shard] != node or known is None or known.run != run:
            raise Fenced(f"shard {shard} belongs to another node")
        self.disks[shard].epoch += 1
        self.opened_by[shard] = (node, run)
        return self.disks[shard].epoch

    def notify(self) -> None:
        for told in list(self.listeners.values()):
            told()

    def verify(self) -> None:
        """What the journals hold is sound."""
        for shard, disk in self.disks.items():
            journal, fold = MemoryJournal(disk), RecordFold()
            epoch = disk.epoch
            journal.open()
            disk.epoch = epoch  # looking is no start
            rows: set[int] = set()
            for owner in journal.owners():
                found, complaints = fold.rows_of(owner, journal.load(owner))
                rows |= found
                if complaints:
                    raise Violation("the journal is sound", f"shard {shard}: {complaints}")
            if rows != disk.rows.keys():
                odd = sorted(rows ^ disk.rows.keys())
                raise Violation("the journal is sound", f"shard {shard}: rows {odd}")


class SimulatedTables:
    """`ClusterTables` of one node, each method a transaction."""

    def __init__(self, database: Database, node: str, run: int) -> None:
        self._database, self._node, self._run = database, node, run

    def cluster(self) -> tuple[int, str]:
        return self._database.shards, "secret"

    def join(self, rpc: str, http: str, version: str) -> bool:
        known = self._database.nodes.get(self._node)
        if known is not None and self._database.is_living(self._node):
            return False
        made = Known(self._node, self._run, rpc, http, version, self._lease_end())
        made.is_draining = known is not None and known.is_draining
        self._database.nodes[self._node] = made
        self._database.notify()
        return True

    def renew(self, tokens_known: int = -1) -> Tables:
        known = self._database.nodes.get(self._node)
        if known is None or known.run != self._run:
            raise Fenced(f"another node has taken the name {self._node!r}")
        known.until_s = self._lease_end()
        return self.read(tokens_known)

    def read(self, tokens_known: int = -1) -> Tables:
        database = self._database
        now_s = database.now_s()
        nodes = [
            NodeRow(
                each.name,
                each.run,
                each.rpc,
                each.http,
                each.version,
                each.is_draining,
                each.until_s - now_s,
            )
            for each in database.nodes.values()
        ]
        version, data = database.tokens
        told = data if version != tokens_known else None
        return Tables(nodes, dict(database.owners), self.epochs(), version, told)

    def epochs(self) -> dict[int, int]:
        return {shard: disk.epoch for shard, disk in self._database.disks.items()}

    def take(self, shard: int, owner: str | None) -> bool:
        database = self._database
        if database.is_living(database.owners[shard]) or database.owners[shard] != owner:
            return False
        database.owners[shard] = self._node
        database.notify()
        return True

    def give(self, shard: int, to: str) -> bool:
        database = self._database
        if database.owners[shard] != self._node or not database.is_living(to):
            return False
        database.owners[shard] = to
        database.notify()
        return True

    def leave(self) -> None:
        known = self._database.nodes.get(self._node)
        if known is not None and known.run == self._run:
            known.until_s = float("-inf")
        self._database.notify()

    def set_draining(self, node: str | None, draining: bool) -> int:
        changed = [known for known in self._database.nodes.values() if node in (None, known.name)]
        for known in changed:
            known.is_draining = draining
        self._database.notify()
        return len(changed)

    def tokens(self) -> tuple[int, bytes]:
        return self._database.tokens

    def publish_tokens(self, data: bytes, expected: int | None = None) -> tuple[int, bytes]:
        version, known = self._database.tokens
        is_next = expected is None or expected == version
        if data != known and is_next and self._database.owners[0] == self._node:
            self._database.tokens = (version + 1, data)
        self._database.notify()
        return self._database.tokens

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the simulated tables have no {name!r} yet: add it to {__name__}")

    def _lease_end(self) -> float:
        return self._database.now_s() + CLUSTER_LEASE_S
