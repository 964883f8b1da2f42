"""The supervisor: what happens when the journal or an actor fails, and the idle work otherwise.

After a failed commit nothing more is confirmed, and everything is taken back to what the journal
holds: what was not confirmed did not happen. What is safe goes on where it can (pops, and acks
if the journal has a reserve); pushes are refused. The disk is tried now and then, and everything
resumes by itself.

An actor that raises what it never should is taken back to what the journal holds, alone if no other
depends on it in the same commit, else with everything. One that does so again and again is out of
service for a while: every call on it is refused, and the others go on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from nexo.engine.outcome import outcome_of, refusal_of, report
from nexo.journal.port import Commit
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import NexoError, NotReady
from nexo.vocabulary.limits import (
    ACTOR_FAILURES_MAX,
    ACTOR_FAILURES_MS,
    DISK_PROBE_MS,
    OUT_OF_SERVICE_MS,
    TIDY_AGAIN_MS,
    TIDY_MS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.committer import Participant
    from nexo.engine.context import Context


class Loader(Protocol):
    """What brings the state back that the journal holds: the engine."""

    def load_all(self) -> None:
        """Everything, from the open journal; called at the desk."""

    def suspend_all(self, error: NexoError) -> None:
        """No state is to be used until everything was loaded."""

    def read_one(self, actor: Participant) -> Any:
        """The state of one actor; called at the desk."""

    def adopt_one(self, actor: Participant, state: Any) -> None:
        """The actor goes on from that state."""

    def can_be_alone(self, actor: Participant) -> bool:
        """Whether the actor can be loaded without the others."""

    def resume(self) -> None:
        """Payloads are taken again, or an actor is back: go on with what had to wait for it."""


class Supervisor:
    def __init__(self, context: Context, loader: Loader) -> None:
        self._context = context
        self._loader = loader
        self._failures: dict[int, list[int]] = {}  # when actors failed, by owner
        self._probe: asyncio.Task[None] | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._commits_seen = 0
        self._closed = False
        self._loaded = True  # the state is what the journal holds

    def begin(self) -> None:
        self._tidy_later(TIDY_MS)

    def close(self) -> None:
        self._closed = True
        if self._probe is not None:
            self._probe.cancel()
        if self._tidying is not None:
            self._tidying.cancel()

    # -- An actor fails -----------------------------------------------------------------------

    def guard(self, actor: Participant, step: Callable[[], None]) -> None:
        """Do something in the name of an actor that nobody waits for."""
        _, error = outcome_of(step)
        if error is not None:
            self.actor_failed(actor, error)

    def actor_failed(self, actor: Participant, error: Exception) -> NexoError:
        """Its state cannot be trusted: go back to the journal. Returns what whoever waits for it
        is told."""
        committer = self._context.committer
        told = NotReady(f"{actor.label} failed and is being reloaded", "try again")
        if self._closed:
            report(f"{actor.label} failed while the broker was stopping", error)
            return told
        report(f"{actor.label} failed and is loaded again from the journal", error)
        if not isinstance(error, NotReady):  # else it only waits for another that has failed
            self._count(actor)
        if self._probe is not None or committer.is_excluded(actor):
            return told  # it is being loaded already
        actor.suspend(told)
        if committer.is_tied(actor) or not self._loader.can_be_alone(actor):
            committer.condemn(
                NotReady("the broker is reloading after an internal error", "try again")
            )
        else:
            committer.exclude(actor, told)
            self._load_alone(actor)
        return told

    def _load_alone(self, actor: Participant) -> None:
        committer = self._context.committer

        def loaded(state: Any, error: BaseException | None) -> None:
            if not committer.is_excluded(actor):
                return  # everything was loaded meanwhile, or is about to be
            if error is not None:
                committer.condemn(refusal_of(error))
                return
            committer.readmit(actor)
            self.guard(actor, lambda: self._loader.adopt_one(actor, state))

        self._context.desk.submit(lambda: self._loader.read_one(actor), loaded, first=True)

    def _count(self, actor: Participant) -> None:
        """Too many failures within a short time: the actor is out of service."""
        context, owner = self._context, actor.owner
        now_ms = context.clock.now_ms()
        times = [at for at in self._failures.get(owner, ()) if at > now_ms - ACTOR_FAILURES_MS]
        self._failures[owner] = [*times, now_ms]
        if len(self._failures[owner]) >= ACTOR_FAILURES_MAX and owner not in context.out_of_service:
            del self._failures[owner]
            context.out_of_service[owner] = NotReady(
                f"{actor.label} is out of service after {ACTOR_FAILURES_MAX} internal errors",
                "the broker tries again within a minute; see its log for the errors",
            )
            loop = asyncio.get_running_loop()
            loop.call_later(OUT_OF_SERVICE_MS / 1000, self._try_again, actor)

    def _try_again(self, actor: Participant) -> None:
        self._context.out_of_service.pop(actor.owner, None)
        if self._closed:
            return
        if self._probe is None and not self._context.committer.is_excluded(actor):
            self.guard(actor, actor.reopen)
            self._loader.resume()

    # -- The journal fails --------------------------------------------------------------------

    def give_up(self, refusal: NexoError) -> None:
        """What was not confirmed did not happen: go back to the journal."""
        context = self._context
        context.refusal = refusal
        context.committer.stop()
        context.committer.abandon(refusal)
        context.memory.clear(refusal)
        if isinstance(refusal, NotReady):  # nothing of what is in memory is to be relied on
            self._loader.suspend_all(refusal)
        if self._probe is None and not self._closed:
            self._probe = asyncio.get_running_loop().create_task(self._recover())
        else:
            self._loaded = False

    async def _recover(self) -> None:
        """Load anew at once; then try the disk until it takes payloads again."""
        self._loaded = False
        while not self._closed:
            try:
                if not self._loaded:
                    await self._reload()
                await self._context.desk.call(self._try_disk)
            except Exception as error:
                if not isinstance(error, NexoError):
                    report("the journal could not be loaded again", error)
                if self._loaded:
                    self._loaded = await self._is_usable()
                await asyncio.sleep(DISK_PROBE_MS / 1000)
                continue
            if self._loaded:
                break
        self._probe = None
        self._context.refusal = None
        self._loader.resume()

    async def _reload(self) -> None:
        """Open the journal again and load from it in one go: the journal takes one call at a time,
        and the next that waits at the desk must find the new state. So until then no commit may
        come to the desk: it would be of the state that is given up, and written behind the new
        one's back. Acks could bring one, which go on while only the disk is full."""
        context = self._context
        assert context.refusal is not None
        context.committer.stop()
        context.committer.abandon(context.refusal)
        loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def reopened(_: None, error: BaseException | None) -> None:
            if error is None:
                _, error = outcome_of(self._loader.load_all)
            self._loaded = error is None
            if loaded.done():
                return
            if error is None:
                loaded.set_result(None)
            else:
                loaded.set_exception(error)

        context.desk.submit(self._reopen, reopened)
        await loaded

    async def _is_usable(self) -> bool:
        """A full disk leaves the journal usable; after any other fault it has to be reopened."""
        try:
            await self._context.desk.call(self._context.journal.last_row)
        except NexoError:
            return False
        return self._loaded

    def _reopen(self) -> None:
        self._context.journal.close()
        self._context.boot(self._context.journal.open())

    def _try_disk(self) -> None:
        """Store a row and drop it in the same breath: refused while there is no room."""
        row = next(self._context.row_numbers)
        self._context.journal.commit(Commit([], [(row, batch_of([b""]))], [row], []))

    def _tidy_later(self, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._tidying = loop.call_later(wait_ms / 1000, self._tidy)

    def _tidy(self) -> None:
        """Idle work, only while nothing is committed. On a full disk it is urgent: it gives back
        the room that consumers make, and that ends the refusal."""
        self._context.memory.give_back()
        committer = self._context.committer
        busy = committer.commits != self._commits_seen or not committer.idle
        self._commits_seen = committer.commits
        if (busy and self._context.refusal is None) or not self._loaded:
            self._tidy_later(TIDY_MS)
            return

        def done(more: bool, error: BaseException | None) -> None:
            if error is not None:  # what cannot be read either must not wait for a commit to fail
                self.give_up(refusal_of(error))
            if not self._closed:
                self._tidy_later(TIDY_AGAIN_MS if more and error is None else TIDY_MS)

        self._context.desk.submit(self._context.journal.tidy, done, is_long=True)
