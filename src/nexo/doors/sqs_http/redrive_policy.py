"""RedrivePolicy and RedriveAllowPolicy: where dead letters go, and who may send them there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.permissions import Action
from nexo.doors.sqs_http.errors import SqsError, invalid_value
from nexo.vocabulary.limits import SQS_POLICY_DEPTH_MAX

if TYPE_CHECKING:
    from nexo.doors.sqs_http.call import Call

RECEIVES_MAX = 1_000
SOURCES_MAX = 10
_PERMISSIONS = ("allowAll", "denyAll", "byQueue")


def redrive_policy(call: Call, name: str, fifo: bool, text: str) -> tuple[int, str]:
    """The count of receives and the dead-letter queue that a policy names."""

    def refused(reason: str) -> SqsError:
        return invalid_value(text, "RedrivePolicy", reason)

    policy = read_policy(text)
    if policy is None:
        raise refused("Redrive policy is not a valid JSON map.")
    for key in ("maxReceiveCount", "deadLetterTargetArn"):
        if key not in policy:
            raise refused(f"Redrive policy does not contain mandatory attribute: {key}.")
    arn, count = policy["deadLetterTargetArn"], _count(policy["maxReceiveCount"])
    target = call.addresses.named_by(arn) if isinstance(arn, str) else None
    if target is None:
        raise refused("Invalid value for deadLetterTargetArn.")
    if count is None:
        raise refused(
            f"Invalid value for maxReceiveCount: {policy['maxReceiveCount']!s:.100}, valid values "
            f"are from 1 to {RECEIVES_MAX} both inclusive."
        )
    call.caller.rights.check(Action.PUSH, target)  # its dead letters are pushed there
    if call.addresses.place_of(target)[0] != call.addresses.place_of(name)[0]:
        raise refused("Dead letter target must be in the same account and region as the source.")
    found = call.engine.queues.get(target)
    if found is None:
        if target == name:
            return count, target
        raise refused("Dead letter target does not exist.")
    if found.queue.settings.fifo != fifo:
        raise refused("Dead-letter queue must be same type of queue as the source.")
    allowed = found.queue.settings.aws.get("RedriveAllowPolicy")
    if allowed is not None and not _allows(allowed, call.addresses.arn_of(name)):
        raise refused("The dead-letter queue does not allow this source queue.")
    return count, target


def allow_policy(text: str) -> None:
    """Refuse a policy that says nothing clear."""

    def refused(reason: str) -> SqsError:
        return invalid_value(text, "RedriveAllowPolicy", reason)

    policy = read_policy(text)
    if policy is None:
        raise refused("Redrive allow policy is not a valid JSON map.")
    permission = policy.get("redrivePermission")
    if permission not in _PERMISSIONS:
        raise refused(
            f"Invalid value for redrivePermission: {permission!s:.100}, valid values are "
            f"{', '.join(_PERMISSIONS)}."
        )
    sources = policy.get("sourceQueueArns")
    if permission == "byQueue":
        if not isinstance(sources, list) or not 1 <= len(sources) <= SOURCES_MAX:
            raise refused(f"sourceQueueArns must name 1 to {SOURCES_MAX} queues.")
    elif sources:
        raise refused("sourceQueueArns can be specified only when redrivePermission is byQueue.")


def _allows(policy: str, arn: str) -> bool:
    told = read_policy(policy) or {}
    permission = told.get("redrivePermission")
    if permission == "byQueue":
        sources = told.get("sourceQueueArns")
        return isinstance(sources, list) and arn in sources
    return bool(permission != "denyAll")


def read_policy(text: str) -> dict[str, Any] | None:
    """A policy as it was written; None if it is no JSON object, or deeper than any policy is."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) and _is_shallow(found) else None


def statements_of(text: str) -> list[dict[str, Any]] | None:
    """The statements of a queue's Policy, of which there may be one without a list around it;
    None if this is no policy."""
    policy = read_policy(text)
    if policy is None:
        return None
    found = policy.get("Statement", [])
    statements = [found] if isinstance(found, dict) else found
    if not isinstance(statements, list) or not all(isinstance(each, dict) for each in statements):
        return None
    return statements


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(SQS_POLICY_DEPTH_MAX):
        level = [
            below
            for each in level
            if isinstance(each, (dict, list))
            for below in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 1 <= value <= RECEIVES_MAX else None
