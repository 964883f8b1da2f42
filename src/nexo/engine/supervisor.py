"""The supervisor: what happens when the journal fails, and the idle work when it does not.

After a failed commit nothing more is confirmed, and everything is taken back to what the journal
holds: what was not confirmed did not happen. What is safe goes on where it can (pops, and acks
if the journal has a reserve); pushes are refused. The disk is tried now and then, and everything
resumes by itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nexo.journal.port import Commit
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import NexoError, ReadOnly

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.context import Context

PROBE_MS = 1_000  # how often a failed or full disk is tried again
TIDY_MS = 1_000  # how often idle work is looked for …
TIDY_AGAIN_MS = 10  # … and how soon after a step that left more


class Supervisor:
    def __init__(
        self, context: Context, load: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._context = context
        self._load = load
        self._resume = resume
        self._probe: asyncio.Task[None] | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._commits_seen = 0
        self._closed = False

    def begin(self) -> None:
        self._tidy_later(TIDY_MS)

    def close(self) -> None:
        self._closed = True
        if self._probe is not None:
            self._probe.cancel()
        if self._tidying is not None:
            self._tidying.cancel()

    def commit_failed(self, error: BaseException) -> None:
        """What was not confirmed did not happen: go back to the journal."""
        if not isinstance(error, NexoError):
            raise error
        refusal = error if isinstance(error, ReadOnly) else ReadOnly(error.message, error.hint)
        context = self._context
        context.refusal = refusal
        context.committer.stop()
        context.committer.abandon(refusal)
        context.memory.clear(refusal)
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
            except NexoError:
                if self._loaded:
                    self._loaded = await self._is_usable()
                await asyncio.sleep(PROBE_MS / 1000)
                continue
            if self._loaded:
                break
        self._probe = None
        self._context.refusal = None
        self._resume()

    async def _reload(self) -> None:
        """Open the journal again and load from it in one go: the journal takes one call at a time,
        and the next that waits at the desk must find the new state."""
        loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def reopened(_: None, error: BaseException | None) -> None:
            try:
                if error is not None:
                    raise error
                self._load()
            except NexoError as caught:
                if not loaded.done():
                    loaded.set_exception(caught)
                return
            self._loaded = True
            if not loaded.done():
                loaded.set_result(None)

        self._context.desk.submit(self._reopen, reopened)
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
        if busy and self._context.refusal is None:
            self._tidy_later(TIDY_MS)
            return

        def done(more: bool, error: BaseException | None) -> None:
            if error is not None:  # what cannot be read either must not wait for a commit to fail
                self.commit_failed(error)
            if not self._closed:
                self._tidy_later(TIDY_AGAIN_MS if more and error is None else TIDY_MS)

        self._context.desk.submit(self._context.journal.tidy, done)


def outcome_of(job: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """The result of a call, or what it raised: the one place that catches everything, because
    whoever waits for the call must be told, whatever it was."""
    try:
        return job(), None
    except Exception as caught:
        return None, caught
