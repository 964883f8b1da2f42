"""No request over HTTP stops or stalls the broker, whoever sends it, and none is answered by 5xx.

`make test` tries every field with some of the hostile values; `make soak` tries them all.
"""

from __future__ import annotations

from itertools import cycle
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.aimed.http_doors import DOCUMENT, MODEL, Browser, admin_requests, sqs_requests
from tests.aimed.target import ALLOWED

if TYPE_CHECKING:
    from tests.aimed.http_doors import Request
    from tests.aimed.target import Target

SHARE = {"sqs": 0.05, "admin": 0.15}  # of the requests, in `make test`
MAKERS = {"sqs": sqs_requests, "admin": admin_requests}
CALLERS = ("nobody", *ALLOWED)
DESTRUCTIVE = ("DeleteQueue", "PurgeQueue", "SetQueueAttributes", "DELETE", "PATCH", "pause")


def attack(target: Target, requests: list[Request], caller: str) -> None:
    browser = Browser(target, target.tokens.get(caller))
    for request in requests:
        status = browser.send(request)
        assert status < 500, f"{status} for {request.label} by {caller}\n{target.log()}"
        target.check(f"{request.label} by {caller}")
        if any(word in request.label for word in DESTRUCTIVE) and caller == "everything":
            target.restore()
    browser.close()


@pytest.mark.parametrize("door", MAKERS)
@pytest.mark.parametrize("caller", CALLERS)
def test_no_field_of_any_request_stops_the_others(
    target: Target, door: str, caller: str, pytestconfig: pytest.Config
) -> None:
    random = Random(f"{pytestconfig.option.hypothesis_seed} {caller}")
    share = SHARE[door] if caller == "everything" else SHARE[door] / 12
    drawn = list(MAKERS[door](lambda: random.random() < share))
    assert len(drawn) > 10
    attack(target, drawn, caller)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("door", MAKERS)
@pytest.mark.parametrize("caller", CALLERS)
def test_no_value_of_any_field_stops_the_others(target: Target, door: str, caller: str) -> None:
    attack(target, list(MAKERS[door]()), caller)


def test_every_action_and_operation_is_aimed_at() -> None:
    wanted = cycle([True] + [False] * 20).__next__
    aimed = {request.headers.get("X-Amz-Target", "") for request in sqs_requests(wanted)}
    assert {f"AmazonSQS.{action}" for action in MODEL.operation_names} <= aimed
    methods = {request.label.split(" ")[0] for request in admin_requests()}
    assert methods == {method.upper() for path in DOCUMENT["paths"].values() for method in path}
