"""The API held to its own document: schemathesis makes requests of it, right ones and wrong ones,
and the running broker must never fail, nor answer anything that the document does not say.

Access is required, so what has no token is seen to be refused everywhere. `make test` draws the
same requests each time; `make soak` draws many others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from nexo.doors.admin_http.app import OPERATIONS
from nexo.doors.admin_http.openapi import openapi_document

if TYPE_CHECKING:
    from tests.access.guarded import GuardedBroker
    from tests.admin.api import Api

    Case = schemathesis.Case[Any]

EXAMPLES = 10  # of each operation, besides those that cover its schema
SOAK_EXAMPLES = 300
ANY_SPEED = list(HealthCheck)

schema = schemathesis.openapi.from_dict(openapi_document(OPERATIONS, "test"))

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture(scope="module")
def token(broker: GuardedBroker, admin: Api) -> str:
    """Some of what is asked for is there, so that not every request ends at its name."""
    for name in ("0", "00", "a"):
        admin("POST", "/queues", {"name": name}, status=201)
        admin("POST", "/topics", {"name": name}, status=201)
        admin("POST", f"/queues/{name}/messages", {"messages": [{"body": "x"}]}, status=201)
        admin("POST", f"/queues/{name}/redrive", {}, status=202)
    return broker.token("*:*")


def check(case: Case, broker: GuardedBroker, token: str) -> None:
    # A delay must be shorter than the retention, a binding names a topic: more is refused than a
    # schema can say.
    excluded: list[schemathesis.CheckFunction] = [positive_data_acceptance]
    part = case.meta.components.get(ParameterLocation.BODY) if case.meta is not None else None
    if part is None or not part.mode.is_negative:
        # What is wrong outside of the body may be lost on its way: an empty list in a query is not
        # sent, and the header that was taken away is ours. test_requests has wrong queries.
        excluded.append(negative_data_rejection)
    case.call_and_validate(
        base_url=broker.http,
        headers={"Authorization": f"Bearer {token}"},
        excluded_checks=excluded,
    )


@schema.parametrize()
@settings(max_examples=EXAMPLES, derandomize=True, database=None, suppress_health_check=ANY_SPEED)
def test_every_answer_is_in_the_document(case: Case, broker: GuardedBroker, token: str) -> None:
    check(case, broker, token)


@pytest.mark.soak
@pytest.mark.timeout(600)
@schema.parametrize()
@settings(max_examples=SOAK_EXAMPLES, database=None, suppress_health_check=ANY_SPEED)
def test_many_more_of_them(case: Case, broker: GuardedBroker, token: str) -> None:
    check(case, broker, token)


def test_every_operation_is_fuzzed() -> None:
    fuzzed = {str(each.ok().label) for each in schema.get_all_operations()}  # type: ignore[union-attr]
    assert fuzzed == {f"{each.method} {each.path}" for each in OPERATIONS}
