"""One call of an action: who calls, from where, and the way to the queue that is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.doors.sqs_http.errors import missing, no_such_queue

if TYPE_CHECKING:
    import asyncio

    from nexo.access.permissions import Action
    from nexo.doors.sqs_http.addresses import Addresses
    from nexo.doors.sqs_http.callers import Caller
    from nexo.doors.sqs_http.pauses import Pauses
    from nexo.doors.sqs_http.request import Request
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.types import Delivery


class Call:
    __slots__ = ("addresses", "caller", "engine", "is_query", "needs", "pauses", "request", "waits")

    def __init__(
        self,
        engine: Engine,
        addresses: Addresses,
        pauses: Pauses,
        waits: set[asyncio.Task[Delivery]],
        caller: Caller,
        request: Request,
        is_query: bool,
        needs: frozenset[Action],
    ) -> None:
        self.engine = engine
        self.addresses = addresses
        self.pauses = pauses
        self.waits = waits  # long polls, which end when the door closes
        self.caller = caller
        self.request = request
        self.is_query = is_query
        self.needs = needs  # one of these the caller must be allowed

    def queue(self, queue_url: str | None) -> QueueActor:
        """The queue that a request names."""
        if not queue_url:
            raise missing("QueueUrl")
        return self.named(self.addresses.name_of(queue_url, self.caller.place))

    def named(self, name: str) -> QueueActor:
        """The queue of this name, if the caller may do with it what the action does."""
        self.check(name)
        found = self.engine.queues.get(name)
        if found is None:
            raise no_such_queue()
        return found

    def check(self, name: str, needs: frozenset[Action] | None = None) -> None:
        """`needs` are other ones than those of the action, where it names a second queue."""
        rights = self.caller.rights
        if rights.is_bound:
            rights.check_any(needs or self.needs, name)

    def url_of(self, name: str) -> str:
        return self.addresses.url_of(name, self.request.origin)
