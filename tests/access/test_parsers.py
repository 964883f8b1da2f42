"""What strangers and people write: permissions and tokens are read as meant, or refused."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nexo.access.caller import ANYONE, Caller
from nexo.access.permissions import (
    ANY,
    Action,
    Permissions,
    matches,
    parse_permission,
    parse_permissions,
)
from nexo.access.tokens import digest, mint, parse_access_key_id, parse_token, proves
from nexo.vocabulary.errors import Forbidden, InvalidArgument, Unauthorized
from nexo.vocabulary.limits import ACCESS_DECISIONS_MAX, TOKEN_PERMISSIONS_MAX

NAMES = st.text("ab.", min_size=0, max_size=12)
PATTERNS = st.text("ab.*?", min_size=1, max_size=12)


@given(PATTERNS, NAMES)
@example("*a*a*a*a*a*b", "a" * 12)
def test_a_pattern_matches_as_a_shell_would(pattern: str, name: str) -> None:
    assert matches(pattern, name) == (re.fullmatch(fnmatch.translate(pattern), name) is not None)


def test_no_pattern_takes_for_ever() -> None:
    assert not matches("*a" * 80 + "b", "a" * 100_000)


@given(st.text(max_size=200))
@example("a:push:pop")
@example("*:*,admin")
@example(":")
@example("a:")
@example("a:push,,pop")
def test_any_text_is_a_permission_or_refused(text: str) -> None:
    try:
        permission = parse_permission(text)
    except InvalidArgument:
        return
    assert permission.actions <= set(Action)
    assert permission.actions, "it would allow nothing"
    assert Action.ADMIN not in permission.actions or permission.pattern == "*"
    assert parse_permission(str(permission)) == permission


@given(PATTERNS, st.sets(st.sampled_from(sorted(ANY)), min_size=1), NAMES)
def test_a_permission_allows_what_it_says_and_no_more(
    pattern: str, actions: set[Action], name: str
) -> None:
    allowed = Permissions([parse_permission(f"{pattern}:{','.join(actions)}")])
    for action in ANY:
        assert allowed.allow(action, name) == (action in actions and matches(pattern, name))
    assert not allowed.is_admin
    assert not allowed.allow(Action.ADMIN, name)


@pytest.mark.parametrize("text", ["**:*", "?:*", "nexo.*:*", "orders:*", "*?:*"])
def test_only_everything_is_the_broker(text: str) -> None:
    assert not Permissions([parse_permission(text)]).is_admin


def test_everything_allows_everything() -> None:
    allowed = Permissions([parse_permission("*:*")])
    assert allowed.is_admin
    assert all(allowed.allow(action, "whatever/it.is") for action in Action)


def test_a_token_has_some_permissions_but_not_too_many() -> None:
    for count in (0, TOKEN_PERMISSIONS_MAX + 1):
        with pytest.raises(InvalidArgument):
            parse_permissions(["a:push"] * count)


@given(st.text(max_size=300))
@example("nexo__")
@example("nexo_" + "a" * 16 + "_" + "a" * 52 + "\n")
def test_any_text_is_a_token_or_none(text: str) -> None:
    parsed = parse_token(text)
    assert parsed is None or text == f"nexo_{parsed[0]}_{parsed[1]}"
    key = parse_access_key_id(text)
    assert key is None or text == f"NEXO{key.upper()}"


@given(st.binary(min_size=10, max_size=10), st.binary(min_size=32, max_size=32))
def test_a_minted_token_proves_itself_and_no_other(drawn_id: bytes, drawn: bytes) -> None:
    minted = mint("n", ["a:push"], 1, draw=lambda size: drawn_id if size == 10 else drawn)
    parsed = parse_token(minted.token)
    assert parsed is not None
    assert parsed[0] == minted.defined.id
    assert proves(parsed[1], minted.defined)
    for other in (parsed[1][:-1], parsed[1].upper(), "", "a" * 52 + "b"):
        assert not proves(other, minted.defined)
    assert parsed[1] not in repr(minted)
    assert minted.defined.digest == digest(parsed[1])


def test_nothing_proves_a_token_that_is_not_there_nor_an_access_key() -> None:
    key = mint("n", ["a:push"], 1, aws=True).defined
    for secret in ("", "a" * 52, key.aws_secret):
        assert not proves(secret, None)
        assert not proves(secret, key)


def test_no_two_tokens_are_alike() -> None:
    minted = [mint("n", ["a:push"], 1).token for _ in range(1_000)]
    assert len(set(minted)) == len({each.split("_")[1] for each in minted}) == 1_000


@pytest.mark.parametrize("name", ["", "a b", "x" * 81, "é", "nexo.own", "a/b"])
def test_a_token_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidArgument):
        mint(name, ["a:push"], 1)


@pytest.mark.parametrize("expires_ms", [0, 1, 1 + 21 * 365 * 86_400_000])
def test_a_token_expires_in_the_future(expires_ms: int) -> None:
    with pytest.raises(InvalidArgument):
        mint("n", ["a:push"], 1, expires_ms=expires_ms)


def test_decisions_that_are_remembered_are_bounded() -> None:
    caller = Caller("t", Permissions([parse_permission("a*:push")]))
    for number in range(2 * ACCESS_DECISIONS_MAX + 5):
        assert caller.may(Action.PUSH, f"a{number}")
    assert len(caller._decisions) <= ACCESS_DECISIONS_MAX
    before = len(caller._decisions)
    assert caller.may(Action.PUSH, "a" * 10_000)
    assert len(caller._decisions) == before, "a long name is not kept"


def test_a_caller_that_ended_may_nothing() -> None:
    caller = Caller("t", Permissions([parse_permission("*:*")]))
    told: list[Unauthorized] = []
    caller.when_ended(told.append)
    caller.check(Action.PUSH, "a")
    caller.end(Unauthorized("it was revoked"))
    caller.end(Unauthorized("again"))
    assert [error.message for error in told] == ["it was revoked"]
    for check in (
        lambda: caller.check(Action.PUSH, "a"),
        lambda: caller.check_any(ANY, "a"),
        caller.check_admin,
        caller.check_live,
    ):
        with pytest.raises(Unauthorized):
            check()
    assert not caller.knows("a")


def test_a_refusal_says_what_is_missing() -> None:
    caller = Caller("shop", Permissions([parse_permission("a:push")]))
    with pytest.raises(Forbidden, match="'shop' lacks the permission pop on 'orders'") as caught:
        caller.check(Action.POP, "orders")
    assert "'orders:pop'" in caught.value.hint


def test_anyone_may_everything() -> None:
    ANYONE.check(Action.MANAGE, "a")
    ANYONE.check_admin()
    assert ANYONE.knows("a")
    assert not ANYONE.is_bound


def test_a_permission_on_events_is_one_on_those_of_each_shard() -> None:
    caller = Caller("t", Permissions([parse_permission("nexo.events:peek")]))
    assert caller.may_read("nexo.events.63")
    assert not caller.may_read("nexo.events.x")
    one = Caller("t", Permissions([parse_permission("nexo.events.7:peek")]))
    assert one.may_read("nexo.events.7")
    assert not one.may_read("nexo.events.8")
    assert not one.may_read("nexo.events")
