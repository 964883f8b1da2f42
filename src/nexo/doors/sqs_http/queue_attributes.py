"""The attributes of a queue: its settings and figures in the words of SQS, and the way back.
GetQueueAttributes and SetQueueAttributes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.doors.sqs_http.errors import SqsError, invalid_attribute, unknown_attribute
from nexo.doors.sqs_http.policies import (
    allow_policy,
    learn_target,
    redrive_policy,
    statements_of,
)
from nexo.doors.sqs_http.shapes import GetQueueAttributesResult
from nexo.engine.peek import counts
from nexo.vocabulary.names import dead_letter_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nexo.doors.sqs_http.accounts import Addresses
    from nexo.doors.sqs_http.call import Call
    from nexo.doors.sqs_http.shapes import GetQueueAttributesRequest, SetQueueAttributesRequest
    from nexo.engine.queue_actor import QueueActor
    from nexo.vocabulary.settings import QueueSettings

KNOWN = frozenset(
    {
        "All",
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        "ContentBasedDeduplication",
        "CreatedTimestamp",
        "DeduplicationScope",
        "DelaySeconds",
        "FifoQueue",
        "FifoThroughputLimit",
        "KmsDataKeyReusePeriodSeconds",
        "KmsMasterKeyId",
        "LastModifiedTimestamp",
        "MaximumMessageSize",
        "MessageRetentionPeriod",
        "Policy",
        "QueueArn",
        "ReceiveMessageWaitTimeSeconds",
        "RedriveAllowPolicy",
        "RedrivePolicy",
        "SqsManagedSseEnabled",
        "VisibilityTimeout",
    }
)
SCOPE_DELAY_MS = 60_000  # AWS takes up to a minute until other settings are in force
# Attributes that are seconds here and milliseconds inside: their lowest and highest value.
_SECONDS = {
    "VisibilityTimeout": ("visibility_timeout_ms", 0, 43_200),
    "MessageRetentionPeriod": ("retention_ms", 60, 1_209_600),
    "DelaySeconds": ("delay_ms", 0, 900),
    "ReceiveMessageWaitTimeSeconds": ("receive_wait_ms", 0, 20),
}
_SIZE_MIN, _SIZE_MAX = 1_024, 1_048_576
_SCOPES = {"queue": "queue", "messageGroup": "group"}
_THROUGHPUTS = ("perQueue", "perMessageGroupId")
_KMS = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds")


async def get_queue_attributes(
    call: Call, request: GetQueueAttributesRequest
) -> GetQueueAttributesResult:
    actor = call.queue(request.queue_url)
    names = request.attribute_names or []
    for name in names:
        if name not in KNOWN:
            raise unknown_attribute(name)
    if not names:
        return GetQueueAttributesResult()
    shown = {
        **shown_figures(call, actor),
        **shown_settings(call.addresses, actor.name, actor.settings),
    }
    if "All" not in names:
        shown = {name: shown[name] for name in names if name in shown}
    return GetQueueAttributesResult(attributes=shown or None)


async def set_queue_attributes(call: Call, request: SetQueueAttributesRequest) -> None:
    actor = call.queue(request.queue_url)
    given = request.attributes or {}
    await learn_target(call, given)
    settings = actor.settings
    changed = changed_settings(call, actor.name, settings, given, actor.now_ms())
    await call.engine.edit_queue(actor.name, changed)


def shown_settings(addresses: Addresses, name: str, settings: QueueSettings) -> dict[str, str]:
    """What a queue does, as its attributes tell it."""
    shown = {
        attribute: str(getattr(settings, field) // 1000)
        for attribute, (field, _, _) in _SECONDS.items()
    }
    shown["MaximumMessageSize"] = str(settings.max_message_bytes)
    kept = settings.aws
    shown["SqsManagedSseEnabled"] = kept.get("SqsManagedSseEnabled", "true")
    for attribute in ("Policy", "RedriveAllowPolicy", "RedrivePolicy", *_KMS):
        if attribute in kept:
            shown[attribute] = kept[attribute]
    if settings.max_attempts is not None:
        target = addresses.arn_of(dead_letter_name(name, settings.dead_letter))
        policy = {"deadLetterTargetArn": target, "maxReceiveCount": settings.max_attempts}
        shown["RedrivePolicy"] = json.dumps(policy, separators=(",", ":"))
    if settings.fifo:
        shown["FifoQueue"] = "true"
        is_content = settings.deduplication == "content"
        shown["ContentBasedDeduplication"] = "true" if is_content else "false"
        is_group = settings.deduplication_scope == "group"
        shown["DeduplicationScope"] = "messageGroup" if is_group else "queue"
        shown["FifoThroughputLimit"] = kept.get("FifoThroughputLimit", "perQueue")
    return shown


def shown_figures(call: Call, actor: QueueActor) -> dict[str, str]:
    actor.catch_up(actor.now_ms())
    shown, defined = counts(actor), call.engine.definition(actor.name)
    return {
        "QueueArn": call.addresses.arn_of(actor.name),
        "ApproximateNumberOfMessages": str(shown.ready),
        "ApproximateNumberOfMessagesNotVisible": str(shown.in_flight),
        "ApproximateNumberOfMessagesDelayed": str(shown.scheduled),
        "CreatedTimestamp": str(defined.created_ms // 1000),
        "LastModifiedTimestamp": str(defined.modified_ms // 1000),
    }


def changed_settings(
    call: Call, name: str, settings: QueueSettings, given: Mapping[str, str], now_ms: int = 0
) -> QueueSettings:
    """The settings after these attributes are set, or why that is refused. `now_ms` is given for
    a queue that exists."""
    _check_encryption(given)
    changes = _Changes(call, name, settings, now_ms)
    for attribute, value in given.items():
        changes.set(attribute, value)
    return changes.done()


class _Changes:
    """Attributes being set, one after the other."""

    def __init__(self, call: Call, name: str, settings: QueueSettings, now_ms: int) -> None:
        self._call = call
        self._name = name
        self._settings = settings
        self._now_ms = now_ms
        self._fields: dict[str, Any] = {}
        self._kept = dict(settings.aws)

    def set(self, attribute: str, value: str) -> None:
        setter = _SETTERS.get(attribute)
        if setter is None:
            raise unknown_attribute(attribute)
        setter(self, attribute, value)

    def done(self) -> QueueSettings:
        settings = self._settings
        scope = self._fields.get("deduplication_scope", settings.deduplication_scope)
        if self._kept.get("FifoThroughputLimit") == "perMessageGroupId" and scope != "group":
            raise invalid_attribute(
                "FifoThroughputLimit",
                "The value perMessageGroupId is allowed only when the value for "
                "DeduplicationScope is messageGroup.",
            )
        if scope != settings.deduplication_scope and self._now_ms:
            self._fields["deduplication_scope_since_ms"] = self._now_ms + SCOPE_DELAY_MS
        return msgspec.structs.replace(settings, **self._fields, aws=self._kept)

    def _seconds(self, attribute: str, value: str) -> None:
        field, low, high = _SECONDS[attribute]
        self._fields[field] = _number(attribute, value, low, high) * 1000

    def _size(self, attribute: str, value: str) -> None:
        self._fields["max_message_bytes"] = _number(attribute, value, _SIZE_MIN, _SIZE_MAX)

    def _policy(self, attribute: str, value: str) -> None:
        if value and statements_of(value) is None:
            raise invalid_attribute(
                attribute,
                "It must be a JSON object, whose Statement is an object or a list of them.",
            )
        self._keep(attribute, value)

    def _redrive(self, attribute: str, value: str) -> None:
        self._kept.pop(attribute, None)
        self._fields["max_attempts"], self._fields["dead_letter"] = None, "{name}_dlq"
        if not value:
            return
        count, target = redrive_policy(self._call, self._name, self._settings.fifo, value)
        if target == self._name:  # allowed on AWS, and without effect
            self._kept[attribute] = value
        else:
            self._fields["max_attempts"], self._fields["dead_letter"] = count, target

    def _allow(self, attribute: str, value: str) -> None:
        if value:
            allow_policy(value)
        self._keep(attribute, value)

    def _key(self, attribute: str, value: str) -> None:
        self._keep(attribute, value)
        if value:
            self._kept["SqsManagedSseEnabled"] = "false"
        else:
            self._kept.pop("KmsDataKeyReusePeriodSeconds", None)

    def _reuse(self, attribute: str, value: str) -> None:
        _number(attribute, value, 60, 86_400)
        if "KmsMasterKeyId" in self._kept:
            self._kept[attribute] = value

    def _managed(self, attribute: str, value: str) -> None:
        self._kept[attribute] = _flag(attribute, value)
        if self._kept[attribute] == "true":
            for each in _KMS:
                self._kept.pop(each, None)

    def _fifo(self, attribute: str, value: str) -> None:
        if not self._settings.fifo:
            raise unknown_attribute(attribute)
        if _flag(attribute, value) == "false":
            raise invalid_attribute(attribute, "Modifying queue type is not supported.")

    def _content(self, attribute: str, value: str) -> None:
        if not self._settings.fifo:
            raise unknown_attribute(attribute)
        is_content = _flag(attribute, value) == "true"
        self._fields["deduplication"] = "content" if is_content else "id"

    def _scope(self, attribute: str, value: str) -> None:
        self._check_fifo(attribute)
        if value not in _SCOPES:
            raise invalid_attribute(attribute)
        self._fields["deduplication_scope"] = _SCOPES[value]

    def _throughput(self, attribute: str, value: str) -> None:
        self._check_fifo(attribute)
        if value not in _THROUGHPUTS:
            raise invalid_attribute(attribute)
        self._kept[attribute] = value

    def _check_fifo(self, attribute: str) -> None:
        if not self._settings.fifo:
            raise SqsError(
                "InvalidAttributeName",
                f"You can specify the {attribute} only when FifoQueue is set to true.",
            )

    def _keep(self, attribute: str, value: str) -> None:
        """An empty value takes the attribute away."""
        if value:
            self._kept[attribute] = value
        else:
            self._kept.pop(attribute, None)


# Not bound to one of them: that would be a circle around the whole request.
_SETTERS: dict[str, Callable[[_Changes, str, str], None]] = {
    **dict.fromkeys(_SECONDS, _Changes._seconds),
    "MaximumMessageSize": _Changes._size,
    "Policy": _Changes._policy,
    "RedrivePolicy": _Changes._redrive,
    "RedriveAllowPolicy": _Changes._allow,
    "KmsMasterKeyId": _Changes._key,
    "KmsDataKeyReusePeriodSeconds": _Changes._reuse,
    "SqsManagedSseEnabled": _Changes._managed,
    "FifoQueue": _Changes._fifo,
    "ContentBasedDeduplication": _Changes._content,
    "DeduplicationScope": _Changes._scope,
    "FifoThroughputLimit": _Changes._throughput,
}


def _check_encryption(given: Mapping[str, str]) -> None:
    if given.get("KmsMasterKeyId") and given.get("SqsManagedSseEnabled", "").lower() == "true":
        raise SqsError(
            "InvalidAttributeName",
            "You can use one type of server-side encryption (SSE) at one time. You can either "
            "enable KMS SSE or SQS SSE.",
        )


def _number(attribute: str, value: str, low: int, high: int) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise invalid_attribute(attribute)
    if not low <= int(value) <= high:
        raise invalid_attribute(attribute)
    return int(value)


def _flag(attribute: str, value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise invalid_attribute(attribute)
    return value.lower()
