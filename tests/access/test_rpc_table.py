"""The RPC door: every request, tried with every kind of wrong credentials and with just enough.

The table says what each request needs in the words of the manual. It is written by hand, apart from
the one in the door, so that a change there has to be meant. A request without a row fails.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from nexo.access.operations import OPERATIONS
from nexo.access.permissions import Action
from nexo.doors.rpc_tcp import access
from nexo.doors.rpc_tcp.calls import CALLERS_CALLS, CALLS, LISTING_CALLS
from nexo.doors.rpc_tcp.handlers import HANDLERS
from nexo.vocabulary.batch import batch_of
from nexo.wire import calls
from nexo.wire import commands as c
from nexo.wire.columns import encode_batch
from nexo.wire.frame import Kind, frame_parts
from tests.access.speaker import Speaker, code_of

if TYPE_CHECKING:
    from tests.access.guarded import GuardedBroker

ONE = [(1, 0, 1)]
BATCH = encode_batch(batch_of([b"x"]))
ADMIN = "admin"

# What to send, and which of the actions will do on `orders` or `news`.
FRAMES: dict[Kind, tuple[bytes, list[Any], set[str]]] = {
    Kind.PUSH: (c.pack_push(c.Push("orders")), BATCH, {"push"}),
    Kind.POP: (c.pack_pop(c.Pop("orders", 1, 1000)), [], {"pop"}),
    Kind.ACK: (c.pack_ranges("orders", ONE), [], {"pop"}),
    Kind.RECEIVED: (c.pack_ranges("orders", ONE), [], {"pop"}),
    Kind.GIVE_BACK: (c.pack_ranges("orders", ONE), [], {"pop"}),
    Kind.NACK: (c.pack(c.Nack("orders", ONE)), [], {"pop"}),
    Kind.EXTEND: (c.pack(c.Extend("orders", ONE, 1000)), [], {"pop"}),
    Kind.SUBSCRIBE: (c.pack(c.Subscribe("orders", 1, 1)), [], {"pop"}),
    Kind.PUBLISH: (c.pack(c.Publish("news")), BATCH, {"push"}),
    Kind.READ: (c.pack(c.Read("news", 0, 1, 1000)), [], {"pop", "peek"}),
}
# About what the connection itself has opened, or about whatever the caller knows.
OWN_FRAMES: dict[Kind, tuple[bytes, list[Any]]] = {
    Kind.UNSUBSCRIBE: (c.pack_unsubscribe(9, False), []),
    Kind.CREDIT: (c.pack_credit(9, 1), []),
    Kind.FOLLOW: (c.pack(c.Follow("*", {}, 10, 1000)), []),
    Kind.CALL: (b"", [c.pack(c.Call("list_queues", {}))]),
}
ON = {"name": "orders"}
CLAIM = {**ON, "consumer": "c", "epoch": 1}
ALL = {"push", "pop", "peek", "manage"}
CALL_ROWS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "create_queue": ({**ON, "settings": None}, {"manage"}),
    "edit_queue": ({**ON, "settings": {}}, {"manage"}),
    "delete_queue": (ON, {"manage"}),
    "queue_info": (ON, ALL),
    "purge": (ON, {"manage"}),
    "pause": (ON, {"manage"}),
    "resume": (ON, {"manage"}),
    "peek": (ON, {"peek"}),
    "redrive": (ON, {"manage"}),
    "redrive_chosen": ({**ON, "incarnation": 1, "seqs": [1]}, {"manage"}),
    "discard": ({**ON, "choice": {"ids": ["x"]}}, {"manage"}),
    "search": (ON, {"peek"}),
    "reasons": (ON, {"peek"}),
    "message": ({**ON, "id": "x"}, {"peek"}),
    "resend": ({**ON, "id": "x", "to": "other"}, {"manage"}),
    "redrive_progress": ({"task": 1}, {"manage"}),
    "redrive_cancel": ({"task": 1}, {"manage"}),
    "release": ({**ON, "consumer": "c"}, {"manage"}),
    "create_topic": ({"name": "news"}, {"manage"}),
    "delete_topic": ({"name": "news"}, {"manage"}),
    "topic_info": ({"name": "news"}, ALL),
    "bind": ({"topic": "news", "queue": "orders"}, {"manage"}),
    "unbind": ({"topic": "news", "queue": "orders"}, {"manage"}),
    "claim_open": ({**ON, "consumer": "c"}, {"pop"}),
    "claim": ({**CLAIM, "after": 0, "count": 1, "timeout_ms": 1}, {"pop"}),
    "claim_seal": ({**CLAIM, "number": 1}, {"pop"}),
    "claim_keep": ({**CLAIM, "timeout_ms": 1}, {"pop"}),
    "claim_ack": ({**CLAIM, "number": 1}, {"pop"}),
    "claim_read": ({**CLAIM, "number": 1}, {"pop"}),
    "snapshot_open": (ON, {"peek"}),
    "snapshot_read": ({**ON, "snapshot": "s", "start": 0}, {"peek"}),
    "snapshot_close": ({**ON, "snapshot": "s"}, {"peek"}),
    "backup": ({}, {ADMIN}),
    "backup_progress": ({"backup": 1}, {ADMIN}),
    "backup_read": ({"backup": 1, "offset": 0, "size": 1}, {ADMIN}),
    "backup_end": ({"backup": 1}, {ADMIN}),
    "export_definitions": ({}, {ADMIN}),
    "import_definitions": ({"definitions": {"version": 1}, "dry_run": True}, {ADMIN}),
    "audit": ({}, {ADMIN}),
    "list_connections": ({}, {ADMIN}),
    "close_connection": ({"number": 9_999_999}, {ADMIN}),
    "cluster_info": ({}, {ADMIN}),
    "drain_node": ({"node": "a"}, {ADMIN}),
    "rebalance_cluster": ({}, {ADMIN}),
    "create_token": ({"name": "t", "allow": ["x:push"]}, {ADMIN}),
    "list_tokens": ({}, {ADMIN}),
    "revoke_token": ({"name": "none"}, {ADMIN}),
}
KNOWING_CALLS = {"list_queues": {}, "list_topics": {}, "starts": {"pattern": "*"}}

pytestmark = pytest.mark.usefixtures("patient")


def all_but(actions: set[str]) -> str:
    """Everything on the names of the table, except what is needed."""
    return ",".join(sorted(ALL - actions)) or ADMIN


def allow(actions: str) -> list[str]:
    if actions == ADMIN:
        return ["*:admin"]
    return [f"orders:{actions}", f"news:{actions}", "other*:*"]


def test_every_request_has_a_row_here_and_in_the_door() -> None:
    assert {*FRAMES, *OWN_FRAMES} == set(HANDLERS) == set(access.FRAMES)
    assert {*CALL_ROWS, *KNOWING_CALLS} == {*CALLS, *LISTING_CALLS, *CALLERS_CALLS}
    assert {*CALL_ROWS, *KNOWING_CALLS} == set(calls.CALLS)
    assert set(calls.CALLS) <= set(OPERATIONS)


@pytest.mark.parametrize("state", ["none", "empty", "wrong", "garbage", "expired", "revoked"])
def test_nobody_gets_in_without_a_token_that_holds(broker: GuardedBroker, state: str) -> None:
    good = broker.token("*:*")
    shown = {
        "none": lambda: None,
        "empty": lambda: "",
        "wrong": lambda: good[:-1] + ("a" if good[-1] != "a" else "b"),
        "garbage": lambda: "nexo_\x00" + "é" * 5000,
        "expired": lambda: broker.expired("*:*"),
        "revoked": lambda: broker.revoked("*:*"),
    }[state]()
    for kind, (head, body, _) in FRAMES.items():
        with Speaker(broker.ports.rpc, shown) as speaker:
            assert code_of(speaker.greeting) == "unauthorized"
            assert speaker.next() is None, "it stayed on the line"
            try:
                speaker.tell(kind, head, body, 7)
            except ConnectionError:
                continue
            assert speaker.next() is None, kind


def test_what_comes_before_the_greeting_is_not_done(broker: GuardedBroker) -> None:
    pushed = broker.run(lambda: broker.engine.queue("orders").info().pushed)
    head, body, _ = FRAMES[Kind.PUSH]
    with socket.create_connection(("127.0.0.1", broker.ports.rpc), timeout=10) as raw:
        raw.sendall(b"".join(frame_parts(Kind.PUSH, 7, head, body)))
        while raw.recv(65_536):
            pass
    assert broker.run(lambda: broker.engine.queue("orders").info().pushed) == pushed


@pytest.mark.parametrize("kind", FRAMES, ids=lambda kind: kind.name)
def test_a_frame_takes_just_what_it_needs(broker: GuardedBroker, kind: Kind) -> None:
    head, body, actions = FRAMES[kind]
    with Speaker(broker.ports.rpc, broker.token(*allow(all_but(actions)))) as speaker:
        assert code_of(speaker.ask(kind, head, body)) == "forbidden"
    for action in actions:
        with Speaker(broker.ports.rpc, broker.token(*allow(action))) as speaker:
            assert code_of(speaker.ask(kind, head, body)) != "forbidden", action


@pytest.mark.parametrize("kind", OWN_FRAMES, ids=lambda kind: kind.name)
def test_a_frame_about_oneself_takes_any_token(broker: GuardedBroker, kind: Kind) -> None:
    head, body = OWN_FRAMES[kind]
    with Speaker(broker.ports.rpc, broker.token("nothing:push")) as speaker:
        if kind is Kind.CREDIT:  # it is never answered
            speaker.tell(kind, head, body)
            kind, (head, body) = Kind.UNSUBSCRIBE, OWN_FRAMES[Kind.UNSUBSCRIBE]
        assert code_of(speaker.ask(kind, head, body)) == "ok"


@pytest.mark.parametrize("method", CALL_ROWS)
def test_a_call_takes_just_what_it_needs(broker: GuardedBroker, method: str) -> None:
    params, actions = CALL_ROWS[method]
    if "task" in params:
        params = {"task": broker.wait_for(broker.engine.tasks.begin("orders", None, None))}
    insufficient = "*:push,pop,peek,manage" if ADMIN in actions else None
    lacking = [insufficient] if insufficient else allow(all_but(actions))
    if actions == ALL:
        lacking = ["other*:*", "*:admin"]
    with Speaker(broker.ports.rpc, broker.token(*lacking)) as speaker:
        assert code_of(speaker.call(method, **params)) == "forbidden"
    for action in actions:
        broker.wait_for(_restore(broker))
        with Speaker(broker.ports.rpc, broker.token(*allow(action))) as speaker:
            assert code_of(speaker.call(method, **params)) != "forbidden", action
    broker.wait_for(_restore(broker))


async def _restore(broker: GuardedBroker) -> None:
    """What a call may have deleted."""
    if "orders" not in broker.engine.queues:
        await broker.engine.create_queue("orders")
    if "news" not in broker.engine.topics:
        await broker.engine.create_topic("news")


@pytest.mark.parametrize("method", ["list_queues", "list_topics", "starts"])
def test_a_list_shows_only_what_the_caller_knows(broker: GuardedBroker, method: str) -> None:
    params: dict[str, Any] = KNOWING_CALLS[method]
    with Speaker(broker.ports.rpc, broker.token("orders:peek", "news:peek")) as speaker:
        answer = speaker.call(method, **params)
    assert code_of(answer) == "ok"
    assert answer is not None
    told = bytes(answer.body)
    assert (b"orders" in told) or (b"news" in told)
    assert b"other" not in told
    assert b"nexo.events" not in told


def test_following_finds_only_what_the_caller_may_read(broker: GuardedBroker) -> None:
    for topic in ("news", "other-news"):
        actor = broker.engine.topics[topic]
        broker.wait_for(_publish(actor))
    with Speaker(broker.ports.rpc, broker.token("news:peek", "other-news:push")) as speaker:
        answer = speaker.ask(Kind.FOLLOW, c.pack(c.Follow("*", {}, 10, 1000)))
    assert answer is not None
    assert b"news" in answer.head
    assert b"other-news" not in answer.head


async def _publish(actor: Any) -> None:
    await actor.publish(batch_of([b"told"]))


def test_forbidden_does_not_tell_whether_a_queue_is_there(broker: GuardedBroker) -> None:
    with Speaker(broker.ports.rpc, broker.token("mine:*")) as speaker:
        for name in ("orders", "not-there"):
            head = c.pack_pop(c.Pop(name, 1, 1000))
            assert code_of(speaker.ask(Kind.POP, head)) == "forbidden"
            assert code_of(speaker.call("queue_info", name=name)) == "forbidden"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("create_queue", {"name": "mine", "settings": {"dead_letter": "orders"}}),
        ("edit_queue", {"name": "mine", "settings": {"dead_letter": "orders"}}),
        ("redrive", {"name": "mine", "to": "orders"}),
        ("redrive_chosen", {"name": "mine", "incarnation": 1, "seqs": [1], "to": "orders"}),
        (
            "redrive_chosen",
            {"name": "orders_dlq", "incarnation": 1, "seqs": [1], "bodies": [b"x"]},
        ),
        ("resend", {"name": "mine", "id": "x", "to": "orders"}),
        ("resend", {"name": "orders_dlq", "id": "x"}),
        ("bind", {"topic": "news", "queue": "mine"}),
        ("bind", {"topic": "mine", "queue": "orders"}),
    ],
)
def test_managing_one_name_is_no_way_to_another(
    broker: GuardedBroker, method: str, params: dict[str, Any]
) -> None:
    with Speaker(broker.ports.rpc, broker.token("mine:*", "orders_dlq:*")) as speaker:
        assert code_of(speaker.call(method, **params)) == "forbidden"


def test_a_queue_that_is_there_need_not_be_managed_to_be_found(broker: GuardedBroker) -> None:
    with Speaker(broker.ports.rpc, broker.token("orders:push", "new:push")) as speaker:
        assert code_of(speaker.call("create_queue", name="orders", exist_ok=True)) == "ok"
        assert code_of(speaker.call("create_queue", name="new", exist_ok=True)) == "forbidden"


@pytest.mark.parametrize("method", ["redrive_progress", "redrive_cancel"])
def test_a_redrive_of_a_queue_that_is_not_known_is_as_if_it_were_not_there(
    broker: GuardedBroker, method: str
) -> None:
    task = broker.wait_for(broker.engine.tasks.begin("orders", None, None))
    with Speaker(broker.ports.rpc, broker.token("mine:*")) as speaker:
        answers = [speaker.call(method, task=each) for each in (task, task + 1_000)]
    assert [code_of(each) for each in answers] == ["redrive_not_found"] * 2
    assert all(b"orders" not in each.head for each in answers if each is not None)


def test_actions_are_those_of_the_manual() -> None:
    assert {*Action} == {*ALL, ADMIN}
