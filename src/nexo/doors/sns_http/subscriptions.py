"""Subscriptions: queues that are bound to topics.

A queue of this broker needs no confirmation: who may bind it is known when it is subscribed. So a
subscription is confirmed from the beginning, and there is never a token to confirm one with.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from nexo.doors.sns_http.errors import SnsError, invalid, no_subscription, told
from nexo.doors.sns_http.form import Entries
from nexo.doors.sns_http.topics import PAGE, read_token, written_token
from nexo.engine.listing import steps
from nexo.vocabulary import sqs
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.filter_policy import ATTRIBUTES, BODY, compiled
from nexo.vocabulary.names import FIFO_SUFFIX
from nexo.vocabulary.sns import Subscription, subscription_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.doors.sns_http.app import Call
    from nexo.doors.sns_http.form import Given, Result
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor
    from nexo.vocabulary.changes import Bound

_PROTOCOLS = frozenset(
    {"http", "https", "email", "email-json", "sms", "application", "lambda", "firehose"}
)
_KEPT = frozenset({"DeliveryPolicy", "RedrivePolicy", "SubscriptionRoleArn"})
_NAMES = _KEPT | {"FilterPolicy", "FilterPolicyScope", "RawMessageDelivery"}
_NATIVE = Subscription(raw=True)  # a queue that was bound by other means gets messages as they are


async def subscribe(call: Call, given: Given) -> Result:
    topic_name = call.names.topic_of(given.needed("TopicArn"), call.place.region)
    call.check(topic_name)
    topic = call.named(topic_name)
    queue_name = _endpoint(call, given, topic_name)
    call.check(topic_name, queue_name)
    if await call.engine.settings_of(queue_name) is None:
        raise invalid("Endpoint Reason: the queue does not exist, create it first")
    attributes = given.texts_by_name("Attributes")
    wanted = _changed(Subscription(), attributes, "Attributes Reason: ")
    _check_redrive(wanted, topic_name, queue_name, "Attributes Reason: ")
    for queue, bound in topic.bound_queues():
        if queue.name == queue_name and (bound.sns is not None or bound.where):
            now, then = _chosen(_of(bound)), _chosen(wanted)
            if any(now.get(name) != then.get(name) for name in attributes):
                raise invalid(
                    "Attributes Reason: Subscription already exists with different attributes"
                )
            return {"SubscriptionArn": _arn(call, topic, queue)}
    await call.engine.bind(topic_name, queue_name, sns=wanted)
    found = [queue for queue, _ in topic.bound_queues() if queue.name == queue_name]
    if not found:  # another has ended the subscription meanwhile
        raise invalid("Endpoint Reason: the queue does not exist, create it first")
    return {"SubscriptionArn": _arn(call, topic, found[0])}


async def unsubscribe(call: Call, given: Given) -> None:
    """One that is not there is ended already."""
    topic, incarnation = call.names.subscription_of(
        given.needed("SubscriptionArn"), call.place.region
    )
    actor = call.engine.topics.get(topic)
    found = _bound(actor, incarnation) if actor is not None else None
    call.check(topic, found[0].name if found is not None else None)
    if found is not None:
        await call.engine.unbind(topic, found[0].name)


async def confirm_subscription(call: Call, given: Given) -> Result:
    call.names.topic_of(given.needed("TopicArn"), call.place.region)
    raise invalid("Token")


async def list_subscriptions(call: Call, given: Given) -> Result:
    """By topics in the order of their names, and in each by its queues."""
    after_topic, _, after_queue = read_token(given.text("NextToken")).partition("\n")
    found: list[tuple[TopicActor, QueueActor]] = []
    topic = call.engine.topics.get(after_topic)
    if topic is not None and call.knows(after_topic):
        found += [(topic, queue) for queue in _queues_behind(topic, after_queue)]
    if len(found) <= PAGE:
        async for topics in steps(call.engine.topics, after_topic):
            for each in topics:
                if call.knows(each.name):
                    found += [(each, queue) for queue in _queues_behind(each)]
            if len(found) > PAGE:
                break
    return _page(call, found)


async def list_subscriptions_by_topic(call: Call, given: Given) -> Result:
    topic = call.topic(given.needed("TopicArn"))
    _, _, after = read_token(given.text("NextToken")).partition("\n")
    return _page(call, [(topic, queue) for queue in _queues_behind(topic, after)])


async def get_subscription_attributes(call: Call, given: Given) -> Result:
    topic, queue, bound = _named(call, given)
    sns = _of(bound)
    place, _ = call.names.place_of(topic.name)
    return {
        "Attributes": Entries(
            **_told(call, topic, queue),
            ConfirmationWasAuthenticated="true",
            PendingConfirmation="false",
            SubscriptionPrincipal=f"arn:{sqs.partition(place.region)}:iam::{place.account}:root",
            **_chosen(sns),
        )
    }


async def set_subscription_attributes(call: Call, given: Given) -> None:
    topic, queue, bound = _named(call, given)
    name, value = given.needed("AttributeName"), given.text("AttributeValue") or ""
    wanted = _changed(_of(bound), {name: value}, "")
    _check_redrive(wanted, topic.name, queue.name, "")
    await call.engine.bind(topic.name, queue.name, sns=wanted)


# -- Inside -----------------------------------------------------------------------------------


def _endpoint(call: Call, given: Given, topic: str) -> str:
    """The queue that is to be subscribed."""
    protocol, endpoint = given.needed("Protocol"), given.text("Endpoint")
    if protocol in _PROTOCOLS:
        raise invalid(f"Protocol Reason: this broker delivers to sqs only, not to {protocol}")
    if protocol != "sqs":
        raise invalid(f"Amazon SNS does not support this protocol string: {told(protocol)}")
    if not endpoint:
        raise SnsError("NotFound", "Endpoint not specified in subscription")
    queue = call.names.queue_of(endpoint)
    if queue.endswith(FIFO_SUFFIX) and not topic.endswith(FIFO_SUFFIX):
        raise invalid(
            "Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be subscribed to "
            "standard SNS topics"
        )
    return queue


def _named(call: Call, given: Given) -> tuple[TopicActor, QueueActor, Bound]:
    """The subscription that a request names, if the caller may do with it what the action does."""
    name, incarnation = call.names.subscription_of(
        given.needed("SubscriptionArn"), call.place.region
    )
    topic = call.engine.topics.get(name)
    found = _bound(topic, incarnation) if topic is not None else None
    call.check(name, found[0].name if found is not None else None)
    if topic is None or found is None:
        raise no_subscription()
    return topic, *found


def _bound(topic: TopicActor, incarnation: int | None) -> tuple[QueueActor, Bound] | None:
    for queue, bound in topic.bound_queues():
        if queue.incarnation == incarnation:
            return queue, bound
    return None


def _of(bound: Bound) -> Subscription:
    """What a binding is to SNS. Attributes that other doors ask for are a policy, too."""
    if bound.sns is not None:
        return bound.sns
    if not bound.where:
        return _NATIVE
    policy = msgspec.json.encode({name: [value] for name, value in bound.where.items()}).decode()
    return msgspec.structs.replace(_NATIVE, filter_policy=policy)


def _changed(now: Subscription, attributes: dict[str, str], prefix: str) -> Subscription:
    """A subscription with these attributes; `prefix` is what refusals begin with."""
    wanted = now
    for name, value in attributes.items():
        if name not in _NAMES:
            raise invalid(f"{prefix}AttributeName")
        if name == "RawMessageDelivery":
            if value.lower() not in ("true", "false"):
                raise invalid(
                    f"{prefix}RawMessageDelivery: Invalid value [{told(value)}]. "
                    "Must be true or false."
                )
            wanted = msgspec.structs.replace(wanted, raw=value.lower() == "true")
        elif name == "FilterPolicyScope":
            if value not in (ATTRIBUTES, BODY):
                raise invalid(
                    f"{prefix}FilterPolicyScope: Invalid value [{told(value)}]. "
                    "Please use either MessageBody or MessageAttributes"
                )
            wanted = msgspec.structs.replace(wanted, filter_scope=value)
        elif name == "FilterPolicy":
            wanted = msgspec.structs.replace(wanted, filter_policy=value)
        else:
            kept = {key: text for key, text in {**wanted.aws, name: value}.items() if text}
            wanted = msgspec.structs.replace(wanted, aws=kept)
    try:
        if compiled(wanted.filter_policy, wanted.filter_scope) is None:
            wanted = msgspec.structs.replace(wanted, filter_policy="")
    except InvalidArgument as error:
        raise invalid(prefix + error.message) from None
    return wanted


def _check_redrive(wanted: Subscription, topic: str, queue: str, prefix: str) -> None:
    """It has no effect, because a delivery cannot fail by itself, but it must be one."""
    policy = wanted.aws.get("RedrivePolicy")
    if policy is None:
        return
    try:
        found = msgspec.json.decode(policy)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise invalid(f"{prefix}RedrivePolicy: failed to parse JSON.") from None
    target = found.get("deadLetterTargetArn", "") if isinstance(found, dict) else ""
    parts = target.split(":", 6) if isinstance(target, str) else []
    if len(parts) != 6 or parts[0] != "arn":
        raise invalid(f"{prefix}RedrivePolicy: deadLetterTargetArn is an invalid arn")
    both_fifo = topic.endswith(FIFO_SUFFIX) and queue.endswith(FIFO_SUFFIX)
    if both_fifo and not (parts[2] == "sqs" and parts[5].endswith(FIFO_SUFFIX)):
        raise invalid(
            f"{prefix}RedrivePolicy: must use a FIFO queue as DLQ for a FIFO Subscription to a "
            "FIFO Topic."
        )


def _chosen(sns: Subscription) -> dict[str, str]:
    """The attributes of a subscription that its maker chose."""
    shown = {"RawMessageDelivery": "true" if sns.raw else "false"}
    if sns.filter_policy:
        shown["FilterPolicy"] = sns.filter_policy
        shown["FilterPolicyScope"] = sns.filter_scope
    return {**shown, **sns.aws}


def _arn(call: Call, topic: TopicActor, queue: QueueActor) -> str:
    return f"{call.names.topic_arn(topic.name)}:{subscription_id(queue.incarnation)}"


def _told(call: Call, topic: TopicActor, queue: QueueActor) -> dict[str, str]:
    place, _ = call.names.place_of(topic.name)
    return {
        "SubscriptionArn": _arn(call, topic, queue),
        "Owner": place.account,
        "Protocol": "sqs",
        "Endpoint": call.names.queue_arn(queue.name),
        "TopicArn": call.names.topic_arn(topic.name),
    }


def _queues_behind(topic: TopicActor, after: str = "") -> Iterator[QueueActor]:
    """Queues of a topic in the order of their names; no more than one page could show."""
    bound = (queue for queue, _ in topic.bound_queues() if queue.name > after)
    return islice(sorted(bound, key=lambda queue: queue.name), PAGE + 1)


def _page(call: Call, found: list[tuple[TopicActor, QueueActor]]) -> Result:
    shown = found[:PAGE]
    result: Result = {"Subscriptions": [_told(call, topic, queue) for topic, queue in shown]}
    if len(found) > PAGE:
        topic, queue = shown[-1]
        result["NextToken"] = written_token(f"{topic.name}\n{queue.name}")
    return result
