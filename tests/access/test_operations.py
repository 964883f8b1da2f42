"""The table of operations: what it asks for, and that the manual shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nexo.access.caller import ANYONE, Caller
from nexo.access.operations import (
    OPERATIONS,
    Named,
    On,
    check,
    check_redrive_known,
    dead_letters_elsewhere,
    operation_of,
)
from nexo.access.permissions import Permissions, parse_permission
from nexo.vocabulary.errors import Forbidden, RedriveNotFound, Unauthorized
from scripts.access_page import REGENERATE, with_tables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "access.md"


def holder(*allow: str) -> Caller:
    return Caller("me", Permissions(parse_permission(text) for text in allow))


def test_the_manual_shows_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), f"run: {REGENERATE}"
    for name in OPERATIONS:
        assert f"`{name}`" in page


def test_what_changes_something_is_audited_and_nothing_else() -> None:
    words = ("create", "edit", "delete", "revoke", "purge", "pause", "resume", "release", "bind")
    others = {"unbind", "backup", "import_definitions", "discard", "resend", "close_connection"}
    others |= {"drain_node", "rebalance_cluster"}
    for name, operation in OPERATIONS.items():
        begins = name.startswith((*words, "redrive")) and name != "redrive_progress"
        assert operation.is_audited == (begins or name in others), name


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_need_that_is_not_named_is_refused(name: str) -> None:
    """A door that forgets to say which queue is meant lets nobody through."""
    operation = OPERATIONS[name]
    needed = {need.on for need in operation.needs}
    caller = holder("*:*")
    if needed & {On.QUEUE, On.TOPIC}:
        with pytest.raises(Forbidden, match="does not name"):
            check(caller, operation, Named())
    check(caller, operation, Named(queue="orders", topic="news"))


def test_every_name_of_a_request_counts() -> None:
    chosen = OPERATIONS["redrive_chosen"]
    named = Named(queue="dlq", target="a", sources=("b", "c"))
    check(holder("dlq:manage", "a:push", "b:push", "c:push"), chosen, named)
    for lacking in ("dlq", "a", "b", "c"):
        others = [f"{each}:*" for each in ("dlq", "a", "b", "c") if each != lacking]
        with pytest.raises(Forbidden, match=f"'{lacking}'"):
            check(holder(*others), chosen, named)
    created = OPERATIONS["create_queue"]
    check(holder("mine:manage"), created, Named(queue="mine"))
    with pytest.raises(Forbidden, match="'theirs'"):
        check(holder("mine:manage"), created, Named(queue="mine", dead_letters="theirs"))


def test_the_default_dead_letter_queue_is_the_queues_own() -> None:
    assert dead_letters_elsewhere("orders", "{name}_dlq") is None
    assert dead_letters_elsewhere("orders", "orders_dlq") is None
    assert dead_letters_elsewhere("orders", "failed") == "failed"
    assert dead_letters_elsewhere("orders", "{name}-failed") == "orders-failed"


def test_what_an_operation_is_not_about_lets_nobody_through() -> None:
    push = OPERATIONS["push"]
    assert push.actions_on(On.QUEUE) == {"push"}
    with pytest.raises(Forbidden):
        holder("*:*").check_any(push.actions_on(On.TOPIC), "news")


def test_what_has_no_row_is_refused() -> None:
    with pytest.raises(Forbidden, match="the operation 'dance' is not allowed"):
        operation_of("dance")


def test_who_was_shut_out_may_not_even_list() -> None:
    caller = holder("*:*")
    check(caller, OPERATIONS["list_queues"], Named())
    caller.end(Unauthorized("revoked"))
    with pytest.raises(Unauthorized, match="revoked"):
        check(caller, OPERATIONS["list_queues"], Named())


def test_admins_alone_do_what_is_for_admins() -> None:
    check(holder("*:admin"), OPERATIONS["create_token"], Named())
    check(ANYONE, OPERATIONS["create_token"], Named())
    with pytest.raises(Forbidden, match="lacks the permission admin"):
        check(holder("*:push,pop,peek,manage"), OPERATIONS["create_token"], Named())


def test_a_redrive_of_an_unknown_queue_is_not_there() -> None:
    check_redrive_known(holder("dlq:push"), "dlq", 7)
    with pytest.raises(RedriveNotFound, match="there is no redrive 7") as refused:
        check_redrive_known(holder("other:*"), "dlq", 7)
    assert "dlq" not in str(refused.value)
