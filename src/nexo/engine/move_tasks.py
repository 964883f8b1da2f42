"""The redrives of a broker, for those who come back to ask: those under way and those that ended.

Each has a number and an id that nobody else ever gets. The catalog keeps how far it is, in the
commit of the very messages that moved, so a start goes on where the last one stopped.

Redrives and discards of chosen messages are tasks of the same kind, but end with the broker: begun
again, they do the rest.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, TypeVar
from uuid import UUID

from msgspec.structs import replace

from nexo.engine.chosen import ChosenTask
from nexo.engine.moves import MoveTask, Progress, Resumed
from nexo.vocabulary import errors
from nexo.vocabulary.changes import MoveNoted
from nexo.vocabulary.errors import NexoError, RedriveNotFound
from nexo.vocabulary.limits import LEASE_BITS, REDRIVES_KEPT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.context import Context
    from nexo.engine.queue_actor import QueueActor

    Task: TypeAlias = "MoveTask | EndedTask | ChosenTask"
    AnyTask = TypeVar("AnyTask", MoveTask, ChosenTask)
    Start = Callable[[str, str | None, float | None, Resumed | None], Awaitable[MoveTask]]


_KEPT_BITS = 24  # redrives that the catalog has counted are fewer


class EndedTask:
    """A redrive that ended in an earlier life of the broker; it looks like one of this life."""

    verb = "redrive"

    def __init__(self, source: QueueActor, noted: MoveNoted) -> None:
        self.source = source
        self.to = noted.to
        self.rate = noted.rate
        self.started_ms = noted.started_ms
        self.status = noted.status
        self.failure: BaseException | None = _failure(noted)
        self._progress = Progress(noted.moved, noted.total, noted.skipped, finished=True)
        self.finished: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self.failure is None:
            self.finished.set_result(noted.moved)
        else:
            self.finished.set_exception(self.failure)
            self.finished.exception()  # why it ended is asked for later, or never

    def progress(self) -> Progress:
        return self._progress

    def cancel(self) -> None:
        """It has ended."""


class MoveTasks:
    def __init__(
        self,
        context: Context,
        start: Start,
        new_half: Callable[[], int],
        numbered: tuple[int, int] = (0, 1),
    ) -> None:
        """`new_half` draws 64 bits: two of them are an id. Numbers have the first of `numbered` as
        their remainder when they are divided by the second: so they tell the shard."""
        self._context = context
        self._remainder, self._divisor = numbered
        self._start = start
        self._new_half = new_half
        self._tasks: dict[int, Task] = {}
        self._ids: dict[int, str] = {}
        self._running: dict[asyncio.Task[int], None] = {}  # those without a number too
        self._is_closing = False
        self._kept = 0  # the last number of a task that the catalog does not know

    async def begin(self, name: str, to: str | None, rate: float | None) -> int:
        """Begin a redrive; returns its number, once it is on disk that there is one."""
        task = await self._start(name, to, rate, None)
        catalog = self._context.catalog
        number = catalog.catalog.next_move
        # It may be that of one whose queue is gone.
        while number in self._tasks or number % self._divisor != self._remainder:
            number += 1
        bits = self._new_half() << 64 | self._new_half()
        self._follow(number, str(UUID(int=bits, version=4)), task)
        self._note(number, task)
        try:
            await catalog.durable()
        except NexoError:  # then there is none, for nobody was told of it
            del self._tasks[number], self._ids[number]
            task.finished.cancel()
            raise
        return number

    async def resume(self) -> None:
        """Go on with what an earlier life of the broker began."""
        catalog = self._context.catalog.catalog
        for noted in sorted(catalog.moves.values(), key=lambda each: each.number):
            defined = catalog.definition(noted.source)
            source = self._context.queues.actors.get(defined.name) if defined else None
            if source is None:
                continue
            if noted.status == "RUNNING":
                resumed = Resumed(noted.started_ms, noted.total, noted.moved)
                try:
                    task = await self._start(source.name, noted.to, noted.rate, resumed)
                except NexoError as error:
                    self._keep(source, _ended(noted, "FAILED", error))
                else:
                    self._follow(noted.number, noted.id, task)
            else:
                status = "CANCELLED" if noted.status == "CANCELLING" else noted.status
                self._keep(source, _ended(noted, status))

    def keep(self, task: ChosenTask) -> int:
        """Give a task that is under way its number. It is above those that the catalog counts, and
        another one in each life of the broker: an old number must not stand for a new task."""
        epoch = self._context.first_lease >> LEASE_BITS
        number = (epoch << _KEPT_BITS) + self._kept + 1
        number += (self._remainder - number) % self._divisor
        self._kept = number - (epoch << _KEPT_BITS)
        self._tasks[number] = task
        self._forget_ended()
        return number

    def started(self, task: AnyTask) -> AnyTask:
        """A redrive is under way: it ends with the broker at the latest."""
        self._running[task.finished] = None
        task.finished.add_done_callback(lambda ended: self._running.pop(ended, None))
        return task

    async def close(self) -> None:
        """Stop all of them where they are; what was moved stays moved, and a start goes on."""
        self._is_closing = True
        running = list(self._running)
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def progress(self, number: int, wait_ms: int = 0) -> Progress:
        """How far it is; waits up to `wait_ms` for its end. Raises what stopped it."""
        task = self.find(number)
        if wait_ms > 0:
            await asyncio.wait([task.finished], timeout=wait_ms / 1000)
        if task.finished.done() and not task.finished.cancelled():
            task.finished.result()
        return task.progress()

    def all_of(self, source: QueueActor) -> list[tuple[int, Task]]:
        """The tasks of a queue, the latest first."""
        found = [(number, task) for number, task in self._tasks.items() if task.source is source]
        return found[::-1]

    def of(self, source: QueueActor) -> list[tuple[int, MoveTask | EndedTask]]:
        """Its redrives of all messages, the latest first."""
        return [
            (number, task)
            for number, task in self.all_of(source)
            if not isinstance(task, ChosenTask)
        ]

    def id_of(self, number: int) -> str:
        """What nobody else is called, before or after a start."""
        return self._ids[number]

    def source_of(self, number: int) -> str:
        """The queue that a redrive takes messages from."""
        return self.find(number).source.name

    def cancel(self, number: int) -> Progress:
        task = self.find(number)
        task.cancel()
        if not task.finished.done() and not isinstance(task, ChosenTask):
            self._note(number, task)
        return task.progress()

    def find(self, number: int) -> Task:
        task = self._tasks.get(number)
        if task is None:
            raise RedriveNotFound(f"there is no redrive {number}", "it may have ended long ago")
        return task

    # -- Inside -------------------------------------------------------------------------------

    def _follow(self, number: int, task_id: str, task: MoveTask) -> None:
        self._tasks[number], self._ids[number] = task, task_id
        task.on_step = partial(self._note, number, task)
        task.finished.add_done_callback(lambda _: self._ended(number, task))
        self._forget_ended()

    def _forget_ended(self) -> None:
        if len(self._tasks) > REDRIVES_KEPT:
            ended = [each for each, old in self._tasks.items() if old.finished.done()]
            for each in ended[:1]:
                del self._tasks[each]
                self._ids.pop(each, None)

    def _ended(self, number: int, task: MoveTask) -> None:
        """One that is stopped with the broker has not ended."""
        if not self._is_closing and self._context.refusal is None and number in self._ids:
            self._note(number, task)

    def _keep(self, source: QueueActor, noted: MoveNoted) -> None:
        self._tasks[noted.number], self._ids[noted.number] = EndedTask(source, noted), noted.id
        catalog = self._context.catalog
        if self._context.refusal is None and noted != catalog.catalog.moves[noted.number]:
            catalog.catalog.note_move(noted)
            catalog.enlist()

    def _note(self, number: int, task: MoveTask | EndedTask, moved: int | None = None) -> None:
        """Have the next commit say how far it is."""
        progress, failure = task.progress(), task.failure
        noted = MoveNoted(
            number=number,
            id=self._ids[number],
            source=task.source.owner,
            to=task.to,
            rate=task.rate,
            started_ms=task.started_ms,
            total=progress.total,
            moved=progress.moved if moved is None else moved,
            skipped=progress.skipped,
            status=task.status,
        )
        catalog = self._context.catalog
        catalog.catalog.note_move(_ended(noted, noted.status, failure))
        catalog.enlist()


def _ended(noted: MoveNoted, status: str, failure: BaseException | None = None) -> MoveNoted:
    told = {"status": status}
    if isinstance(failure, NexoError):
        told |= {"error_code": failure.code, "error_message": failure.message}
        told["error_hint"] = failure.hint
    elif failure is not None:
        told |= {"error_code": "error", "error_message": str(failure)}
    return replace(noted, **told)


def _failure(noted: MoveNoted) -> NexoError | None:
    """What stopped it, as it was raised then."""
    if noted.status != "FAILED":
        return None
    kinds = {each.code: each for each in vars(errors).values() if _is_error(each)}
    kind = kinds.get(noted.error_code, NexoError)
    return kind(noted.error_message, noted.error_hint)


def _is_error(each: object) -> TypeGuard[type[NexoError]]:
    return isinstance(each, type) and issubclass(each, NexoError)
