"""The committer: everything that waited while one commit ran is the next commit.

An actor that changed something enlists; those who wait for the disk leave a future. When the commit
is durable the actors settle (what came in becomes visible) and the futures get their answers. If it
fails, nobody is answered: the engine takes everything back to what the journal holds.

An actor that fails by itself leaves the round, and those who wait for it are told; the others go
on. Only if its changes are tied to those of another actor (a move, a fan-out, an archive: all of
it or nothing) the whole round is given up.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from nexo.engine.outcome import outcome_of, refusal_of, report
from nexo.journal.port import Commit, Write, Writing
from nexo.vocabulary import limits
from nexo.vocabulary.errors import NexoError, NotReady
from nexo.vocabulary.limits import INLINE_COMMIT_BYTES, LAZY_COMMIT_MS, LONG_COMMIT_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.context import Context
    from nexo.vocabulary.batch import Batch

    Told = Callable[[Any, BaseException | None], None]


RANKS = CATALOG_RANK, TOPIC_RANK, QUEUE_RANK, ARCHIVE_RANK, EVENTS_RANK = range(5)


class Durable(asyncio.Future[Any]):
    """An answer that waits for the disk.

    Those who await it go on a turn of the loop after the commit has ended. A door cannot wait that
    long: what it has to say is to be on its way before the next commit begins, so it is called
    back."""

    told: Told | None = None

    def answer(self, result: Any, error: BaseException | None = None) -> None:
        """The commit has ended. Nothing that goes wrong here may stop the others' answers."""
        if self.told is not None:
            _, failure = outcome_of(self.told, result, error)
            if failure is not None:
                report("an answer could not be given", failure)
        elif self.done():
            return  # whoever waited has gone
        elif error is None:
            self.set_result(result)
        else:
            self.set_exception(error.anew() if isinstance(error, NexoError) else error)


def call_back(future: asyncio.Future[Any], told: Told) -> None:
    """Call back with the result or the error. Nobody else may wait for this future."""
    if isinstance(future, Durable) and not future.done():
        future.told = told
    else:

        def done(finished: asyncio.Future[Any]) -> None:
            if not finished.cancelled():  # else the loop is ending
                told(*outcome_of(finished.result))

        future.add_done_callback(done)


_Future = asyncio.Future
_Mark = tuple["Participant", Any]  # an actor, and what it settles with
_Failed = tuple["Participant", Exception]
_Waiter = tuple[Durable, Any, "Participant | None"]  # who waits, for what, and on whose changes
_Round = tuple[list[_Mark], int, float]  # who settles with it, the bytes in it, when it began
_NO_ROUND: _Round = ([], 0, 0.0)


class Draft:
    """A commit being put together."""

    __slots__ = (
        *("dropped_owners", "dropped_rows", "rows"),
        *("snapshot_bytes", "snapshot_entries", "writes"),
    )

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.rows: list[tuple[int, Batch]] = []
        self.dropped_rows: list[int] = []
        self.dropped_owners: list[int] = []
        self.snapshot_bytes = 0  # of those that are in it
        self.snapshot_entries = limits.SNAPSHOT_STEP_ENTRIES  # that snapshots may still take down

    def add_snapshot(self, owner: int, record: bytes, snapshot: bytes | bytearray) -> None:
        self.snapshot_bytes += len(snapshot)
        self.writes.append(Write(owner, record, snapshot))

    def lengths(self) -> tuple[int, int, int, int]:
        return (
            len(self.writes),
            len(self.rows),
            len(self.dropped_rows),
            len(self.dropped_owners),
        )

    def cut(self, lengths: tuple[int, int, int, int]) -> None:
        """Forget what was added since it had these lengths."""
        del self.writes[lengths[0] :]
        del self.rows[lengths[1] :]
        del self.dropped_rows[lengths[2] :]
        del self.dropped_owners[lengths[3] :]


_EMPTY = Draft().lengths()


