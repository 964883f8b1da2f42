"""How an answer is read: the table of Lambda's documentation."""

from __future__ import annotations

from typing import Any

import pytest

from nexo.client.worker.invocation import LISTED, read_answer

IDS = ["a", "b", "c"]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        "ok",
        42,
        [],
        {"statusCode": 200},
        {"batchItemFailures": None},
        {"batchItemFailures": []},
        {"batchItemFailures": (), "more": 1},
    ],
)
def test_all_done(answer: Any) -> None:
    verdict = read_answer(answer, IDS)
    assert (verdict.failed, verdict.error) == ({}, None)


def test_some_failed() -> None:
    items = [{"itemIdentifier": "c"}, {"itemIdentifier": "a", "reason": "late"}]
    verdict = read_answer({"batchItemFailures": items}, IDS)
    assert verdict.error is None
    assert verdict.failed == {"c": LISTED, "a": "late"}


@pytest.mark.parametrize(
    ("failures", "told"),
    [
        ("a", "not a list"),
        ({"itemIdentifier": "a"}, "not a list"),
        (["a"], "has no itemIdentifier"),
        ([None], "has no itemIdentifier"),
        ([{}], "has no itemIdentifier"),
        ([{"itemIdentifier": ""}], "has no itemIdentifier"),
        ([{"itemIdentifier": None}], "has no itemIdentifier"),
        ([{"itemIdentifier": 1}], "has no itemIdentifier"),
        ([{"itemIdentifer": "a"}], "has no itemIdentifier"),
        ([{"itemIdentifier": "a"}, {"itemIdentifier": "z"}], "'z' is not in the batch"),
    ],
)
def test_all_failed(failures: Any, told: str) -> None:
    verdict = read_answer({"batchItemFailures": failures}, IDS)
    assert verdict.failed == {}
    assert verdict.error is not None
    assert told in verdict.error
