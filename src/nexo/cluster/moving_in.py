"""Bringing a broker that was alone into a cluster, with all that it holds, while no node runs.

First everything is looked at: names that are taken, and redrives under way, are refused before
anything is written. Then payloads are copied, which nothing refers to yet. One transaction over all
shards makes them part of the cluster. Whoever begins again after a failure finds a cluster without
these queues, and clears away the payloads of the first try.
"""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from nexo.cluster.placement import ClusterState, NodeState, shard_of
from nexo.cluster.tokens import TOKENS_SHARD, encode_tokens
from nexo.engine.transplant import Source, Transplant
from nexo.journal.port import Commit, Writing
from nexo.journal.postgresql_cluster import ClusterTables
from nexo.journal.postgresql_shards import ShardJournal, Shards
from nexo.journal.sqlite import JOURNAL_FILE, SqliteJournal
from nexo.vocabulary.errors import InvalidArgument, NexoError, NotReady
from nexo.vocabulary.limits import CLUSTER_RENEW_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nexo.vocabulary.changes import TokenDefined

    Told = Callable[[int, int], None]

_NAME = "nexo import"  # no node can have it: of a blank
_draw = random.SystemRandom()


class MovedIn(msgspec.Struct, frozen=True):
    queues: int
    topics: int
    messages: int
    tokens: int
    shards: int


def move_in(url: str, data: Path, told: Told) -> MovedIn:
    """Everything or nothing. `told` hears how many rows of payloads are copied, of how many."""
    if not (data / JOURNAL_FILE).is_file():
        raise InvalidArgument(f"there is no broker's data in {data}", "name its data directory")
    run = _draw.getrandbits(62)
    tables, journal = ClusterTables(url, _NAME, run), SqliteJournal(data)
    try:
        shards, _ = tables.cluster()
        source = Source(journal)
        source.check()
        with _joined(tables, url, run):
            return _move(url, run, tables, source, shards, told)
    finally:
        journal.close()
        tables.close()


def _move(
    url: str, run: int, tables: ClusterTables, source: Source, shards: int, told: Told
) -> MovedIn:
    names: dict[int, set[str]] = {}
    for name in source.names():
        names.setdefault(shard_of(name, shards), set()).add(name)
    tokens = dict(source.catalog.tokens)
    if tokens:
        names.setdefault(TOKENS_SHARD, set())
    for shard in names:
        if not tables.take(shard, tables.read().owners[shard]):
            raise NotReady(f"shard {shard} of the cluster has an owner that runs", "stop the nodes")
    tables.raise_epochs(sorted(names), source.epoch)
    store = Shards(url, _NAME, run)
    try:
        parts: dict[ShardJournal, Transplant] = {}
        for shard in sorted(names):
            journal = store.journal(shard)
            epoch = journal.open()
            part = Transplant(source, journal, epoch, names[shard], lambda: _draw.getrandbits(64))
            retired = source.catalog.retired
            part.retire(name for name in retired if shard_of(name, shards) == shard)
            part.tokens = tokens if shard == TOKENS_SHARD else {}
            part.check()
            parts[journal] = part
        _copy(parts, told)
        store.commit_all([Writing(journal, part.commit()) for journal, part in parts.items()])
    finally:
        store.end()
    if tokens:
        tables.publish_tokens(encode_tokens(_all_tokens(parts)))
    figures = [part.figures for part in parts.values()]
    queues, topics, messages = (sum(each[at] for each in figures) for at in range(3))
    return MovedIn(queues, topics, messages, len(tokens), len(parts))


def _copy(parts: dict[ShardJournal, Transplant], told: Told) -> None:
    rows = {part: part.rows() for part in parts.values()}
    total, done = sum(map(len, rows.values())), 0
    for journal, part in parts.items():
        held = part.held_rows()
        strays = [row for row in journal.rows() if row not in held]
        if strays:  # of a try that failed
            journal.commit(Commit([], [], strays, []))
        for count in part.copy(rows[part]):
            done += count
            told(done, total)


def _all_tokens(parts: dict[ShardJournal, Transplant]) -> dict[str, TokenDefined]:
    for journal, part in parts.items():
        if journal.shard == TOKENS_SHARD:
            return part.all_tokens
    return {}


@contextmanager
def _joined(tables: ClusterTables, url: str, run: int) -> Iterator[None]:
    """Be one of the living meanwhile, so that no node takes a shard; and the only one."""
    if not tables.join("", "", ""):
        raise NotReady("another import into this cluster is under way", "let it end first")
    ended = threading.Event()
    alive = threading.Thread(target=_renew, args=(url, run, ended), name="nexo-lease", daemon=True)
    try:
        tables.set_draining(_NAME, True)  # it wants no shard but those that it takes
        found = tables.read()
        state = ClusterState({row.name: NodeState(*row) for row in found.nodes}, found.owners)
        running = [name for name in state.living() if name != _NAME]
        if running:
            raise NotReady(
                f"node {running[0]!r} of the cluster is running",
                "stop all nodes, and start them again after the import",
            )
        alive.start()
        yield
    finally:
        ended.set()
        if alive.is_alive():
            alive.join()
        tables.forget()


def _renew(url: str, run: int, ended: threading.Event) -> None:
    """Keep the lease. If that fails, others may take the shards, and the fence keeps this one from
    writing."""
    tables = ClusterTables(url, _NAME, run)
    while not ended.wait(CLUSTER_RENEW_S):
        with suppress(NexoError):
            tables.renew()
    tables.close()
