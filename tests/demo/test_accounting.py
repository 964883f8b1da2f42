"""The accounting closes when all is there, and only then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from examples.gps import names
from examples.gps.accounting import Accounting, Alerts, Positions, account_positions
from examples.gps.demo import verdict
from examples.gps.dispatch import Dispatch, count_handled, read_handled, trouble
from examples.gps.lake import committed_files

if TYPE_CHECKING:
    from pathlib import Path

SENT = {"a": True, "b": True, "c": False}
BALANCED = Alerts(found=10, pushed=10, acked=7, waiting=2, dead_letters=1, timed_out=0, lost=[])


def test_all_is_there() -> None:
    found = account_positions(SENT, ["a", "b"], set())
    assert found.holds
    assert (found.sent, found.confirmed, found.in_lake, found.waiting) == (3, 2, 2, 0)


def test_what_was_not_confirmed_may_be_there() -> None:
    assert account_positions(SENT, ["a", "b", "c"], set()).holds


@pytest.mark.parametrize(
    ("in_lake", "field"),
    [(["a"], "lost"), (["a", "b", "b"], "doubled"), (["a", "b", "z"], "strays")],
)
def test_what_is_wrong(in_lake: list[str], field: str) -> None:
    found = account_positions(SENT, in_lake, set())
    assert not found.holds
    assert getattr(found, field) == [{"lost": "b", "doubled": "b", "strays": "z"}[field]]


def test_what_waits_is_not_lost() -> None:
    found = account_positions(SENT, ["a"], {"b", "a"})
    assert found.holds
    assert found.waiting == 1
    assert account_positions(SENT, [], {"a"}, unseen=1).holds
    assert not account_positions(SENT, [], set(), unseen=1).holds


@pytest.mark.parametrize(
    "change",
    [
        {"acked": 6},
        {"waiting": 3},
        {"dead_letters": 0},
        {"lost": ["x"]},
        {"found": 11},
        {"pushed": 11},
    ],
)
def test_alerts_must_balance(change: dict[str, Any]) -> None:
    assert BALANCED.holds
    assert not msgspec.structs.replace(BALANCED, **change).holds


def test_a_deadline_that_was_missed_is_no_loss() -> None:
    """It came back, and was acked or waits. What retention takes is missing in the balance."""
    assert msgspec.structs.replace(BALANCED, timed_out=3).holds
    assert not msgspec.structs.replace(BALANCED, timed_out=1, waiting=1).holds


def test_the_verdict_names_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    positions = Positions(9, 9, 2, 0, [f"lost-{n}" for n in range(7)], [], [])
    verdict.tell(Console(width=120), Accounting(positions, BALANCED), kills=3)
    told = capsys.readouterr().out
    assert "7 confirmed, and nowhere: lost-0, lost-1, lost-2, lost-3, lost-4 …" in told
    assert "does not close" in told
    whole = msgspec.structs.replace(positions, lost=[])
    verdict.tell(Console(width=120), Accounting(whole, BALANCED), kills=3)
    assert "Everything is accounted for, although 3 processes" in capsys.readouterr().out


def test_the_files_of_a_sink_are_those_of_its_log(tmp_path: Path) -> None:
    assert list(committed_files(tmp_path / "none")) == []

    def entry(name: str, *files: str) -> None:
        lines = ["v1", *(json.dumps({"path": f"file:///lake/{file}"}) for file in files)]
        (tmp_path / name).write_text("\n".join(lines))

    entry("0", "a%20b")
    assert list(committed_files(tmp_path)) == ["/lake/a b"]
    for number in range(1, 9):
        entry(str(number), f"f{number}")
    entry("9.compact", "a%20b", *(f"f{number}" for number in range(1, 10)))
    entry("10", "f10")
    entry(".10.crc", "nothing")
    entry("11.tmp", "nothing")
    found = list(committed_files(tmp_path))
    assert found == ["/lake/a b", *(f"/lake/f{number}" for number in range(1, 11))]


def event(name: str, attempts: int) -> dict[str, Any]:
    record = {
        "messageId": f"m-{name}",
        "body": json.dumps({"id": name, "kind": "stopped", "vehicle": "v"}),
        "attributes": {"ApproximateReceiveCount": str(attempts)},
    }
    return {"Records": [record]}


def test_a_dispatch_fails_at_times_and_handles_once(tmp_path: Path) -> None:
    file = tmp_path / "handled.db"
    assert count_handled(file) == 0
    dispatch = Dispatch(file, call_s=0.0)
    every = [f"stopped-v-{number}" for number in range(200)]
    busy = next(name for name in every if trouble(name, 1) == "the line is busy")
    gone = next(name for name in every if trouble(name, names.ATTEMPTS_MAX))
    good = next(name for name in every if not trouble(name, 1))
    failures = dispatch.handle(event(busy, 1), None)["batchItemFailures"]
    assert failures == [{"itemIdentifier": f"m-{busy}", "reason": "the line is busy"}]
    assert dispatch.handle(event(busy, 2), None) == {"batchItemFailures": []}
    for attempt in range(1, names.ATTEMPTS_MAX + 1):
        assert dispatch.handle(event(gone, attempt), None)["batchItemFailures"]
    for _ in range(2):
        dispatch.handle(event(good, 1), None)
    assert sorted(each.id for each in read_handled(file)) == sorted([busy, good])
    assert count_handled(file) == 2
    dispatch.close()
