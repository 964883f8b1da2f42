"""SNS as a service of the query protocol: finds the action of a request, calls it, and answers.

A Publish comes from the front of the SQS API, which has read it and knows who calls, to here; then
`publish` hands it to the actor of the topic, and the next commit brings it to every queue that is
subscribed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.access.guard import Guard
from nexo.access.operations import OPERATIONS, On
from nexo.doors.sns_http import publish, subscriptions, topics
from nexo.doors.sns_http.errors import SnsError, no_topic, sns_error
from nexo.doors.sns_http.form import given_by, xml_error, xml_result
from nexo.doors.sns_http.names import Names, Place, is_reserved
from nexo.doors.sns_http.publish import Sequence
from nexo.vocabulary import sqs
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.access.operations import Operation
    from nexo.doors.http.query import Asked
    from nexo.doors.sns_http.form import Given, Result
    from nexo.engine.engine import Engine
    from nexo.engine.topic_actor import TopicActor

    Handler = Callable[["Call", Given], Awaitable[Result | None]]

DOOR = "sns"
VERSION = "2010-03-31"
_READS = ("Get", "List")
_NAMED_BY = ("TopicArn", "TargetArn", "SubscriptionArn", "ResourceArn", "Name")


class Action:
    """`operation` is what it is in the words of all doors: that says what a caller must be allowed,
    and whether it goes to the audit log."""

    __slots__ = ("handler", "name", "operation")

    def __init__(self, name: str, operation: str, handler: Handler) -> None:
        self.name = name
        self.operation = OPERATIONS[operation]
        self.handler = handler

    @property
    def is_change(self) -> bool:
        return not self.name.startswith(_READS)


class Call:
    """One call of an action: who calls, and the way to the topic that is meant."""

    __slots__ = ("asked", "engine", "names", "operation", "place", "sequence")

    def __init__(
        self, engine: Engine, names: Names, sequence: Sequence, asked: Asked, operation: Operation
    ) -> None:
        self.engine = engine
        self.names = names
        self.sequence = sequence
        self.asked = asked
        self.operation = operation
        self.place = Place(asked.account, asked.region)

    def topic(self, arn: str, parameter: str = "TopicArn") -> TopicActor:
        """The topic that an ARN means, if the caller may do with it what the action does."""
        name = self.names.topic_of(arn, self.place.region, parameter)
        self.check(name)
        return self.named(name)

    def named(self, name: str) -> TopicActor:
        found = self.engine.topics.get(name)
        if found is None or is_reserved(name):
            raise no_topic()
        return found

    def check(self, topic: str, queue: str | None = None) -> None:
        """Raise unless the caller may do what the action does with a topic, and with a queue if
        there is one."""
        rights = self.asked.rights
        if rights.is_bound:
            rights.check_live()
            rights.check_any(self.operation.actions_on(On.TOPIC), topic)
            needed = self.operation.actions_on(On.QUEUE)
            if queue is not None and needed:
                rights.check_any(needed, queue)

    def knows(self, name: str) -> bool:
        """Whether a topic is one of the place that is spoken of, and no secret to the caller."""
        place, _ = self.names.place_of(name)
        return place == self.place and not is_reserved(name) and self.asked.rights.knows(name)


class SnsApi:
    """See `doors.http.query.QueryApi`."""

    def __init__(
        self,
        engine: Engine,
        guard: Guard | None = None,
        *,
        account: str = sqs.DEFAULT_ACCOUNT,
        region: str = sqs.DEFAULT_REGION,
    ) -> None:
        """Without a guard anyone may do everything."""
        self._engine = engine
        self._guard = guard or Guard(engine.wall_ms)
        self._names = Names(account, region)
        self._sequence = Sequence(engine.now_ms)

    def takes(self, service: str | None, fields: dict[str, str]) -> bool:
        if service is not None:
            return service == "sns"
        version = fields.get("Version")
        return version == VERSION or (version is None and fields.get("Action") in ACTIONS)

    async def answer(self, asked: Asked) -> tuple[int, bytes]:
        name = asked.fields.get("Action", "")
        try:
            result = await self._run(name, asked)
        except NexoError as error:
            refused = sns_error(error)
            return refused.status, xml_error(refused, asked.request_id)
        return 200, xml_result(name, result, asked.request_id)

    async def _run(self, name: str, asked: Asked) -> Result | None:
        action = ACTIONS.get(name)
        if action is None:
            raise SnsError(
                "InvalidAction", f"The action {name:.200} is not valid for this endpoint."
            )
        is_required = self._guard.is_required
        if asked.is_link and action.is_change and not is_required:
            raise SnsError(
                "AuthorizationError",
                f"{name} by GET needs an Authorization header, because a link in a web page "
                "could do it as well. Use POST, or sign the request.",
            )
        given = given_by(asked.fields)
        call = Call(self._engine, self._names, self._sequence, asked, action.operation)
        if not (action.operation.is_audited and is_required):
            return await action.handler(call, given)
        resource = next((found for key in _NAMED_BY if (found := asked.fields.get(key))), "")
        with self._guard.tell(asked.rights, asked.peer, DOOR, name, resource):
            return await action.handler(call, given)


# Attributes and tags of a topic are kept with its settings, those of a subscription with its
# binding.
ACTIONS = {
    action.name: action
    for action in (
        Action("ConfirmSubscription", "list_topics", subscriptions.confirm_subscription),
        Action("CreateTopic", "create_topic", topics.create_topic),
        Action("DeleteTopic", "delete_topic", topics.delete_topic),
        Action(
            "GetSubscriptionAttributes", "list_bindings", subscriptions.get_subscription_attributes
        ),
        Action("GetTopicAttributes", "topic_info", topics.get_topic_attributes),
        Action("ListSubscriptions", "list_topics", subscriptions.list_subscriptions),
        Action(
            "ListSubscriptionsByTopic", "list_bindings", subscriptions.list_subscriptions_by_topic
        ),
        Action("ListTagsForResource", "topic_info", topics.list_tags_for_resource),
        Action("ListTopics", "list_topics", topics.list_topics),
        Action("Publish", "publish", publish.publish),
        Action("PublishBatch", "publish", publish.publish_batch),
        Action("SetSubscriptionAttributes", "bind", subscriptions.set_subscription_attributes),
        Action("SetTopicAttributes", "edit_topic", topics.set_topic_attributes),
        Action("Subscribe", "bind", subscriptions.subscribe),
        Action("TagResource", "edit_topic", topics.tag_resource),
        Action("Unsubscribe", "unbind", subscriptions.unsubscribe),
        Action("UntagResource", "edit_topic", topics.untag_resource),
    )
}
