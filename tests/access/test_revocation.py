"""A token ends at once, also for those who are connected, wait or subscribe."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.wire import commands as c
from nexo.wire.frame import Kind
from tests.access.speaker import Speaker, code_of
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from tests.access.guarded import GuardedBroker

pytestmark = pytest.mark.usefixtures("patient")
POP = c.pack_pop(c.Pop("orders", 1, 1000))


def test_an_open_connection_ends_with_its_token(broker: GuardedBroker) -> None:
    minted = broker.mint("orders:pop")
    with Speaker(broker.ports.rpc, minted.token) as speaker:
        assert code_of(speaker.ask(Kind.POP, POP)) == "ok"
        broker.revoke(minted)
        assert code_of(speaker.next()) == "unauthorized"
        assert speaker.next() is None


def test_the_connections_of_other_tokens_stay(broker: GuardedBroker) -> None:
    staying, going = broker.mint("orders:pop"), broker.mint("orders:pop")
    with Speaker(broker.ports.rpc, staying.token) as speaker:
        broker.revoke(going)
        assert code_of(speaker.ask(Kind.POP, POP)) == "ok"


def test_a_revoked_subscriber_gets_nothing_and_gives_back(broker: GuardedBroker) -> None:
    broker.wait_for(broker.engine.create_queue("given-back"))
    minted = broker.mint("given-back:pop")
    with nexo.connect(broker.url, token=broker.token("*:*")) as admin:
        queue = admin.queue("given-back")
        with Speaker(broker.ports.rpc, minted.token) as speaker:
            subscribe = c.pack(c.Subscribe("given-back", 1, 10))
            assert code_of(speaker.ask(Kind.SUBSCRIBE, subscribe)) == "ok"
            queue.push("held")
            delivered = speaker.next()
            assert delivered is not None
            assert delivered.kind is Kind.DELIVER
            admin.revoke_token(minted.defined.name)
            queue.push("after")
            assert code_of(speaker.next()) == "unauthorized"
            assert speaker.next() is None
        assert [each.text for each in queue.pop_batch(10, wait=5)] == ["held", "after"]


def test_a_long_poll_ends_with_its_token(broker: GuardedBroker) -> None:
    minted = broker.mint("other:pop")
    with Speaker(broker.ports.rpc, minted.token) as speaker:
        speaker.tell(Kind.POP, c.pack_pop(c.Pop("other", 1, 1000, 20_000)), [], 7)
        broker.run(lambda: None)
        broker.revoke(minted)
        assert code_of(speaker.next()) == "unauthorized"
    assert broker.run(lambda: broker.engine.queue("other").room.consumers) == 0


def test_an_open_connection_ends_when_its_token_expires(broker: GuardedBroker) -> None:
    minted = broker.mint("orders:pop", expires_after_ms=2_000)
    with Speaker(broker.ports.rpc, minted.token) as speaker:
        assert code_of(speaker.ask(Kind.POP, POP)) == "ok"
        began = time.monotonic()
        assert code_of(speaker.next()) == "unauthorized"
        assert time.monotonic() - began < 10


def test_an_admin_may_revoke_the_token_at_hand(broker: GuardedBroker) -> None:
    minted = broker.mint("*:*")
    with Speaker(broker.ports.rpc, minted.token) as speaker:
        assert code_of(speaker.call("revoke_token", name=minted.defined.name)) == "unauthorized"
    wanted = ("revoke_token", minted.defined.name, minted.defined.name, "done")

    def told() -> tuple[str, ...]:
        entry = broker.audit(1)[0]
        return entry.action, entry.who, entry.resource, entry.outcome

    eventually(lambda: told() == wanted)  # the goodbye comes before the line


def test_the_blocking_client_is_told(broker: GuardedBroker) -> None:
    minted = broker.mint("orders:*")
    with nexo.connect(broker.url, token=minted.token) as client:
        failed: list[nexo.NexoError] = []
        got = threading.Event()

        def consume() -> None:
            try:
                for _ in client.queue("orders").subscribe():
                    got.set()
            except nexo.NexoError as error:
                failed.append(error)

        thread = threading.Thread(target=consume)
        thread.start()
        client.queue("orders").push("x")
        assert got.wait(10)
        broker.revoke(minted)
        thread.join(10)
        assert not thread.is_alive()
        assert [error.code for error in failed] == ["unauthorized"]
        with pytest.raises(nexo.Unauthorized):
            client.queue("orders").push("y")


def test_the_asyncio_client_is_told(broker: GuardedBroker) -> None:
    minted = broker.mint("orders:*")

    async def scenario() -> None:
        async with nexo.connect_async(broker.url, token=minted.token) as client:
            queue = client.queue("orders")
            await queue.push("x")
            popping = asyncio.ensure_future(client.queue("orders").pop(wait=20))
            await popping
            await asyncio.to_thread(broker.revoke, minted)
            with pytest.raises(nexo.Unauthorized):
                await queue.push("y")

    asyncio.run(scenario())


def test_clients_read_the_token_from_the_environment_or_a_file(
    broker: GuardedBroker,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    token = broker.token("orders:push")
    monkeypatch.setenv("NEXO_TOKEN", token)
    with nexo.connect(broker.url) as client:
        client.queue("orders").push("x")
    file = tmp_path_factory.mktemp("secret") / "token"
    file.write_text(token + "\n")
    monkeypatch.setenv("NEXO_TOKEN", f"@{file}")
    with nexo.connect(broker.url) as client:
        client.queue("orders").push("x")
    with pytest.raises(nexo.InvalidArgument, match="cannot be read"):
        nexo.connect(broker.url, token="@/nowhere/to/be/found")
