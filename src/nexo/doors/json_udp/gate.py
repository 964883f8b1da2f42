"""Who may do what: each datagram shows its token anew.

publish                         push, on the topic; also where that creates the topic
subscribe, unsubscribe, get     pop or peek, on the topic
the same with a group, ack      pop, on the queue of the group
the first of a group            besides, manage on that queue, and on the topic pop, peek or
                                manage, as every binding; manage if it is to be created
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.access.caller import ANYONE
from nexo.access.permissions import READ
from nexo.access.permissions import Action as Permitted
from nexo.doors.json_udp.datagram import Action
from nexo.doors.json_udp.naming import group_queue, topic_name
from nexo.vocabulary.errors import Forbidden, RateLimited, Unauthorized

if TYPE_CHECKING:
    from nexo.access.caller import Caller
    from nexo.access.guard import Guard
    from nexo.doors.json_udp.datagram import Command
    from nexo.doors.json_udp.strangers import Address
    from nexo.engine.engine import Engine

DOOR = "udp"
_BIND = READ | {Permitted.MANAGE}


class Gate:
    def __init__(self, guard: Guard, engine: Engine) -> None:
        self._guard = guard
        self._engine = engine

    def admit(self, command: Command, address: Address) -> Caller:
        """Who sent this, by its token; `ANYONE` without access control. Raises `Unauthorized` or
        `Forbidden`."""
        if not self._guard.is_required:
            return ANYONE
        try:
            caller = self._guard.admit(command.token, str(address[0]), DOOR)
        except RateLimited as error:
            # Beyond its limit the guard does not say why any more; here it is said in any case.
            raise Unauthorized(error.message, error.hint) from None
        topic = topic_name(command.topic)
        if command.action is Action.PUBLISH:
            caller.check(Permitted.PUSH, topic)
        elif command.group is None:
            caller.check_any(READ, topic)
        else:
            queue = group_queue(topic, command.group)
            caller.check(Permitted.POP, queue)
            begins = command.action in (Action.SUBSCRIBE, Action.GET)
            if begins and queue not in self._engine.queues:
                self._check_first(caller, topic, queue, address)
        return caller

    def _check_first(self, caller: Caller, topic: str, queue: str, address: Address) -> None:
        """The first of a group brings it about. Who may not is told of here, who may where it is
        done."""
        is_there = topic in self._engine.topics
        try:
            caller.check_any(_BIND if is_there else {Permitted.MANAGE}, topic)
            caller.check(Permitted.MANAGE, queue)
        except Forbidden:
            with self._guard.tell(caller, str(address[0]), DOOR, "bind", f"{topic} {queue}"):
                raise
