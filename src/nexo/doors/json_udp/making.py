"""What a datagram may bring into being: a topic by its first publish, a group by its first member.
No command asks for either by name, so the audit log is told here, where it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.doors.json_udp.access import DOOR
from nexo.doors.json_udp.groups import queue_of
from nexo.doors.json_udp.naming import topic_name
from nexo.vocabulary.errors import InvalidArgument, RateLimited
from nexo.vocabulary.limits import UDP_RETENTION_MESSAGES, UDP_TOPICS_MAX
from nexo.vocabulary.settings import TopicSettings
from nexo.vocabulary.start import EARLIEST

if TYPE_CHECKING:
    from nexo.access.guard import Guard, Telling
    from nexo.doors.json_udp.datagram import Command
    from nexo.doors.json_udp.strangers import Asker
    from nexo.engine.engine import Engine
    from nexo.engine.topic_actor import TopicActor

SETTINGS = TopicSettings(retention_messages=UDP_RETENTION_MESSAGES)


class Making:
    def __init__(self, engine: Engine, guard: Guard) -> None:
        self._engine = engine
        self._guard = guard

    async def topic(self, name: str, asker: Asker) -> TopicActor:
        """A topic, created if it is not there."""
        engine = self._engine
        actor = engine.topics.get(name)
        if actor is not None:
            return actor
        if len(engine.topics) >= UDP_TOPICS_MAX:  # not told: a flood would drown the log
            raise RateLimited(f"there are {UDP_TOPICS_MAX} topics already", "delete some")
        with self._tell(asker, "create_topic", name):
            return await engine.create_topic(name, SETTINGS)

    async def group(self, command: Command, asker: Asker) -> None:
        """The group is there, and gets what the topic keeps and what is published from now on."""
        topic = await self.topic(topic_name(command.topic), asker)
        queue = queue_of(command)
        if queue in topic.info().bound_queues:
            return
        if queue in self._engine.queues:
            raise InvalidArgument(f"queue {queue!r} is not a group of topic {topic.name!r}")
        with self._tell(asker, "bind", f"{topic.name} {queue}"):
            await self._engine.bind(topic.name, queue, start=EARLIEST, create=True)

    def _tell(self, asker: Asker, action: str, resource: str) -> Telling:
        return self._guard.tell(asker.caller, str(asker.address[0]), DOOR, action, resource)
