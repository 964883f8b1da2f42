"""The guard, its limits, and the audit log, without doors."""

from __future__ import annotations

import contextlib
import inspect
import logging
from typing import TYPE_CHECKING

import pytest

from nexo.access import sigv4, tokens
from nexo.access.audit import AUDIT_FILE, Audit, AuditEntry, read_audit
from nexo.access.caller import Caller
from nexo.access.guard import Failures, Guard, bearer_of
from nexo.access.tokens import mint
from nexo.vocabulary import limits
from nexo.vocabulary.errors import Forbidden, NexoError, RateLimited, Unauthorized
from nexo.vocabulary.limits import ACCESS_ADDRESSES_MAX, ACCESS_FAILURES_MAX, ACCESS_FAILURES_MS

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guard(clock: Clock) -> Guard:
    return Guard(clock, is_required=True)


def fail(guard: Guard, peer: str = "10.0.0.1") -> NexoError:
    with pytest.raises(NexoError) as caught:
        guard.admit("nexo_wrong", peer, "test")
    return caught.value


def test_many_failures_are_told_to_wait_and_leave_no_lines(
    guard: Guard, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(ACCESS_FAILURES_MAX):
            assert isinstance(fail(guard), Unauthorized)
        said = len(caplog.records)
        for _ in range(50):
            assert isinstance(fail(guard), RateLimited)
        assert len(caplog.records) == said
        assert isinstance(fail(guard, "10.0.0.2"), Unauthorized), "another address is not meant"
    clock.now_ms += ACCESS_FAILURES_MS
    assert isinstance(fail(guard), Unauthorized)


def test_a_right_token_is_admitted_after_any_number_of_wrong_ones(
    guard: Guard, clock: Clock
) -> None:
    minted = mint("t", ["a:push"], clock.now_ms)
    guard.adopt({"t": minted.defined})
    for _ in range(3 * ACCESS_FAILURES_MAX):
        fail(guard)
    assert guard.admit(minted.token, "10.0.0.1", "test").name == "t"


def test_the_table_of_failures_is_bounded(clock: Clock) -> None:
    failures = Failures(clock)
    for number in range(ACCESS_ADDRESSES_MAX + 1_000):
        failures.count(f"address-{number}")
    assert len(failures) == ACCESS_ADDRESSES_MAX


def test_an_access_key_is_no_bearer_token(guard: Guard, clock: Clock) -> None:
    minted = mint("t", ["*:*"], clock.now_ms, aws=True)
    guard.adopt({"t": minted.defined})
    for shown in (minted.secret_access_key, f"nexo_{minted.defined.id}_{'a' * 52}"):
        with pytest.raises(Unauthorized):
            guard.admit(shown, "10.0.0.1", "test")


def test_a_token_ends_to_the_millisecond(guard: Guard, clock: Clock) -> None:
    minted = mint("t", ["a:push"], clock.now_ms, expires_ms=clock.now_ms + 10)
    guard.adopt({"t": minted.defined})
    caller = guard.admit(minted.token, "10.0.0.1", "test")
    clock.now_ms += 9
    guard.expire()
    caller.check_live()
    clock.now_ms += 1
    with pytest.raises(Unauthorized, match="has expired"):
        guard.admit(minted.token, "10.0.0.1", "test")
    with pytest.raises(Unauthorized, match="has expired"):
        caller.check_live()


def test_a_name_that_is_given_again_is_another_token(guard: Guard, clock: Clock) -> None:
    first, second = (mint("t", ["a:push"], clock.now_ms) for _ in range(2))
    guard.adopt({"t": first.defined})
    caller = guard.admit(first.token, "10.0.0.1", "test")
    guard.adopt({"t": second.defined})
    with pytest.raises(Unauthorized, match="was revoked"):
        caller.check_live()
    assert guard.admit(second.token, "10.0.0.1", "test") is not caller


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ([], None),
        ([(b"authorization", b"Bearer abc")], "abc"),
        ([(b"authorization", b"bearer  abc ")], "abc"),
        ([(b"authorization", b"Basic abc")], None),
        ([(b"authorization", b"AWS4-HMAC-SHA256 Credential=x")], None),
        ([(b"x-other", b"Bearer abc")], None),
    ],
)
def test_a_bearer_header(headers: list[tuple[bytes, bytes]], token: str | None) -> None:
    assert bearer_of(headers) == token


def test_secrets_are_compared_in_constant_time() -> None:
    """A reminder to whoever changes it: `==` on a secret ends at the first difference."""
    for module in (tokens, sigv4):
        assert "hmac.compare_digest" in inspect.getsource(module)
    assert " == " not in inspect.getsource(tokens.proves)


def entry(number: int) -> AuditEntry:
    return AuditEntry(number, "me", "10.0.0.1", "rpc", "purge", f"queue-{number}", "done")


def test_the_audit_log_is_rotated_and_read_across_its_files(tmp_path: Path) -> None:
    audit = Audit(tmp_path, bytes_max=1_000, files_kept=2)
    for number in range(100):
        audit.write(entry(number))
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == [f"{AUDIT_FILE}.1", f"{AUDIT_FILE}.2"] or names == [
        AUDIT_FILE,
        f"{AUDIT_FILE}.1",
        f"{AUDIT_FILE}.2",
    ]
    assert all(each.stat().st_size < 1_200 for each in tmp_path.iterdir())
    newest = read_audit(tmp_path, 15)
    assert [each.at_ms for each in newest] == list(range(99, 84, -1))


