"""The committer: everything that waited while one commit ran is the next commit.

An actor that changed something enlists; those who wait for the disk leave a future. When the commit
is durable the actors settle (what came in becomes visible) and the futures get their answers. If it
fails, nobody is answered: the engine takes everything back to what the journal holds.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from nexo.engine.durable import Durable
from nexo.journal.port import Commit, Write
from nexo.vocabulary.errors import NexoError, ReadOnly
from nexo.vocabulary.limits import UNSETTLED_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.desk import Desk
    from nexo.journal.port import Journal
    from nexo.vocabulary.batch import Batch

LAZY_COMMIT_MS = 50  # deliveries alone are written after this long

RANKS = CATALOG_RANK, TOPIC_RANK, QUEUE_RANK, ARCHIVE_RANK, EVENTS_RANK = range(5)

_Future = asyncio.Future


class Draft:
    """A commit being put together."""

    __slots__ = ("dropped_owners", "dropped_rows", "rows", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.rows: list[tuple[int, Batch]] = []
        self.dropped_rows: list[int] = []
        self.dropped_owners: list[int] = []


class Participant(Protocol):
    """An actor as the committer sees it."""

    rank: int  # who is collected first: one of `RANKS`

    def collect(self, draft: Draft) -> Any:
        """Put what changed into the draft; returns what `settle` needs."""

    def settle(self, mark: Any) -> None:
        """It is on disk."""


class Committer:
    def __init__(
        self,
        journal: Journal,
        desk: Desk,
        release_row: Callable[[int], bool],
        on_failed: Callable[[BaseException], None],
        on_settled: Callable[[], None],
        on_committed: Callable[[float, float], None],
    ) -> None:
        """`on_committed` is told how long a commit took, and what the disk took of it."""
        self._journal = journal
        self._desk = desk
        self._release_row = release_row
        self._on_failed = on_failed
        self._on_settled = on_settled
        self._on_committed = on_committed
        self._dirty: list[dict[Participant, None]] = [{} for _ in RANKS]
        self._waiters: list[tuple[Durable, Any]] = []
        self._running_waiters: list[tuple[Durable, Any]] = []
        self._running = False
        self._urgent = False  # something of those that are dirty must not wait
        self._stopped = False
        self._scheduled: asyncio.Handle | None = None
        self._lazy: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.unsettled_bytes = 0
        self._next_bytes = 0
        self._room: list[_Future[None]] = []
        self._waiting_for_room = 0
        self.commits = 0

    # -- For actors ---------------------------------------------------------------------------

    def enlist(self, actor: Participant) -> None:
        """Something of the actor changed that must be written now."""
        self._dirty[actor.rank][actor] = None
        self._urgent = True
        self._schedule()

    def enlist_lazily(self, actor: Participant) -> None:
        """Something changed that may wait for the next commit, but not for ever."""
        self._dirty[actor.rank][actor] = None
        if not self._running:  # else its end sees to it
            self._schedule_lazily()

    def when_durable(self, result: Any) -> Durable:
        """A future that gets `result` once everything enlisted so far is on disk."""
        future = Durable(loop=self._loop)
        if self._stopped:
            future.set_exception(ReadOnly("the journal has stopped", "try again"))
        else:
            self._waiters.append((future, result))
        return future

    def admit(self, actor: Participant, size: int, result: Any) -> Durable:
        """Something came in: all three of the others in one step, for the hot path."""
        self._next_bytes += size
        self.unsettled_bytes += size
        self._dirty[actor.rank][actor] = None
        self._urgent = True
        self._schedule()
        return self.when_durable(result)

    def accept(self, size: int) -> None:
        """Bytes that wait for the disk."""
        self._next_bytes += size
        self.unsettled_bytes += size

    @property
    def congested(self) -> bool:
        """The disk has fallen behind: no more may come in before `room` says so. While somebody
        waits for room everybody does, so nobody is overtaken."""
        return self.unsettled_bytes > UNSETTLED_BYTES_MAX or self._waiting_for_room > 0

    async def room(self) -> None:
        """Wait until the disk has caught up enough for more to come in."""
        self._waiting_for_room += 1
        try:
            while self.unsettled_bytes > UNSETTLED_BYTES_MAX:
                future: asyncio.Future[None] = self._loop.create_future()
                self._room.append(future)
                await future
        finally:
            self._waiting_for_room -= 1

    def after_room(self, push: Callable[[], _Future[Any]]) -> _Future[Any]:
        """Push once the disk has caught up."""

        async def wait_and_push() -> Any:
            await self.room()
            if self._stopped:
                raise ReadOnly("the journal has stopped", "try again")
            return await push()

        return self._loop.create_task(wait_and_push())

    # -- For the engine -----------------------------------------------------------------------

    def abandon(self, error: BaseException) -> None:
        """Forget what was not committed: the state is about to be loaded from the journal."""
        for of_rank in self._dirty:
            of_rank.clear()
        self._urgent = False
        self._cancel_timers()
        waiters = self._running_waiters + self._waiters
        self._running_waiters, self._waiters = [], []
        self._reset_room()
        for future, _ in waiters:
            future.answer(None, error)

    def stop(self) -> None:
        """Begin no further commit."""
        self._stopped = True
        self._cancel_timers()

    def resume(self) -> None:
        self._stopped = False
        self._running = False

    @property
    def idle(self) -> bool:
        return not (self._running or any(self._dirty) or self._waiters)

    async def drain(self) -> None:
        """Wait until everything that was enlisted is on disk."""
        while not self.idle:
            future = self.when_durable(None)
            self._schedule()
            await future

    # -- One round ----------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._scheduled is None and not self._running and not self._stopped:
            self._scheduled = self._loop.call_soon(self._prepare)

    def _schedule_lazily(self) -> None:
        if self._lazy is None and self._scheduled is None and not self._stopped:
            self._lazy = self._loop.call_later(LAZY_COMMIT_MS / 1000, self._begin)

    def _prepare(self) -> None:
        """Begin one turn of the loop later: what has arrived in the meantime comes along. Over HTTP
        it takes a turn from a request to its change."""
        self._scheduled = self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._cancel_timers()
        if self._running or self._stopped:
            return
        self._running = True  # before: collecting one enlists another, and it is all this round
        draft, marks = self._collect()
        self._urgent = False
        self._running_waiters, self._waiters = self._waiters, []
        round_bytes, self._next_bytes = self._next_bytes, 0
        began_s = perf_counter()
        commit = Commit(
            draft.writes,
            draft.rows,
            [row for row in draft.dropped_rows if self._release_row(row)],
            draft.dropped_owners,
        )

        def done(sync_s: float | None, error: BaseException | None) -> None:
            self._end(marks, round_bytes, error)
            if sync_s is not None:
                self._on_committed(perf_counter() - began_s, sync_s)

        if not (commit.writes or commit.rows or commit.dropped_rows or commit.dropped_owners):
            done(None, None)
        else:
            self._desk.submit(lambda: self._journal.commit(commit), done, first=True)

    def _collect(self) -> tuple[Draft, list[tuple[Participant, Any]]]:
        """Collecting a topic may bring work to the queues bound to it, and a queue to its archive
        and to the events: all of them have a higher rank."""
        draft = Draft()
        marks: list[tuple[Participant, Any]] = []
        for of_rank in self._dirty:
            if of_rank:
                actors = list(of_rank)
                of_rank.clear()
                marks += [(actor, actor.collect(draft)) for actor in actors]
        return draft, marks

    def _end(
        self, marks: list[tuple[Participant, Any]], round_bytes: int, error: BaseException | None
    ) -> None:
        self._running = False
        if error is not None:
            self._on_failed(_refusal(error))
            return
        self.commits += 1
        self.unsettled_bytes -= round_bytes
        for actor, mark in marks:
            actor.settle(mark)
        waiters, self._running_waiters = self._running_waiters, []
        for future, result in waiters:
            future.answer(result)
        if self._room and self.unsettled_bytes <= UNSETTLED_BYTES_MAX:
            self._wake_room()
        self._on_settled()
        if self._urgent or self._waiters:
            self._schedule()
        elif any(self._dirty):
            self._schedule_lazily()

    def _cancel_timers(self) -> None:
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None

    def _reset_room(self) -> None:
        self.unsettled_bytes = self._next_bytes = 0
        self._wake_room()

    def _wake_room(self) -> None:
        waiting, self._room = self._room, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def _refusal(error: BaseException) -> BaseException:
    if isinstance(error, NexoError) or not isinstance(error, Exception):
        return error
    return ReadOnly(f"the journal failed: {error}", "see the log of the broker")
