"""The policies of a queue: who may use it (Policy, with AddPermission and RemovePermission), where
its dead letters go (RedrivePolicy), and whose dead letters it takes (RedriveAllowPolicy)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.operations import On, dead_letters_elsewhere
from nexo.doors.sqs_http.errors import SqsError, invalid_attribute, invalid_value, missing
from nexo.doors.sqs_http.shapes import ACTIONS
from nexo.vocabulary.limits import SQS_POLICY_DEPTH_MAX
from nexo.vocabulary.sqs import partition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nexo.doors.sqs_http.call import Call
    from nexo.doors.sqs_http.shapes import AddPermissionRequest, RemovePermissionRequest
    from nexo.engine.queue_actor import QueueActor

ACTIONS_MAX = 7
ACCOUNTS_MAX = 50
_ACCOUNTS_SHOWN = 10
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile(r"\d{12}")
# What an owner cannot let others do.
_OWNERS = frozenset(
    {
        "AddPermission",
        "CancelMessageMoveTask",
        "CreateQueue",
        "DeleteQueue",
        "ListMessageMoveTasks",
        "ListQueueTags",
        "ListQueues",
        "RemovePermission",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    }
)
RECEIVES_MAX = 1_000
SOURCES_MAX = 10
_PERMISSIONS = ("allowAll", "denyAll", "byQueue")


async def add_permission(call: Call, request: AddPermissionRequest) -> None:
    actor = call.queue(request.queue_url)
    label = request.label or ""
    if not _LABEL.fullmatch(label):
        raise invalid_value(
            label,
            "Label",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.",
        )
    accounts, actions = request.aws_account_ids or [], request.actions or []
    if not actions:
        raise missing("Actions")
    _check_principals(accounts)
    _check_actions(actions)
    arn = call.addresses.arn_of(actor.name)
    policy = _policy(actor) or {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [],
    }
    statements = policy["Statement"]
    if any(each.get("Sid") == label for each in statements):
        raise invalid_value(label, "Label", "Already exists.")
    root = partition(call.caller.place.region)
    principals = [f"arn:{root}:iam::{account}:root" for account in accounts]
    allowed = [f"SQS:{action}" for action in actions]
    statements.append(
        {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": principals[0] if len(principals) == 1 else principals},
            "Action": allowed[0] if len(allowed) == 1 else allowed,
            "Resource": arn,
        }
    )
    await _keep(call, actor, policy)


async def remove_permission(call: Call, request: RemovePermissionRequest) -> None:
    actor = call.queue(request.queue_url)
    policy = _policy(actor) or {"Statement": []}
    statements = policy["Statement"]
    left = [each for each in statements if each.get("Sid") != request.label]
    if len(left) == len(statements):
        raise invalid_value(request.label, "Label", "can't find label.")
    policy["Statement"] = left
    await _keep(call, actor, policy if left else None)


def _check_principals(accounts: list[str]) -> None:
    if len(accounts) > ACCOUNTS_MAX:
        raise SqsError(
            "OverLimit",
            f"{len(accounts)} AWSAccountIds were found, maximum allowed is {ACCOUNTS_MAX}.",
        )
    if not accounts or not all(_ACCOUNT.fullmatch(account) for account in accounts):
        told = ", ".join(accounts[:_ACCOUNTS_SHOWN])
        raise invalid_value(f"[{told}]", "PrincipalId", "Unable to verify.")


def _check_actions(actions: list[str]) -> None:
    if len(actions) > ACTIONS_MAX:
        raise SqsError(
            "OverLimit",
            f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}.",
        )
    for action in actions:
        if action in _OWNERS:
            raise invalid_value(
                f"SQS:{action}",
                "ActionName",
                "Only the queue owner is allowed to invoke this action.",
            )
        if action != "*" and action not in ACTIONS:
            raise invalid_value(
                f"SQS:{action}",
                "ActionName",
                "Please refer to the appropriate WSDL for a list of valid actions.",
            )


def _policy(actor: QueueActor) -> dict[str, Any] | None:
    """The policy of a queue, with its statements as a list."""
    text = actor.settings.aws.get("Policy")
    if text is None:
        return None
    policy, statements = read_policy(text), statements_of(text)
    if policy is None or statements is None:  # it came through another door
        raise invalid_attribute("Policy", "Set another policy first: this one cannot be read.")
    return {**policy, "Statement": statements}


async def _keep(call: Call, actor: QueueActor, policy: dict[str, Any] | None) -> None:
    settings = actor.settings
    kept = {name: value for name, value in settings.aws.items() if name != "Policy"}
    if policy is not None:
        kept["Policy"] = json.dumps(policy, separators=(",", ":"))
    await call.engine.edit_queue(actor.name, msgspec.structs.replace(settings, aws=kept))


async def learn_target(call: Call, attributes: Mapping[str, str]) -> None:
    """Look at the dead-letter queue that a redrive policy among these names, wherever it is."""
    policy = read_policy(attributes.get("RedrivePolicy") or "")
    arn = policy.get("deadLetterTargetArn") if policy is not None else None
    target = call.addresses.named_by(arn) if isinstance(arn, str) else None
    if target is not None:
        await call.learn(target)


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
    if dead_letters_elsewhere(name, target) is not None:
        call.check(target, On.DEAD_LETTERS)
    if call.addresses.place_of(target)[0] != call.addresses.place_of(name)[0]:
        raise refused("Dead letter target must be in the same account and region as the source.")
    found = call.settings_of(target)
    if found is None:
        if target == name:
            return count, target
        raise refused("Dead letter target does not exist.")
    if found.fifo != fifo:
        raise refused("Dead-letter queue must be same type of queue as the source.")
    allowed = found.aws.get("RedriveAllowPolicy")
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