def test_half_a_line_is_passed_over(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    audit.write(entry(1))
    with (tmp_path / AUDIT_FILE).open("ab") as file:
        file.write(b'{"at_ms": 2, "who')
    assert [each.at_ms for each in audit.read(10)] == [1]


@pytest.mark.parametrize("is_kept", [True, False])
def test_entries_of_one_millisecond_and_of_a_clock_that_goes_back_keep_their_order(
    tmp_path: Path, is_kept: bool
) -> None:
    audit = Audit(tmp_path if is_kept else None, bytes_max=1_000, files_kept=20)
    for number in range(50):
        if number == 25 and is_kept:
            audit = Audit(tmp_path, bytes_max=1_000, files_kept=20)  # the broker starts anew
        each = AuditEntry(7 - number // 40, "me", f"{number}", "rpc", "purge", "q", "done")
        (audit.write if number % 3 else audit.write_refused)(each)
    found = audit.read(100)
    assert [int(each.peer) for each in found] == list(range(49, -1, -1))
    assert [each.number for each in found] == list(range(50, 0, -1))


def test_lines_of_an_earlier_version_come_before_all_others(tmp_path: Path) -> None:
    line = b'{"at_ms":9,"who":"a","peer":"b","door":"c","action":"d","resource":"e","outcome":"f"}'
    (tmp_path / AUDIT_FILE).write_bytes(line + b"\n")
    audit = Audit(tmp_path)
    audit.write(entry(1))
    assert [each.at_ms for each in audit.read(10)] == [1, 9]


def test_without_a_directory_the_last_entries_are_in_memory() -> None:
    audit = Audit(None)
    for number in range(limits.AUDIT_ENTRIES_IN_MEMORY + 10):
        audit.write(entry(number))
    assert [each.at_ms for each in audit.read(2)] == [1_009, 1_008]
    assert len(audit.read(10_000)) == limits.AUDIT_ENTRIES_IN_MEMORY


def test_a_log_whose_directory_is_gone_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit = Audit(tmp_path / "gone")
    for number in range(3):
        audit.write(entry(number))
    assert [each.getMessage() for each in caplog.records] == ["cannot write the audit log"]


def refused(number: int, peer: str = "10.0.0.1", action: str = "purge") -> AuditEntry:
    return AuditEntry(number, "weak", peer, "rpc", action, f"queue-{number}", "forbidden")


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_flood_of_refusals_pushes_out_nothing_that_was_done(
    tmp_path: Path, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand refused calls within ten minutes."""
    audit = Audit(tmp_path if is_kept else None, bytes_max=20_000, files_kept=1)
    written = []
    write = audit._write

    def counted(file: str, entry: AuditEntry) -> None:
        written.append(file)
        write(file, entry)

    monkeypatch.setattr(audit, "_write", counted)
    audit.write(entry(1))
    for number in range(100_000):
        audit.write_refused(refused(2 + number * 6, action=f"action-{number % 3}"))
    audit.flush()
    audit.write(entry(1_000_000))
    assert len(written) < 400
    found = audit.read(100_000)
    assert [each.at_ms for each in found if each.outcome == "done"] == [1_000_000, 1]
    assert [each.at_ms for each in found] == sorted((each.at_ms for each in found), reverse=True)
    if not is_kept:
        assert sum(each.count for each in found if each.outcome != "done") == 100_000


def test_refusals_that_are_alike_are_counted_and_others_are_told_apart() -> None:
    audit = Audit(None)
    lines = limits.AUDIT_REFUSED_LINES_MAX
    for number in range(lines + 5):
        audit.write_refused(refused(number))
    audit.write_refused(refused(50, peer="10.0.0.2"))
    assert len(audit.read(100)) == lines + 1  # the five are only counted so far
    audit.flush(limits.AUDIT_REFUSED_WINDOW_MS - 1)
    assert len(audit.read(100)) == lines + 1
    audit.flush(limits.AUDIT_REFUSED_WINDOW_MS)
    (counted,) = [each for each in audit.read(100) if each.count > 1]
    assert (counted.count, counted.resource) == (5, f"queue-{lines + 4}")
    audit.write_refused(refused(70_000))  # a minute later it has a line again
    assert audit.read(1)[0].at_ms == 70_000


def test_whoever_varies_what_they_are_refused_gets_one_line_for_the_rest() -> None:
    audit = Audit(None)
    kinds = limits.AUDIT_REFUSED_KINDS_MAX
    for number in range(3 * kinds):
        audit.write_refused(refused(number, peer=f"10.0.{number >> 8}.{number & 255}"))
    audit.flush()
    found = audit.read(1_000)
    assert len(found) == kinds + 1
    assert (found[0].count, found[0].who) == (2 * kinds, "(others)")


def test_refusals_are_folded_and_what_may_have_been_done_is_not(guard: Guard) -> None:
    caller = Caller("weak", None)
    for _ in range(100):
        with (
            contextlib.suppress(Forbidden),
            guard.tell(caller, "here", "rpc", "purge", "q"),
        ):
            raise Forbidden("no")
        with (
            contextlib.suppress(RuntimeError),
            guard.tell(caller, "here", "rpc", "purge", "q"),
        ):
            raise RuntimeError  # such as a client that went away: nobody knows how it ended
    outcomes = [each.outcome for each in guard.audit.read(1_000)]
    assert outcomes.count("interrupted") == 100
    assert outcomes.count("forbidden") == limits.AUDIT_REFUSED_LINES_MAX
