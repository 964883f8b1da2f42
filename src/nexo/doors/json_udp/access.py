"""Which operation a datagram is; each shows its token anew, and `access.operations` has what each
needs.

publish                         `publish`, also where that creates the topic
subscribe, unsubscribe, get     `read`
the same with a group, ack      `pop`, on the queue of the group
the first of a group            besides, `bind`; and `create_topic` if there is none
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.access.caller import ANYONE
from nexo.access.operations import OPERATIONS, Named, check
from nexo.doors.json_udp.datagram import Action
from nexo.doors.json_udp.groups import group_queue, topic_name
from nexo.vocabulary.errors import Forbidden, RateLimited, Unauthorized

if TYPE_CHECKING:
    from nexo.access.caller import Caller
    from nexo.access.guard import Guard, Telling
    from nexo.doors.json_udp.addresses import Address
    from nexo.doors.json_udp.datagram import Command
    from nexo.engine.engine import Engine

DOOR = "udp"
_PUBLISH, _READ, _POP = (OPERATIONS[name] for name in ("publish", "read", "pop"))
_CREATE_TOPIC, _BIND = OPERATIONS["create_topic"], OPERATIONS["bind"]


class Access:
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
            check(caller, _PUBLISH, Named(topic=topic))
        elif command.group is None:
            check(caller, _READ, Named(topic=topic))
        else:
            named = Named(queue=group_queue(topic, command.group), topic=topic)
            check(caller, _POP, named)
            begins = command.action in (Action.SUBSCRIBE, Action.GET)
            if begins and named.queue not in self._engine.queues:
                self._check_first(caller, named, address)
        return caller

    def audited(self, caller: Caller, address: Address, action: str, resource: str) -> Telling:
        """Around what a datagram brings about: it goes to the audit log, however it ends."""
        return self._guard.tell(caller, str(address[0]), DOOR, action, resource)

    def _check_first(self, caller: Caller, named: Named, address: Address) -> None:
        """The first of a group brings it about. Who may not is told of here, who may where it is
        done."""
        try:
            if named.topic not in self._engine.topics:
                check(caller, _CREATE_TOPIC, named)
            check(caller, _BIND, named)
        except Forbidden:
            with self.audited(caller, address, _BIND.name, f"{named.topic} {named.queue}"):
                raise
