"""Who writes to PostgreSQL, for one journal or for many: what waited while one transaction ran is
the next one, of all of them together.

There are two tracks to write on. Most of the time one is used: one transaction of all shards costs
less than one of each. The other is for two cases. What is long, and what is tried again, has a
track to itself, and keeps nobody else waiting. And while the server is quick, many shards go in two
halves: the event loop puts the one together while the server writes the other.

Another thread reads: a shard that is being loaded keeps nobody from writing.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import psycopg
from psycopg import errors as postgresql

from nexo.journal.port import Writing
from nexo.journal.postgresql_connection import translate
from nexo.journal.postgresql_track import Link, Track
from nexo.journal.postgresql_transaction import Transaction
from nexo.vocabulary.limits import COMMIT_TURNS, TRACK_QUICK_MS, TRACK_SHARDS_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.journal.port import Committing
    from nexo.journal.postgresql_connection import Connection
    from nexo.journal.postgresql_pipeline import Statement
    from nexo.journal.postgresql_track import Call, Done
    from nexo.journal.postgresql_transaction import Lease, Part, Participant

    Job = Callable[[], Any]

_TRACKS = 2
_WEIGHT = 0.2  # of the latest transaction in the moving average


class Writer:
    """The runner of the desks of its journals.

    `turns` of the event loop are let go by before a transaction begins: those whose last commit
    has just ended are about to come with the next. Without them the shards of a node would take
    turns instead of going together."""

    def __init__(
        self, connect: Callable[[], Connection], turns: int = COMMIT_TURNS, *more: Statement
    ) -> None:
        self.lease: Lease | None = None  # of a node: all that is written is written under it
        self._turns = turns
        self._threads = ThreadPoolExecutor(_TRACKS, thread_name_prefix="nexo-writer")
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="nexo-reader")
        self._tracks = [
            Track(Link(connect, *more), self._threads, self._news) for _ in range(_TRACKS)
        ]
        self._coming: list[Committing] = []
        self._waiting: list[Call] = []
        self._long: list[Call] = []  # those that take their time
        self._is_counting = False  # turns of the event loop, until the next transaction begins
        self._is_seen_to = False  # it is, or the next one begins when another ends
        self._average_ms = 0.0  # that a transaction of the event loop takes

    def soon(self, committing: Committing) -> None:
        """It has something to write. It is asked for that when the next transaction is put
        together: one callback of the event loop, however many shards of a node there are."""
        self._coming.append(committing)
        if not self._is_seen_to:
            self._begin_soon(self._turns)

    def run(self, job: Job, done: Done, is_long: bool) -> None:
        """Run a call of a journal, and tell its outcome in the event loop. A commit is written with
        the next transaction."""
        if type(job) is not Writing:  # isinstance of a struct takes as long as the rest of this
            self._read(job, done)
            return
        (self._long if is_long else self._waiting).append((job.journal, job.commit, done))
        if not self._is_seen_to:
            self._begin_soon(self._turns)

    def _read(self, job: Job, done: Done) -> None:
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._reads, job).add_done_callback(
            lambda finished: _tell_one(finished, done)
        )

    def close(self) -> None:
        """Let go of everything, once what waits is done. May block."""
        self._threads.shutdown()
        self._reads.shutdown()
        for track in self._tracks:
            track.link.drop()

    @property
    def transactions(self) -> int:
        """How many were written."""
        return sum(track.transactions for track in self._tracks)

    def commit_all(self, jobs: Iterable[Writing]) -> None:
        """All of them in one transaction, or none: for who has the store to itself. May block."""
        transaction, link = Transaction(), self._tracks[0].link
        parts: list[tuple[Participant, Part]] = []
        for job in jobs:
            journal = cast("Participant", job.journal)
            parts.append((journal, journal.put(job.commit, transaction)))
        try:
            link.get().run(transaction.requests())
        except postgresql.DivisionByZero as error:
            raise parts[0][0].overtaken() from error
        except psycopg.Error as error:
            link.drop()
            raise translate(error, "writing") from error
        for journal, part in parts:
            journal.written(part)

    # -- The next transaction -----------------------------------------------------------------

    def _begin_soon(self, turns: int) -> None:
        self._is_counting = self._is_seen_to = True
        self._count_down(turns)

    def _count_down(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._count_down, turns - 1)
        else:
            self._is_counting = False
            self._begin()

    def _begin(self) -> None:
        """Write what there is on a track that is free, if it is not to wait for the other."""
        free = [track for track in self._tracks if track.is_free]
        if not free:
            return
        if self._long and not self._is_apart:
            calls, self._long = self._long, []
            free[0].write(calls, self.lease, is_long=True)
            return
        is_many = self._is_quick and len(self._coming) >= TRACK_SHARDS_MIN
        if len(free) == _TRACKS or self._is_apart or is_many:
            self._join(free)

    def _join(self, free: list[Track]) -> None:
        """Everything that waits is one transaction; of many who come half, if both tracks are free.
        Should one of them fail, the others come with the next."""
        count, half = len(self._coming), len(self._coming) // 2
        if half >= TRACK_SHARDS_MIN and len(free) == _TRACKS and self._is_quick:
            count = half
        coming, self._coming = iter(self._coming[:count]), self._coming[count:]
        try:
            for each in coming:
                commit = each.begin_joined()
                if commit is not None:
                    self._waiting.append((each.journal, commit, each.end_joined))
        finally:
            self._coming[:0] = coming
            calls, self._waiting = self._waiting, []
            if calls:
                free[0].write(calls, self.lease, is_long=False)
            if self._coming or not calls:
                self._go_on(1)
            else:  # what comes now goes with the next, unless it would have to wait for long
                self._is_seen_to = self._is_counting or not self._is_apart

    def _go_on(self, turns: int) -> None:
        """Begin the next, as soon as there is a track for it."""
        if self._is_counting:
            return
        free = sum(track.is_free for track in self._tracks)
        if free == _TRACKS or (free and self._is_apart):
            if self._coming or self._waiting or (self._long and not self._is_apart):
                self._begin_soon(turns)
            else:
                self._is_seen_to = False
        elif free and self._is_quick:  # of those who were just told, many may come at once
            self._begin_soon(turns)

    def _news(self, took_s: float | None) -> None:
        """A track is free again, or not to be waited for."""
        if took_s is not None:
            self._average_ms += _WEIGHT * (took_s * 1000 - self._average_ms)
        self._go_on(self._turns)

    @property
    def _is_quick(self) -> bool:
        """Whether it takes the server less time to write than the event loop to tell it what."""
        return self._average_ms < TRACK_QUICK_MS

    @property
    def _is_apart(self) -> bool:
        """Whether one of the tracks is taken by something that nobody should wait for."""
        return any(track.is_apart for track in self._tracks)


def _tell_one(finished: asyncio.Future[Any], done: Done) -> None:
    if finished.cancelled():
        return
    error = finished.exception()
    done(None if error is not None else finished.result(), error)
