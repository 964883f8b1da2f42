"""Messages that come in one turn of the event loop, each by a request of its own: a queue gets them
as one batch, so that what a push costs is paid once for all of them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from nexo.engine.committer import call_back
from nexo.engine.outcome import outcome_of
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import InvalidArgument, QueueFull

if TYPE_CHECKING:
    from nexo.engine.committer import Told
    from nexo.engine.queue_actor import QueueActor

GATHERED_BYTES_MAX = 16 * 1024  # of a message: what is larger is not copied to save a push


class Send:
    """One message, which is nothing but a body. `told` gets its number once it is on disk, or what
    went wrong."""

    __slots__ = ("body", "told")

    def __init__(self, body: bytes, told: Told) -> None:
        self.body = body
        self.told = told


class Sends:
    def __init__(self) -> None:
        self._gathered: dict[QueueActor, list[Send]] = {}

    def add(self, actor: QueueActor, body: bytes, told: Told) -> None:
        """Send it with the others of this turn."""
        sends = self._gathered.get(actor)
        if sends is None:
            if not self._gathered:
                asyncio.get_running_loop().call_soon(self._push_all)
            sends = self._gathered[actor] = []
        sends.append(Send(body, told))

    def _push_all(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for actor, sends in gathered.items():
            if len(sends) == 1:
                _push_one(actor, sends[0])
                continue
            future, failure = outcome_of(actor.push, batch_of([each.body for each in sends]))
            if failure is None:
                call_back(future, partial(_pushed, actor, sends))
            else:
                _pushed(actor, sends, None, failure)


def _pushed(
    actor: QueueActor, sends: list[Send], accepted: Any, error: BaseException | None
) -> None:
    if error is None:
        for send, seq in zip(sends, accepted.seqs(), strict=True):
            send.told(seq, None)
    elif isinstance(error, QueueFull | InvalidArgument):  # all were refused, for the sake of some
        for send in sends:
            _push_one(actor, send)
    else:
        for send in sends:
            send.told(None, error)


def _push_one(actor: QueueActor, send: Send) -> None:
    future, failure = outcome_of(actor.push_one, send.body)
    if failure is None:
        call_back(future, send.told)
    else:
        send.told(None, failure)
