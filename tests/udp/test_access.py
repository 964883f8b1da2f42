"""Tokens: who may do what, where access control is on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from nexo.access.guard import Guard
from nexo.access.tokens import mint
from nexo.doors.json_udp.door import UdpDoor
from tests.udp.talking import Talking

if TYPE_CHECKING:
    from collections.abc import Iterator

NEAR, FAR = ("127.0.0.1", 40_000), ("203.0.113.9", 40_000)
REFUSED = {"status": "error", "error": "Non autorizzato", "code": "unauthorized"}
FORBIDDEN = {**REFUSED, "code": "forbidden"}
REQUESTS: list[dict[str, Any]] = [
    {"action": "publish", "topic": "news", "payload": "p"},
    {"action": "subscribe", "topic": "news"},
    {"action": "get", "topic": "news"},
    {"action": "unsubscribe", "topic": "news"},
    {"action": "subscribe", "topic": "news", "group": "g"},
    {"action": "get", "topic": "news", "group": "g"},
    {"action": "ack", "topic": "news", "group": "g", "ids": ["a"]},
]


class Guarded(Talking):
    def __init__(self) -> None:
        super().__init__(self._guard)
        self._defined: dict[str, Any] = {}
        self.guard: Guard

    def token(self, *allow: str) -> str:
        minted = mint(f"token-{len(self._defined)}", allow, self.engine.now_ms())
        self._defined[minted.defined.name] = minted.defined
        self.guard.adopt(self._defined)
        return minted.token

    def may(self, token: str) -> list[dict[str, Any]]:
        """The requests that this token is not refused."""
        return [
            request
            for request in REQUESTS
            if self.ask({**request, "token": token}, NEAR).get("error") != "Non autorizzato"
        ]

    def _guard(self, _: Talking) -> None:
        self.guard = Guard(self.engine.now_ms, is_required=True)
        self.door = UdpDoor(self.engine, self.guard, lambda: self.now_s)


@pytest.fixture
def talking() -> Iterator[Guarded]:
    with Guarded() as started:
        yield started


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
@pytest.mark.parametrize("token", [None, "", "bad", "è", "x" * 9_000, 7, ["nexo"]], ids=repr)
def test_a_missing_or_wrong_token(talking: Guarded, request_: dict[str, Any], token: Any) -> None:
    right = talking.token("*:*")
    wrong = right[:-4] + "aaaa"
    before = talking.engine.queues.keys() | talking.engine.topics.keys()
    for _ in range(15):  # however often it is tried
        shown = {**request_, "token": token} if token is not None else request_
        assert talking.raw(shown, NEAR) == json.dumps(REFUSED).encode()
        assert talking.ask({**request_, "token": wrong}, NEAR) == REFUSED
    assert talking.engine.queues.keys() | talking.engine.topics.keys() == before
    assert len(talking.door.subscriptions) == 0
    assert talking.ask({**request_, "token": right}, NEAR).get("code") != "unauthorized"


def test_what_a_datagram_brings_about_is_in_the_audit_log(talking: Guarded) -> None:
    member, maker = talking.token("*:pop,push"), talking.token("*:*")
    joining = REQUESTS[4]
    assert talking.ask({**joining, "token": member}, NEAR) == FORBIDDEN
    for _ in range(2):  # the second time everything is there
        for request in REQUESTS:
            talking.ask({**request, "token": maker}, NEAR)
    assert talking.ask({**joining, "token": member}, NEAR)["status"] == "success"
    told = [
        (each.who, each.peer, each.door, each.action, each.resource, each.outcome)
        for each in reversed(talking.guard.audit.read(10))
    ]
    near = ("127.0.0.1", "udp")
    assert told == [
        ("token-0", *near, "bind", "news news.g", "forbidden"),
        ("token-1", *near, "create_topic", "news", "done"),
        ("token-1", *near, "bind", "news news.g", "done"),
    ]


def test_what_tokens_allow(talking: Guarded) -> None:
    publish, plain, groups = REQUESTS[:1], REQUESTS[1:4], REQUESTS[4:]
    assert talking.may(talking.token("other:*")) == []
    assert talking.may(talking.token("news:push")) == publish
    assert talking.may(talking.token("news:pop")) == plain
    assert talking.may(talking.token("news:peek")) == plain
    # A group that is not there has to be created by somebody who may.
    assert talking.may(talking.token("news.g:pop")) == groups[2:]
    assert talking.may(talking.token("news:pop", "news.g:pop")) == plain + groups[2:]
    assert talking.may(talking.token("news.g:pop,manage")) == groups[2:]
    assert talking.may(talking.token("news:peek", "news.g:pop,manage")) == plain + groups
    assert talking.may(talking.token("news.g:pop")) == groups
    assert talking.may(talking.token("news:pop")) == plain
    forbidden = talking.ask({**REQUESTS[0], "token": talking.token("news:pop")}, NEAR)
    assert forbidden == FORBIDDEN


def test_who_may_create_a_topic(talking: Guarded) -> None:
    join, publish = REQUESTS[4], REQUESTS[0]
    refused = talking.ask({**join, "token": talking.token("news*:pop", "news.g:manage")}, NEAR)
    assert refused == FORBIDDEN
    assert "news" not in talking.engine.topics
    assert (
        talking.ask({**publish, "token": talking.token("news:push")}, NEAR)["status"] == "success"
    )
    assert "news" in talking.engine.topics


def test_a_revoked_token(talking: Guarded) -> None:
    token = talking.token("*:*")
    assert talking.may(token) == REQUESTS
    talking.guard.adopt({})
    assert talking.may(token) == []


def test_a_token_vouches_for_its_sender(talking: Guarded) -> None:
    """Wherever it is: it gets all that it asks for."""
    token = talking.token("news:push,pop")
    for number in range(40):
        talking.ask({**REQUESTS[0], "payload": number, "token": token}, NEAR)
    assert "cookie" not in talking.ask({**REQUESTS[1], "token": token}, FAR)
    got = talking.ask({**REQUESTS[2], "token": token}, FAR)
    assert [each["payload"] for each in got["messages"]] == list(range(40))
