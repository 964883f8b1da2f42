"""Messages that come in one turn of the event loop, each by a request of its own: a queue gets them
as one batch, so that what a push costs is paid once for all of them. They are nothing but bodies,
and are answered in the JSON protocol."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from nexo.engine.committer import call_back
from nexo.engine.outcome import outcome_of
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import InvalidArgument, QueueFull
from nexo.vocabulary.identity import first_seq, id_beginning, priority_of
from nexo.vocabulary.sqs import digest

if TYPE_CHECKING:
    from nexo.doors.sqs_http.call import Call
    from nexo.engine.queue_actor import QueueActor

    Send = tuple[bytes, Call]

GATHERED_BYTES_MAX = 16 * 1024  # of a message: what is larger is not copied to save a push


class Sends:
    def __init__(self) -> None:
        self._gathered: dict[QueueActor, list[Send]] = {}

    def add(self, actor: QueueActor, body: bytes, call: Call) -> None:
        """Send it with the others of this turn, and answer the call then."""
        sends = self._gathered.get(actor)
        if sends is None:
            if not self._gathered:
                asyncio.get_running_loop().call_soon(self._push_all)
            sends = self._gathered[actor] = []
        sends.append((body, call))

    def _push_all(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for actor, sends in gathered.items():
            if len(sends) == 1:
                _push_one(actor, sends[0])
                continue
            future, failure = outcome_of(actor.push, batch_of([body for body, _ in sends]))
            if failure is None:
                call_back(future, partial(_pushed, actor, sends))
            else:
                _pushed(actor, sends, None, failure)


def _pushed(
    actor: QueueActor, sends: list[Send], accepted: Any, error: BaseException | None
) -> None:
    if error is None:
        incarnation = actor.incarnation
        beginning = id_beginning(incarnation, 0).encode()
        for (body, call), seq in zip(sends, accepted.seqs(), strict=True):
            call.done(_sent(incarnation, beginning, body, seq))
    elif isinstance(error, QueueFull | InvalidArgument):  # all were refused, for the sake of some
        for send in sends:
            _push_one(actor, send)
    else:
        for _, call in sends:
            call.told(None, error)


def _push_one(actor: QueueActor, send: Send) -> None:
    body, call = send
    incarnation = actor.incarnation
    beginning = id_beginning(incarnation, 0).encode()
    call.then = partial(_sent, incarnation, beginning, body)
    future, failure = outcome_of(actor.push_one, body)
    if failure is None:
        call_back(future, call.told)
    else:
        call.told(None, failure)


def _sent(incarnation: int, beginning: bytes, body: bytes, seq: int) -> bytes:
    """What SendMessage answers, written out: there is nothing in it that JSON would escape.
    `beginning` is that of the ids of priority 0, which a message that is nothing but a body has;
    only one that it repeats may have another."""
    priority = priority_of(seq)
    if priority:
        beginning = id_beginning(incarnation, priority).encode()
        seq -= first_seq(priority)
    return b'{"MD5OfMessageBody":"%b","MessageId":"%b%012x"}' % (
        digest(body).encode(),
        beginning,
        seq,
    )
