"""Publishes: all that one turn of the event loop read for a topic is one batch, and everybody in it
is answered when it is on disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nexo.doors.json_udp.datagram import Action
from nexo.doors.json_udp.groups import topic_name
from nexo.doors.json_udp.replies import confirmation, encode_refusal, refusal_of, with_ref
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import MessageTooLarge, NexoError, RateLimited
from nexo.vocabulary.limits import UDP_PAYLOAD_BYTES_MAX, UDP_UNCONFIRMED_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.doors.json_udp.addresses import Asker
    from nexo.doors.json_udp.datagram import Command, Ref
    from nexo.doors.json_udp.door import Outbox
    from nexo.engine.engine import Engine
    from nexo.engine.topic_actor import TopicActor

    Spawn = Callable[..., None]  # a coroutine function and its arguments
    Create = Callable[[str, Asker], Awaitable[TopicActor]]


class Gathered:
    """Messages for one topic, and who waits for them, in the order in which they came."""

    __slots__ = ("askers", "bodies", "refs", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic  # as datagrams name it
        self.bodies: list[bytes] = []
        self.askers: list[Asker] = []
        self.refs: dict[int, Ref] = {}  # by place, for the few that have one

    def add(self, body: bytes, asker: Asker, ref: Ref | None) -> None:
        if ref is not None:
            self.refs[len(self.askers)] = ref
        self.bodies.append(body)
        self.askers.append(asker)


class Publishes:
    def __init__(
        self,
        engine: Engine,
        outbox: Outbox,
        spawn: Spawn,
        create: Create,
        unconfirmed_max: int = UDP_UNCONFIRMED_MAX,
    ) -> None:
        self._engine = engine
        self._outbox = outbox
        self._spawn = spawn
        self._create_topic = create
        self._unconfirmed_max = unconfirmed_max
        self._gathered: dict[str, Gathered] = {}
        self._creating: dict[str, list[Gathered]] = {}  # what waits for its topic to be created
        self._drained: asyncio.Future[None] | None = None
        self.unconfirmed = 0

    def add(self, command: Command, asker: Asker) -> None:
        """It goes with the next flush. Refused while too much waits for the disk already."""
        if self.unconfirmed >= self._unconfirmed_max or self._engine.committer.congested:
            raise RateLimited("the disk is too slow for this load", "try again")
        self.unconfirmed += 1
        gathered = self._gathered.get(command.topic)
        if gathered is None:
            gathered = self._gathered[command.topic] = Gathered(command.topic)
        gathered.add(command.payload, asker, command.ref)

    def flush(self) -> None:
        """Publish what was gathered in this turn."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, {}
        for each in gathered.values():
            name = topic_name(each.topic)
            waiting = self._creating.get(name)
            if waiting is not None:
                waiting.append(each)
            elif (actor := self._engine.topics.get(name)) is not None:
                self._publish(actor, each)
            else:
                self._creating[name] = [each]
                self._begin(name)

    async def drain(self) -> None:
        """Wait until everybody is answered."""
        while self.unconfirmed:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def _begin(self, name: str) -> None:
        try:
            self._spawn(self._create, name)
        except NexoError as error:
            self._refuse_all(name, error)

    async def _create(self, name: str) -> None:
        """Create a topic, then publish what has come for it in the meantime, in order."""
        try:
            actor = await self._create_topic(name, self._creating[name][0].askers[0])
        except NexoError as error:
            self._refuse_all(name, error)
            return
        for each in self._creating.pop(name):
            self._publish(actor, each)

    def _refuse_all(self, name: str, error: NexoError) -> None:
        for each in self._creating.pop(name):
            self._refuse(each, error)

    def _publish(self, actor: TopicActor, gathered: Gathered) -> None:
        limit = actor.topic.settings.max_message_bytes
        if limit < UDP_PAYLOAD_BYTES_MAX:
            gathered = self._sift(gathered, limit)
            if not gathered.bodies:
                return
        try:
            durable = actor.publish(batch_of(gathered.bodies))
        except NexoError as error:
            self._refuse(gathered, error)
            return
        gathered.bodies = []  # the batch has them
        durable.add_done_callback(lambda done: self._published(done, gathered))

    def _published(self, done: asyncio.Future[tuple[int, int]], gathered: Gathered) -> None:
        if done.cancelled():
            self._answered(gathered)
            return
        error = done.exception()
        if error is None:
            self._confirm(gathered)
        elif isinstance(error, NexoError):
            self._refuse(gathered, error)
        else:
            self._answered(gathered)
            raise error

    def _confirm(self, gathered: Gathered) -> None:
        self._answered(gathered)
        reply = confirmation(Action.PUBLISH, gathered.topic)
        if not gathered.refs:
            self._outbox.send_all(reply, gathered.askers)
            return
        for place, asker in enumerate(gathered.askers):
            ref = gathered.refs.get(place)
            self._outbox.send(reply if ref is None else with_ref(reply, ref), asker)

    def _refuse(self, gathered: Gathered, error: NexoError) -> None:
        self._answered(gathered)
        for place, asker in enumerate(gathered.askers):
            refusal = refusal_of(error, gathered.refs.get(place))
            self._outbox.send(encode_refusal(refusal), asker)

    def _answered(self, gathered: Gathered) -> None:
        self.unconfirmed -= len(gathered.askers)
        if not self.unconfirmed and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _sift(self, gathered: Gathered, bytes_max: int) -> Gathered:
        """One that is too large for its topic must not take the others with it."""
        fit, large = Gathered(gathered.topic), Gathered(gathered.topic)
        for place, (body, asker) in enumerate(zip(gathered.bodies, gathered.askers, strict=True)):
            side = fit if len(body) <= bytes_max else large
            side.add(body, asker, gathered.refs.get(place))
        self._refuse(
            large,
            MessageTooLarge(
                f"the message is too large: this topic takes at most {bytes_max} bytes"
            ),
        )
        return fit
