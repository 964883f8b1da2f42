"""No request over RPC stops or stalls the broker, whoever sends it.

`make test` tries every field of every request with some of the hostile values, drawn by a seed that
a failure names; `make soak` tries all values with every kind of token.
"""

from __future__ import annotations

import socket
from random import Random
from typing import TYPE_CHECKING

import pytest

from nexo.wire.frame import Kind
from tests.access.speaker import Speaker
from tests.access.test_rpc_table import CALL_ROWS, KNOWING_CALLS
from tests.aimed import rpc
from tests.aimed.target import ALLOWED, QUEUE, TOPIC
from tests.client.test_fields import FIXED

if TYPE_CHECKING:
    from nexo.wire.frame import Frame
    from tests.aimed.rpc import Shot
    from tests.aimed.target import Target

SHARE = 0.08  # of the shots, in `make test`
DESTRUCTIVE = ("delete_queue", "delete_topic", "unbind", "edit_queue", "pause", "purge")


class Gunner:
    """Sends shots over one connection, and takes a new one when the broker hangs up."""

    def __init__(self, target: Target, token: str) -> None:
        self._target = target
        self._token = token
        self._speaker: Speaker | None = None

    def fire(self, shot: Shot) -> Frame | None:
        if self._speaker is None:
            self._speaker = Speaker(self._target.ports["rpc"], self._token)
        try:
            if shot.kind is Kind.CREDIT:  # it is never answered
                self._speaker.tell(shot.kind, shot.head, [shot.body])
                return None
            answer = self._speaker.ask(shot.kind, shot.head, [shot.body])
        except (ConnectionError, TimeoutError):
            answer = None
        if answer is None or answer.kind is Kind.GOODBYE:
            self.close()
        return answer

    def close(self) -> None:
        if self._speaker is not None:
            self._speaker.close()
            self._speaker = None


def attack(target: Target, shots: list[Shot], caller: str) -> None:
    gunner = Gunner(target, target.tokens[caller])
    for shot in shots:
        gunner.fire(shot)
        target.check(f"{shot.label} by {caller}")
        if shot.label.startswith(DESTRUCTIVE):
            target.restore()
    gunner.close()


@pytest.mark.parametrize("caller", ALLOWED)
def test_no_field_of_any_request_stops_the_others(
    target: Target, caller: str, pytestconfig: pytest.Config
) -> None:
    seed = int(pytestconfig.option.hypothesis_seed or 0)
    random = Random(f"{seed} {caller}")
    share = SHARE if caller == "everything" else SHARE / 8
    drawn = [shot for shot in rpc.shots() if random.random() < share]
    assert len(drawn) > 30
    attack(target, drawn, caller)


def test_nothing_before_the_greeting_stops_the_others(target: Target) -> None:
    for label, data in rpc.greetings():
        with socket.create_connection(("127.0.0.1", target.ports["rpc"]), timeout=10) as raw:
            raw.sendall(data)
        target.check(label)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("caller", ALLOWED)
def test_no_value_of_any_field_stops_the_others(target: Target, caller: str) -> None:
    attack(target, list(rpc.shots()), caller)


def test_every_request_is_aimed_at() -> None:
    labels = {shot.label.split(".")[0].split(" ")[0] for shot in rpc.shots()}
    assert {kind.name for kind in rpc.HEADS} | {kind.name for kind in FIXED} <= labels
    assert {*CALL_ROWS, *KNOWING_CALLS} <= labels
    assert (QUEUE, TOPIC) == ("orders", "news"), "the names of the table of requests"
