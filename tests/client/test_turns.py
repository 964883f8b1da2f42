"""One read brings very many frames: they are taken some at a time, in order, and none is lost. The
clock goes on by a millisecond with every look at it, so a turn is a number of frames."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from nexo.doors.rpc_tcp import inbox
from nexo.doors.rpc_tcp.handlers import HANDLERS
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import Unauthorized
from nexo.vocabulary.limits import RPC_TURN_MS
from nexo.wire import commands as c
from nexo.wire.columns import encode_batch
from nexo.wire.frame import Kind, frame
from tests.client.test_slow_clients import Client, on_a_rig
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.queue_actor import QueueActor
    from tests.engine.rig import Rig

MANY = 100
ONE = b"".join(encode_batch(batch_of([b"x"])))


@pytest.fixture(autouse=True)
def _ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(inbox, "perf_counter", lambda: next(ticks) / 1000)


def pushes(times: int = MANY) -> bytes:
    head = c.pack_push(c.Push("orders"))
    return b"".join(frame(Kind.PUSH, 10 + number, head, ONE) for number in range(times))


def orders(rig: Rig) -> QueueActor:
    assert rig.engine is not None
    return rig.engine.queue("orders")


def test_a_read_of_many_frames_leaves_others_their_turns() -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.connection.data_received(pushes())
        taken = [orders(rig).info().pushed]
        assert not client.line.is_read_from, "more is read though there is enough to do"
        while taken[-1] < MANY:
            await asyncio.sleep(0)
            taken.append(orders(rig).info().pushed)
        steps = [after - before for before, after in zip([0, *taken], taken, strict=False)]
        assert max(steps) <= RPC_TURN_MS + 1, f"{max(steps)} frames in one turn"
        await settle()
        answers = [each.correlation for each in client.line.arrived if each.kind is Kind.OK]
        assert answers == [10 + number for number in range(MANY)]
        assert client.line.is_read_from

    on_a_rig(test)


def test_what_comes_meanwhile_is_taken_behind_it() -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.connection.data_received(pushes())
        client.connection.data_received(frame(Kind.POP, 5, c.pack_pop(c.Pop("orders", 1, 1, 0))))
        assert orders(rig).info().pushed < MANY
        await settle()
        answers = [each.correlation for each in client.line.arrived if each.kind is Kind.OK]
        assert sorted(answers) == [5, *[10 + number for number in range(MANY)]]
        assert orders(rig).info().delivered == 1

    on_a_rig(test)


def test_acks_of_a_client_that_is_gone_are_done_first() -> None:
    """Else messages that were processed would come again."""

    async def test(rig: Rig, client: Client) -> None:
        await orders(rig).push(batch_of([b"%d" % number for number in range(MANY)]))
        client.connection.data_received(
            frame(Kind.SUBSCRIBE, 3, c.pack(c.Subscribe("orders", 1, MANY)))
        )
        await settle()
        (lease,) = orders(rig).queue.leases
        client.connection.data_received(
            frame(Kind.RECEIVED, 0, c.pack_ranges("orders", [(lease, 0, MANY)]))
        )
        acks = [
            frame(Kind.ACK, 0, c.pack_ranges("orders", [(lease, number, number + 1)]))
            for number in range(MANY)
        ]
        client.connection.data_received(b"".join(acks))
        client.leave()
        assert orders(rig).info().acked < MANY
        await settle()
        assert orders(rig).info().acked == MANY
        assert orders(rig).info().depth == 0

    on_a_rig(test, leaves=False)


def test_nothing_is_left_of_a_client_that_is_gone() -> None:
    async def test(rig: Rig, client: Client) -> None:
        assert rig.engine is not None
        client.connection.data_received(pushes())
        client.leave()
        assert client.connection in client.peers
        await settle()
        assert not client.peers
        assert not list(rig.engine.connections.numbers())
        assert orders(rig).info().pushed == MANY

    on_a_rig(test, leaves=False)


def test_a_frame_that_is_wrong_ends_what_follows_it() -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.connection.data_received(pushes(20) + frame(Kind.OK, 7) + pushes(20))
        await settle()
        assert orders(rig).info().pushed == 20
        assert client.line.arrived[-1].kind is Kind.GOODBYE

    on_a_rig(test)


def test_a_token_that_is_revoked_does_nothing_more() -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.connection.data_received(pushes())
        before = orders(rig).info().pushed
        assert before < MANY
        client.connection.end(Unauthorized("the token was revoked"))
        await settle()
        assert orders(rig).info().pushed == before

    on_a_rig(test)


def test_a_defect_of_ours_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does in a read of one frame: nobody is left waiting for answers that never come."""
    told: list[Any] = []

    async def test(rig: Rig, client: Client) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        aborted: list[bool] = []
        monkeypatch.setattr(client.line, "abort", lambda: aborted.append(True))
        monkeypatch.setitem(HANDLERS, Kind.EXTEND, _fail)
        client.connection.data_received(pushes(20) + frame(Kind.EXTEND, 7) + pushes(20))
        await settle()
        assert aborted
        assert orders(rig).info().pushed == 20
        assert [str(each["exception"]) for each in told] == ["a defect"]

    on_a_rig(test)


def _fail(*_: Any) -> None:
    raise RuntimeError("a defect")


def test_a_revoked_token_of_many_connections_ends_each_in_a_turn_of_its_own() -> None:
    async def test(rig: Rig, client: Client) -> None:
        assert rig.engine is not None
        others = [Client(rig.engine) for _ in range(5)]
        for each in others:
            await each.ask(Kind.SUBSCRIBE, c.pack(c.Subscribe("orders", 1, 1)))
        before = [len(each.line.arrived) for each in others]
        for each in others:
            each.connection._expel(Unauthorized("the token was revoked"))
            each.connection.data_received(pushes(1))
        rig.engine.queue("orders").push(batch_of([b"x"] * 9))
        assert [len(each.line.arrived) for each in others] == before, "all is done in one step"
        await settle()
        told = [each.line.arrived[-1].kind for each in others]
        assert told == [Kind.GOODBYE] * 5
        assert [len(each.line.arrived) for each in others] == [count + 1 for count in before]
        assert orders(rig).info().pushed == 9
        assert orders(rig).info().ready == 9, "what was handed out to them has come back"
        for each in others:
            each.leave()

    on_a_rig(test)
