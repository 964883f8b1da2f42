"""AddPermission and RemovePermission: statements of the queue's Policy, each under its label."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.doors.sqs_http.addresses import partition
from nexo.doors.sqs_http.errors import SqsError, invalid_attribute, invalid_value
from nexo.doors.sqs_http.redrive_policy import read_policy, statements_of
from nexo.doors.sqs_http.shapes import ACTIONS

if TYPE_CHECKING:
    from nexo.doors.sqs_http.call import Call
    from nexo.doors.sqs_http.shapes import AddPermissionRequest, RemovePermissionRequest
    from nexo.engine.queue_actor import QueueActor

ACTIONS_MAX = 7
ACCOUNTS_MAX = 50
_ACCOUNTS_SHOWN = 10
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile(r"\d{12}")


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
        if action != "*" and action not in ACTIONS:
            raise invalid_value(
                f"SQS:{action}",
                "ActionName",
                "Please refer to the appropriate WSDL for a list of valid actions.",
            )


def _policy(actor: QueueActor) -> dict[str, Any] | None:
    """The policy of a queue, with its statements as a list."""
    text = actor.queue.settings.aws.get("Policy")
    if text is None:
        return None
    policy, statements = read_policy(text), statements_of(text)
    if policy is None or statements is None:  # it came through another door
        raise invalid_attribute("Policy", "Set another policy first: this one cannot be read.")
    return {**policy, "Statement": statements}


async def _keep(call: Call, actor: QueueActor, policy: dict[str, Any] | None) -> None:
    settings = actor.queue.settings
    kept = {name: value for name, value in settings.aws.items() if name != "Policy"}
    if policy is not None:
        kept["Policy"] = json.dumps(policy, separators=(",", ":"))
    await call.engine.edit_queue(actor.name, msgspec.structs.replace(settings, aws=kept))
