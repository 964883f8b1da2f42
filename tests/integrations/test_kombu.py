"""kombu's transport: what AMQP promises, as far as kombu asks for it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import kombu as typed_kombu
import msgspec
import pytest
from kombu.asynchronous import Hub

import nexo
from nexo.integrations import kombu as adapter
from nexo.integrations import kombu_entry
from nexo.testing import broker as broker_in_process
from tests.client.eventually import eventually
from tests.client.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.testing import Broker

kombu: Any = typed_kombu  # its names are there at run time only


@pytest.fixture
def connection(broker: Broker) -> Iterator[Any]:
    with kombu.Connection(broker.url) as connected:
        yield connected


def queue_of(name: str, kind: str = "direct", key: str = "key", **options: Any) -> Any:
    return kombu.Queue(name, kombu.Exchange(f"{name}-exchange", kind), key, **options)


def publish(connection: Any, queue: Any, body: Any, **options: Any) -> None:
    options = {"exchange": queue.exchange, "routing_key": queue.routing_key, **options}
    kombu.Producer(connection.default_channel).publish(body, declare=[queue], **options)


def drained(connection: Any, queues: list[Any], count: int, **options: Any) -> list[Any]:
    """So many messages of these queues, acked."""
    found: list[Any] = []

    def note(body: Any, message: Any) -> None:
        found.append(body)
        message.ack()

    with kombu.Consumer(connection, queues, callbacks=[note], **options):
        while len(found) < count:
            connection.drain_events(timeout=10)
    return found


def test_an_url_is_all_it_takes() -> None:
    """In a process of its own, where nobody has imported the adapter."""
    program = "import kombu.messaging, kombu; print(kombu.Connection('nexo://h:1').transport_cls)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "nexo\n", done.stderr
    program = "import celery, sys; celery.Celery; print('nexo.integrations.kombu' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_the_serializer(connection: Any, name: str) -> None:
    class Order(msgspec.Struct):
        id: int

    queue = queue_of(name)
    publish(connection, queue, Order(1), serializer="nexo")
    accept = [kombu_entry.serializer[2]]
    assert drained(connection, [queue], 1, accept=accept) == [{"id": 1}]


def test_priorities(connection: Any, name: str) -> None:
    queue = queue_of(name)
    for priority in (0, 9, 5, 255, 1000):
        publish(connection, queue, priority, priority=priority)
    assert drained(connection, [queue], 5) == [255, 1000, 9, 5, 0]


def test_a_time_to_come_is_held_by_the_broker(
    connection: Any, client: nexo.Client, name: str
) -> None:
    queue = queue_of(name)
    years = datetime.now(UTC) + timedelta(days=5 * 365)
    publish(connection, queue, "later", headers={"eta": years.isoformat()})
    publish(connection, queue, "soon", headers={"x-delay": 2_000})
    publish(connection, queue, "past", headers={"eta": "2020-01-01T00:00:00+00:00"})
    assert client.queue(name).info().scheduled == 2
    assert drained(connection, [queue], 2) == ["past", "soon"]
    eventually(lambda: client.queue(name).info().acked == 2)  # acks follow in batches
    (later,) = client.queue(name).peek()
    assert later.delayed_until
    assert abs(later.delayed_until - years) < timedelta(seconds=5)


@pytest.mark.parametrize(
    ("header", "delay"),
    [({}, None), ({"eta": None}, None), ({"x-delay": 1500}, 1.5), ({"eta": "1970-01-01"}, 0.0)],
)
def test_delays(header: dict[str, Any], delay: float | None) -> None:
    assert adapter.delay_of({"headers": header}, 100.0) == delay


def test_exchanges(connection: Any, name: str) -> None:
    fan = [kombu.Queue(f"{name}-{n}", kombu.Exchange(f"{name}-fan", "fanout")) for n in range(2)]
    top = kombu.Exchange(f"{name}-top", "topic")
    words = [kombu.Queue(f"{name}-{n}", top, key) for n, key in ((2, "a.*"), (3, "#"), (4, "b"))]
    direct = kombu.Exchange(f"{name}-direct", "direct")
    exact = [kombu.Queue(f"{name}-{n}", direct, key) for n, key in ((5, "x"), (6, "x"), (7, "y"))]
    for queue in [*fan, *words, *exact]:
        queue(connection.default_channel).declare()
    publish(connection, fan[0], "fan")
    publish(connection, words[0], "top", routing_key="a.b")
    publish(connection, exact[0], "direct", routing_key="x")
    expected = {0: "fan", 1: "fan", 2: "top", 3: "top", 5: "direct", 6: "direct"}
    for number, queue in enumerate([*fan, *words, *exact]):
        found = queue(connection.default_channel).get(no_ack=True)
        assert (found and found.payload) == expected.get(number), number


def test_another_process_sees_the_bindings(connection: Any, broker: Broker, name: str) -> None:
    queue = queue_of(name)
    queue(connection.default_channel).declare()
    with kombu.Connection(broker.url) as other:
        producer = kombu.Producer(other.default_channel)
        producer.publish("hello", exchange=queue.exchange.name, routing_key="key")
        queue(connection.default_channel).unbind_from(queue.exchange, "key")
        time.sleep(adapter.TABLE_S)
        producer.publish("unbound", exchange=queue.exchange.name, routing_key="key")
    assert drained(connection, [queue], 1) == ["hello"]
    assert queue(connection.default_channel).get() is None


def test_no_more_than_the_prefetch(connection: Any, client: nexo.Client, name: str) -> None:
    queue, held = queue_of(name), list[Any]()
    for number in range(5):
        publish(connection, queue, number)
    consumer = kombu.Consumer(connection, [queue], on_message=held.append, prefetch_count=2)
    with consumer:
        while len(held) < 2:
            connection.drain_events(timeout=10)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.3)
        assert [each.payload for each in held] == [0, 1]
        assert client.queue(name).info().in_flight == 2
        threading.Thread(target=held[0].ack).start()  # as pools do
        connection.drain_events(timeout=5)
        assert [each.payload for each in held] == [0, 1, 2]


def test_consumers_of_a_channel_share_its_prefetch(
    connection: Any, client: nexo.Client, name: str
) -> None:
    queues, held = [queue_of(f"{name}-{number}") for number in range(2)], list[Any]()
    for queue in queues * 2:
        publish(connection, queue, "a")

    def counts() -> tuple[int, int]:
        infos = [client.queue(queue.name).info() for queue in queues]
        return sum(each.in_flight for each in infos), sum(each.ready for each in infos)

    with kombu.Consumer(connection, queues, on_message=held.append, prefetch_count=2):
        eventually(lambda: counts() == (4, 0))  # two of each are here …
        while len(held) < 2:
            connection.drain_events(timeout=10)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.3)
        assert len(held) == 2  # … and two may be worked on
        threading.Timer(0.1, held[0].ack).start()
        began = time.monotonic()
        connection.drain_events(timeout=60)
        assert time.monotonic() - began < 30, "nobody was woken by the ack"
        assert len(held) == 3
    eventually(lambda: counts() == (2, 1))  # what nobody has seen goes back with the consumer


def test_what_is_rejected(connection: Any, client: nexo.Client, name: str) -> None:
    queue = queue_of(name)
    client.create_queue(name, dead_letter="{name}-dead")
    publish(connection, queue, "a", priority=7)
    bound = queue(connection.default_channel)
    first = bound.get()
    assert not first.delivery_info.get("redelivered")
    first.requeue()
    again = bound.get()
    assert again.payload == "a"
    assert again.delivery_info["redelivered"]
    again.reject()
    assert bound.get() is None
    eventually(lambda: client.queue(name).info().depth == 0)  # the copy first, then the ack
    (dead,) = client.queue(f"{name}-dead").peek()
    assert dead.attributes["reason"] == "rejected"
    assert dead.priority == 7


def test_what_lived_too_long(connection: Any, name: str) -> None:
    queue = queue_of(name)
    publish(connection, queue, "short", expiration=0.05)
    publish(connection, queue, "long", expiration=60)
    time.sleep(0.1)
    assert drained(connection, [queue], 1) == ["long"]


def test_a_closed_channel_gives_back(connection: Any, client: nexo.Client, name: str) -> None:
    queue, held = queue_of(name), list[Any]()
    for number in range(3):
        publish(connection, queue, number)
    channel = connection.channel()
    with kombu.Consumer(channel, [queue], on_message=held.append):
        while len(held) < 3:
            connection.drain_events(timeout=5)
        held[1].ack()
        channel.close()
    eventually(lambda: client.queue(name).info().ready == 2)
    info = client.queue(name).info()
    assert (info.acked, info.ready, info.nacked) == (1, 2, 0)


def test_a_message_that_comes_again_while_it_is_worked_on(broker: Broker, name: str) -> None:
    """After a broken connection the broker sends what was not acked; whoever is at it goes on."""
    relay = Relay(int(broker.url.rpartition(":")[2]))
    try:
        with kombu.Connection(f"nexo://127.0.0.1:{relay.port}") as connection:
            queue, held = queue_of(name), list[Any]()
            publish(connection, queue, "a")
            with kombu.Consumer(connection, [queue], on_message=held.append):
                connection.drain_events(timeout=5)
                relay.cut()
                eventually(lambda: connection.transport.nexo.connected)
                publish(connection, queue, "b")
                while len(held) < 2:
                    connection.drain_events(timeout=10)
                assert [each.payload for each in held] == ["a", "b"]
                for each in held:
                    each.ack()
                with broker.client() as client:
                    eventually(lambda: client.queue(name).info().acked == 2)
                    assert client.queue(name).info().depth == 0
    finally:
        relay.close()


def test_an_event_loop(connection: Any, name: str) -> None:
    queue, found, hub = queue_of(name), list[Any](), Hub()

    def note(body: Any, message: Any) -> None:
        found.append(body)
        message.ack()

    connection.register_with_event_loop(hub)
    with kombu.Consumer(connection, [queue], callbacks=[note]):
        for number in range(250):
            publish(connection, queue, number)
        loop = hub.create_loop()
        while len(found) < 250:
            next(loop)
    assert found == [*range(250)]
    hub.close()


def test_queues_that_delete_themselves(connection: Any, client: nexo.Client, name: str) -> None:
    queue = queue_of(name, auto_delete=True)
    consumer = kombu.Consumer(connection, [queue], on_message=print)
    with consumer:
        settings = client.queue(name).info().settings
        assert settings.max_attempts is None
        assert adapter.MARK in settings.tags
    eventually(lambda: name not in [each.name for each in client.queues()])


def test_what_processes_left_behind_is_swept() -> None:
    with broker_in_process() as own, own.client() as client:
        client.create_queue("old", tags={adapter.MARK: "1000"})
        client.create_queue("new", tags={adapter.MARK: str(int(time.time()))})
        client.create_queue("orders")
        client.create_queue("used", tags={adapter.MARK: "1000"})
        reply = adapter.topic_name("reply.celery.pidbox", "gone")
        client.create_topic(reply)
        client.create_topic(adapter.topic_name("orders", "key"))
        with client.queue("used").subscribe(), kombu.Connection(own.url) as connection:
            eventually(lambda: client.queue("used").info().consumers == 1)
            queue_of("temporary", auto_delete=True)(connection.default_channel).declare()
            left = {each.name for each in client.queues()}
            assert left == {"new", "orders", "used", "temporary"}
            topics = {each.name for each in client.topics()}
            assert reply not in topics
            assert adapter.topic_name("orders", "key") in topics


@pytest.mark.parametrize("name_there", ["celery@host.pidbox", "a b", "x" * 100, "orders"])
def test_names(name_there: str) -> None:
    named = adapter.queue_name(name_there)
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", named)
    assert (named == name_there) == (name_there == "orders")


@pytest.mark.parametrize("key", ["", "a.b", "#", "a.*.B_1", "ä@~", "celery"])
def test_binding_keys_are_read_back(key: str) -> None:
    assert adapter.unescaped(adapter.escaped(key, ".")) == key
    assert adapter.topic_name("my.exchange", key).startswith("kombu.my_2E_exchange.")
    assert len(adapter.topic_name("e" * 100, key)) <= 80


def test_a_broker_that_is_away() -> None:
    with (
        pytest.raises(kombu.Connection("nexo://").connection_errors),
        kombu.Connection("nexo://127.0.0.1:1", transport_options={"timeout": 0.2}) as connection,
    ):
        connection.connect()


@pytest.mark.parametrize(
    ("given", "scheme"),
    [
        ({"hostname": "nexo://host:1"}, "nexo"),
        ({"hostname": "nexos://host:1"}, "nexos"),
        ({"hostname": "host", "port": 1, "transport": "nexo.integrations.kombu:Transport"}, "nexo"),
    ],
)
def test_what_it_connects_to(
    given: dict[str, Any], scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def connect(address: str, **_: Any) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(nexo, "connect", connect)
    with pytest.raises(ConnectionRefusedError):
        kombu.Connection(**given).transport.establish_connection()
    assert asked == [f"{scheme}://host:1"]


def test_a_deleted_queue_ends_the_connection(
    connection: Any, client: nexo.Client, name: str
) -> None:
    """So Celery connects again, and declares the queue again."""
    queue = queue_of(name)
    with kombu.Consumer(connection, [queue], on_message=print):
        assert connection.connected
        client.queue(name).delete()
        with pytest.raises(ConnectionError, match=name):
            connection.drain_events(timeout=10)
        assert not connection.connected
        with pytest.raises(ConnectionError, match=name):  # nobody waits in vain
            connection.drain_events(timeout=10)


def test_a_connection_that_cannot_come_back(
    connection: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.connect()

    def wait(*_: Any) -> None:
        raise nexo.Unauthorized("the token was revoked")

    monkeypatch.setattr(connection.transport.nexo._connection, "wait", wait)
    transport = connection.transport
    transport._read(transport.nexo._connection)
    assert not connection.connected
    with pytest.raises(ConnectionError, match="revoked"):
        transport.drain_events(transport, timeout=10)


def test_consumers_take_turns(connection: Any, name: str) -> None:
    """None waits until another has nothing left."""
    found: list[str] = []

    def note(body: Any, message: Any) -> None:
        found.append(message.delivery_info["routing_key"])
        message.ack()

    queues = [queue_of(f"{name}-{each}", key=each) for each in "ab"]
    for queue in queues:
        for _ in range(20):
            publish(connection, queue, "x")
    with kombu.Consumer(connection, queues, callbacks=[note]) as consumer:
        subscriptions = [each[0] for each in consumer.channel._consuming.values()]
        eventually(lambda: all(each._state.held for each in subscriptions))
        while len(found) < 40:
            connection.drain_events(timeout=10)
    assert found[:10] in (["a", "b"] * 5, ["b", "a"] * 5)


def test_who_only_sends_has_no_thread_that_reads(connection: Any, name: str) -> None:
    before = threading.active_count()
    publish(connection, queue_of(name), "x")
    assert not connection.transport._is_read
    drained(connection, [queue_of(name)], 1)
    assert connection.transport._is_read
    assert threading.active_count() <= before + 3  # the keeper, the reader, and who sees to acks


def test_whoever_waits_for_ever_is_woken(connection: Any, broker: Broker, name: str) -> None:
    queue, found = queue_of(name), list[Any]()
    with kombu.Consumer(connection, [queue], on_message=found.append):
        waits = threading.Thread(target=connection.drain_events, daemon=True)
        waits.start()
        with kombu.Connection(broker.url) as other:
            publish(other, queue, "x")
        waits.join(30)
        assert not waits.is_alive()
        assert [each.payload for each in found] == ["x"]
        found[0].ack()