class Participant(Protocol):
    """An actor as the committer sees it."""

    rank: int  # who is collected first: one of `RANKS`
    owner: int  # its number in the journal

    @property
    def label(self) -> str:
        """What it is, for people: `queue 'orders'`."""

    def suspend(self, error: NexoError) -> None:
        """Its state is not to be used any more; another is coming."""

    def reopen(self) -> None:
        """It is in service again."""

    def collect(self, draft: Draft) -> Any:
        """Put what changed into the draft; returns what `settle` needs."""

    def settle(self, mark: Any) -> None:
        """It is on disk."""


class Teller(Participant, Protocol):
    """An actor that tells what the others did, once it is on disk."""

    def landed(self) -> None:
        """A commit is on disk."""


class Committer:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.journal = context.journal
        self._desk = context.desk
        self._soon = context.desk.soon
        self._dirty: list[dict[Participant, None]] = [{} for _ in RANKS]
        self._waiters: list[_Waiter] = []
        self._running_waiters: list[_Waiter] = []
        self._tied: set[Participant] = set()  # in this round they change together, or not at all
        self._excluded: dict[Participant, NexoError] = {}  # they are being loaded anew
        self._condemned: NexoError | None = None  # why everything is given up after this commit
        self._running = False
        self._round = _NO_ROUND  # the commit that is being written
        self._is_long = False  # it takes its time however quick the disk is
        self._urgent = False  # something of those that are dirty must not wait
        self._stopped = False
        self._is_scheduled = False
        self._lazy: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.unsettled_bytes = 0
        self._next_bytes = 0
        self._room: list[_Future[None]] = []
        self._waiting_for_room = 0
        self.commits = 0
        self.teller: Teller | None = None  # of what the commit that is being written does
        self._waiting_since_s: float | None = None  # since when something waits for a commit's end

    # -- For actors ---------------------------------------------------------------------------

    def enlist(self, actor: Participant) -> None:
        """Something of the actor changed that must be written now."""
        self._dirty[actor.rank][actor] = None
        self._urgent = True
        if not self._is_scheduled:
            self._schedule()

    def enlist_lazily(self, actor: Participant) -> None:
        """Something changed that may wait for the next commit, but not for ever."""
        self._dirty[actor.rank][actor] = None
        if self._lazy is None and not self._running:  # else its end sees to it
            self._schedule_lazily()

    def when_durable(self, result: Any, actor: Participant | None = None) -> Durable:
        """A future that gets `result` once everything enlisted so far is on disk; of `actor`, if
        it is named: then the others' failures do not matter."""
        future = Durable(loop=self._loop)
        if self._stopped:
            future.set_exception(self._refusal())
        elif self._excluded and actor in self._excluded:
            future.set_exception(self._excluded[actor].anew())
        else:
            self._waiters.append((future, result, actor))
        return future

    def admit(self, actor: Participant, size: int, result: Any) -> Durable:
        """Something came in: all three of the others in one step, for the hot path."""
        self._next_bytes += size
        self.unsettled_bytes += size
        self._dirty[actor.rank][actor] = None
        self._urgent = True
        if not self._is_scheduled:
            self._schedule()
        return self.when_durable(result, actor)

    def tie(self, *actors: Participant) -> None:
        """What these actors are about to do happens together or not at all. Raises if one of them
        is being loaded anew."""
        for actor in actors:
            self.check(actor)
        self._tied.update(actors)

    def check(self, actor: Participant) -> None:
        """Raises if the actor is being loaded anew: what it is given now would be lost."""
        if self._excluded and actor in self._excluded:
            raise self._excluded[actor].anew()

    def accept(self, size: int) -> None:
        """Bytes that wait for the disk."""
        self._next_bytes += size
        self.unsettled_bytes += size

    @property
    def congested(self) -> bool:
        """The disk has fallen behind: no more may come in before `room` says so. While somebody
        waits for room everybody does, so nobody is overtaken."""
        return self.unsettled_bytes > limits.UNSETTLED_BYTES_MAX or self._waiting_for_room > 0

    async def room(self) -> None:
        """Wait until the disk has caught up enough for more to come in."""
        self._waiting_for_room += 1
        try:
            while self.unsettled_bytes > limits.UNSETTLED_BYTES_MAX:
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
                raise self._refusal()
            return await push()

        return self._loop.create_task(wait_and_push())

    def _refusal(self) -> NexoError:
        """Why nothing is written now: the journal has failed, or all of it stops."""
        refusal = self._context.refusal
        if refusal is not None:
            return refusal.anew()
        return NotReady("the broker has stopped", "try again when it is back")

    # -- For the engine -----------------------------------------------------------------------

    def abandon(self, error: BaseException) -> None:
        """Forget what was not committed: the state is about to be loaded from the journal."""
        for of_rank in self._dirty:
            of_rank.clear()
        self._urgent = False
        self._tied.clear()
        self._excluded.clear()
        self._condemned = self._waiting_since_s = self.teller = None
        self._cancel_timers()
        waiters = self._running_waiters + self._waiters
        self._running_waiters, self._waiters = [], []
        self._reset_room()
        for future, _, _ in waiters:
            future.answer(None, error)

    def is_tied(self, actor: Participant) -> bool:
        """Whether others' changes of the next commit depend on those of the actor."""
        return actor in self._tied

    def is_excluded(self, actor: Participant) -> bool:
        return actor in self._excluded

    def exclude(self, actor: Participant, error: NexoError) -> None:
        """The actor is taken back to what the journal holds: forget what it was about to write and
        tell those who wait for that. Until it is back no commit begins, since others could depend
        on it; its load is at the desk's head, where no commit could run meanwhile anyway."""
        self._excluded[actor] = error
        self._dirty[actor.rank].pop(actor, None)
        self._waiters = _without(actor, self._waiters, error)

    def readmit(self, actor: Participant) -> None:
        """The actor is what the journal holds."""
        self._dirty[actor.rank].pop(actor, None)  # it was not told of what came to it meanwhile
        if self._excluded.pop(actor, None) is not None:
            self._go_on()

    def condemn(self, error: NexoError) -> None:
        """Give everything up: now, or once it is known what became of the commit under way."""
        if self._running:
            self._condemned = error
        else:
            self._context.supervisor.give_up(error)

    def stop(self) -> None:
        """Begin no further commit."""
        self._stopped = True
        self._cancel_timers()

    def resume(self) -> None:
        """The state is what the journal holds: what was delivered since it failed is forgotten."""
        for of_rank in self._dirty:
            of_rank.clear()
        self._stopped = False
        self._running = False

    @property
    def overdue_ms(self) -> int:
        """For how long something has waited without any commit having ended."""
        if self._waiting_since_s is None:
            return 0
        return int((self._loop.time() - self._waiting_since_s) * 1000)

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
        if not (self._is_scheduled or self._running or self._stopped):
            if self._waiting_since_s is None:
                self._waiting_since_s = self._loop.time()
            self._is_scheduled = True
            self._soon(self)

    def _schedule_lazily(self) -> None:
        if self._lazy is None and not (self._is_scheduled or self._stopped):
            self._lazy = self._loop.call_later(LAZY_COMMIT_MS / 1000, self._begin_lazily)

    def _begin_lazily(self) -> None:
        self._is_scheduled = not self._stopped
        self.begin()

    def begin(self) -> None:
        """Write what there is."""
        commit = self._put_together()
        if commit is not None:
            self._submit(commit)

    def begin_joined(self) -> Commit | None:
        """The same for a runner that writes the commits of many together: it is given this one, and
        tells how it ended. None: there is nothing, or it takes the usual way, as one does that is
        long or has to wait."""
        commit = self._put_together()
        if commit is None or (not self._is_long and self._desk.take()):
            return commit
        self._submit(commit)
        return None

    def end_joined(self, sync_s: float | None, error: BaseException | None) -> None:
        self._desk.give_back(self._ended_joined, sync_s, error)

    def _ended_joined(self, sync_s: float | None, error: BaseException | None) -> None:
        began_s = self._round[2]
        self._end(error)
        if sync_s is not None:
            self._context.meters.joined(began_s, sync_s)

    def _submit(self, commit: Commit) -> None:
        self._desk.submit(Writing(self.journal, commit), self._ended, True, self._is_long)

    def _ended(self, sync_s: float | None, error: BaseException | None) -> None:
        began_s = self._round[2]
        self._end(error)
        if sync_s is not None:  # last: should it raise, the desk tells of it, and no more
            self._context.meters.committed(perf_counter() - began_s, sync_s)

    def _put_together(self) -> Commit | None:
        if not self._is_scheduled:  # it was called off
            return None
        self._is_scheduled = False
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None
        if self._running or self._excluded:
            return None
        if self._waiting_since_s is None:
            self._waiting_since_s = self._loop.time()
        self._running = True  # before: collecting one enlists another, and it is all this round
        draft, marks, failed = self._collect()
        self._urgent = False
        self._running_waiters, self._waiters = self._waiters, []
        if failed and any(actor in self._tied for actor, _ in failed):
            self._running = False
            self._tell_failed(failed)
            return None
        if self._tied:
            self._tied.clear()
        round_bytes, self._next_bytes = self._next_bytes, 0
        self._round = marks, round_bytes, perf_counter()
        rows, dropped_rows = draft.rows, draft.dropped_rows
        if dropped_rows:
            dropped_rows = self._context.rows.release_all(dropped_rows)
        if failed:
            self._tell_failed(failed)
        writes, dropped_owners = draft.writes, draft.dropped_owners
        # Rows of its tables that it concerns: of payload, and a record of each owner.
        count = len(rows) + len(dropped_rows) + len(writes) + len(dropped_owners)
        if not count:
            self._end(None)
            return None
        self._is_long = (
            count > LONG_COMMIT_ROWS
            or round_bytes + draft.snapshot_bytes > INLINE_COMMIT_BYTES
            or self.journal.next_is_long
        )
        return Commit(writes, rows, dropped_rows, dropped_owners)

    def _collect(self) -> tuple[Draft, list[_Mark], list[_Failed]]:
        """Collecting a topic may bring work to the queues bound to it, and a queue to its archive
        and to the events: all of them have a higher rank."""
        draft = Draft()
        marks: list[_Mark] = []
        failed: list[_Failed] = []
        for of_rank in self._dirty:
            if of_rank:
                actors = list(of_rank)
                of_rank.clear()
                for actor in actors:
                    lengths = draft.lengths() if marks else _EMPTY
                    mark, failure = outcome_of(actor.collect, draft)
                    if failure is None:
                        marks.append((actor, mark))
                    else:
                        draft.cut(lengths)
                        failed.append((actor, failure))
        return draft, marks, failed

    def _end(self, error: BaseException | None) -> None:
        (marks, round_bytes, _), self._round = self._round, _NO_ROUND
        self._running = False
        self._waiting_since_s = None
        if error is not None:
            self._context.supervisor.give_up(refusal_of(error))
            return
        self.commits += 1
        self.unsettled_bytes -= round_bytes
        failed: list[_Failed] = []
        for actor, mark in marks:
            if self._excluded and actor in self._excluded:
                continue  # its load comes next, and finds this commit
            _, failure = outcome_of(actor.settle, mark)
            if failure is not None:
                failed.append((actor, failure))
        waiters, self._running_waiters = self._running_waiters, []
        for future, result, _ in waiters:
            future.answer(result)
        if self._room and self.unsettled_bytes <= limits.UNSETTLED_BYTES_MAX:
            self._wake_room()
        if self.teller is not None:
            teller, self.teller = self.teller, None
            self._context.supervisor.guard(teller, teller.landed)
        if failed:
            self._tell_failed(failed)
        if self._condemned is not None:
            self._context.supervisor.give_up(self._condemned)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Begin the next commit, if there is something to write."""
        if self._urgent or self._waiters:
            self._schedule()
        elif any(self._dirty):
            self._schedule_lazily()

    def _tell_failed(self, failed: list[_Failed]) -> None:
        """They are loaded anew; who waits for them in the commit that begins is told now."""
        for actor, error in failed:
            told = self._context.supervisor.actor_failed(actor, error)
            self._running_waiters = _without(actor, self._running_waiters, told)

    def _cancel_timers(self) -> None:
        self._is_scheduled = False
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


def _without(actor: Participant, waiters: list[_Waiter], error: NexoError) -> list[_Waiter]:
    """Tell those who wait for this actor, and return the others."""
    for future, _, changed in waiters:
        if changed is actor:
            future.answer(None, error)
    return [waiter for waiter in waiters if waiter[2] is not actor]
