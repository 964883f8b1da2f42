"""The longest step of a broker's event loop, by what users do with much in their queues.

The broker runs as `nexo serve` runs it, with its collector, in a process of its own. A step is one
callback of the event loop; what counts is the CPU time that it took. Until it ends nobody else is
answered. Now and then the system works for half a step in the name of a process, whatever that was
about to do, so each operation is done in two rounds, and the better one counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import multiprocessing
import shutil
import threading
import time
from time import thread_time
from typing import TYPE_CHECKING, Any

import nexo
from bench.result import Result
from nexo.engine.process import Collector, tune_process
from nexo.server.broker import Broker
from nexo.server.configuration import Configuration
from nexo.server.service import raise_descriptors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from nexo.client.aio.client import AsyncClient

BAR_MS = 20
ROUNDS = 2
MANY = 200_000
GROUPS = 100_000
LEASE = 10_000
QUEUES = 20_000
CONSUMERS = 1_000
WAITING = 9_000  # a connection has at most 10,000 requests that are not answered
BOUND = 5_000
BATCH = 100_000  # the most messages of one push
_SPAWN = multiprocessing.get_context("spawn")
_BODIES = [b'{"number": %d, "half": %d}' % (number, number % 2) for number in range(1_000)]


def run(directory: Path) -> list[Result]:
    results: list[Result] = []
    for part in (_dead_letters, _leases, _groups, _one_push, _consumers, _definitions):
        rounds = [_round(directory, part) for _ in range(ROUNDS)]
        each = zip(*rounds, strict=True)
        results += [min(of_one, key=lambda result: result.value) for of_one in each]
    shutil.rmtree(directory, ignore_errors=True)
    return results


def _round(directory: Path, part: Callable[[Watched], None]) -> list[Result]:
    shutil.rmtree(directory, ignore_errors=True)
    with _watched(directory) as broker:
        part(broker)
    return broker.results


# -- The broker -----------------------------------------------------------------------------------


class Watched:
    """A broker whose steps are measured, as who drives it sees it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.http_port, rpc_port = pipe.recv()
        self.url = f"nexo://127.0.0.1:{rpc_port}"
        self.client = nexo.connect(self.url, timeout=120)
        self.results: list[Result] = []

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """What is done inside of this is one line of the table."""
        self._worst_ms()
        yield
        worst_ms = self._worst_ms()
        self.results.append(Result(f"longest step: {name}", worst_ms, "ms", BAR_MS, "most"))

    def get(self, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=120)
        connection.request("GET", path)
        assert connection.getresponse().read(), path
        connection.close()

    def _worst_ms(self) -> float:
        self._pipe.send("worst")
        worst_ms: float = self._pipe.recv()
        return worst_ms


@contextlib.contextmanager
def _watched(directory: Path) -> Iterator[Watched]:
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_run_broker, args=(str(directory), there))
    process.start()
    broker = Watched(here)
    try:
        yield broker
    finally:
        broker.client.close()
        with broker.step("stop with what is left"):
            here.send("stop")
        here.send("end")
        process.join()


def _run_broker(directory: str, pipe: Connection) -> None:
    tune_process()
    raise_descriptors()
    honest, worst_s = asyncio.Handle._run, [0.0]

    def measured(handle: asyncio.Handle) -> None:
        began_s = thread_time()
        honest(handle)
        worst_s[0] = max(worst_s[0], thread_time() - began_s)

    setattr(asyncio.Handle, "_run", measured)  # noqa: B010 - the types do not allow it
    asyncio.run(_serve(directory, pipe, worst_s))


async def _serve(directory: str, pipe: Connection, worst_s: list[float]) -> None:
    asked: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def listen() -> None:
        while (said := pipe.recv()) != "end":
            loop.call_soon_threadsafe(asked.put_nowait, said)
        loop.call_soon_threadsafe(asked.put_nowait, "end")

    broker = Broker(Configuration(data=directory, http_port=0, rpc_port=0, udp="off"))
    ports = await broker.start()
    Collector().begin()
    threading.Thread(target=listen, daemon=True).start()
    pipe.send((ports.http, ports.rpc))
    while (said := await asked.get()) != "end":
        if said == "stop":
            await broker.stop()
        else:
            told_ms, worst_s[0] = worst_s[0] * 1000, 0.0
            pipe.send(told_ms)


# -- What users do --------------------------------------------------------------------------------


def _dead_letters(broker: Watched) -> None:
    client, queue = broker.client, broker.client.create_queue("bad", max_attempts=1)
    _fill(queue)

    async def nack_all(there: AsyncClient) -> None:
        """Each by itself and without waiting, so every second dead letter has another reason."""
        while len(popped := await there.queue("bad").pop_batch(2_000)):
            reasons = ["odd" if number % 2 else "even" for number in range(len(popped))]
            nacks = zip(popped, reasons, strict=True)
            await asyncio.gather(*[message.nack(reason=reason) for message, reason in nacks])

    with broker.step(f"{MANY:,} nacks, 2,000 at once"):
        asyncio.run(_with(broker.url, nack_all))
    dead = client.queue("bad_dlq")
    while dead.info().ready < MANY:
        time.sleep(0.1)
    with broker.step(f"redrive of every second of {MANY:,} dead letters"):
        assert dead.redrive(reason="odd") == MANY // 2
    with broker.step(f"search by text, and discard of {MANY // 2:,} by reason"):
        assert dead.count('"half": 0') == MANY // 2
        assert dead.discard(reason="even") == MANY // 2
    with broker.step(f"purge of {MANY // 2:,}"):
        queue.purge()


def _leases(broker: Watched) -> None:
    queue = broker.client.create_queue("work", visibility_timeout=600)
    _fill(queue)
    held = [list(queue.pop_batch(LEASE)) for _ in range(MANY // LEASE)]
    with broker.step(f"acks of every second of {MANY // 2:,} on leases of {LEASE:,}"):
        for messages in held[::2]:
            queue.ack_batch(messages[::2])
    with broker.step(f"nacks of every second of {MANY // 2:,}"):
        for messages in held[1::2]:
            queue.nack_batch(messages[::2])
    with broker.step("pops of what came back, each a run by itself"):
        while len(queue.pop_batch(LEASE)):
            pass
    with broker.step("all leases time out"):
        queue.edit(visibility_timeout=1)
        for messages in held:
            queue.extend_batch(messages, 1)
        time.sleep(3)
    with broker.step("retention of what is scattered"):
        queue.edit(retention=1)
        time.sleep(3)


def _groups(broker: Watched) -> None:
    queue = broker.client.create_queue("groups.fifo", fifo=True, visibility_timeout=600)
    with broker.step(f"pushes of {MANY:,} messages of {GROUPS:,} groups"):
        for start in range(0, MANY, 1_000):
            numbers = range(start, start + 1_000)
            queue.push_batch(
                _BODIES,
                group_id=[f"group {number % GROUPS}" for number in numbers],
                deduplication_ids=[str(number) for number in numbers],
            )
    with broker.step("first pop of them"):
        first = queue.pop_batch(10)
    with broker.step("pops of all groups"):
        queue.ack_batch(first)
        while len(queue.pop_batch(1_000)):
            pass
    with broker.step("deletion of the queue"):
        queue.delete()
        time.sleep(1)


def _one_push(broker: Watched) -> None:
    """One push with as many messages as it may have, and what follows from it."""
    bodies = [b"%d" % number for number in range(BATCH)]
    ids: list[str | None] = [f"number {number}" for number in range(BATCH)]
    for is_fifo in (True, False):
        kind, name = ("FIFO", "one.fifo") if is_fifo else ("standard", "one")
        queue = broker.client.create_queue(name, fifo=is_fifo, visibility_timeout=600)
        with broker.step(f"one push of {BATCH:,} messages of as many groups, {kind} queue"):
            queue.push_batch(bodies, group_id=ids)
            time.sleep(1)
        with broker.step(f"pops of {BATCH // 5:,} of them"):
            for _ in range(BATCH // 5_000):
                queue.pop_batch(1_000)
        queue.delete()
    queue = broker.client.create_queue("once", deduplication="id")
    with broker.step(f"one push of {BATCH:,} messages with deduplication ids"):
        queue.push_batch(bodies, deduplication_ids=ids)
        time.sleep(1)
    with broker.step("one push of 64 MB"):
        queue.push_batch([bytes(64 * 1024)] * 1_000)
        time.sleep(1)


def _consumers(broker: Watched) -> None:
    broker.client.create_queue("work", visibility_timeout=600)
    broker.client.create_queue("empty")

    async def subscribe() -> None:
        there = [nexo.connect_async(broker.url, timeout=120) for _ in range(CONSUMERS)]
        await asyncio.gather(*[each.__aenter__() for each in there])
        subscriptions = [each.queue("work").subscribe(prefetch=50) for each in there]
        with broker.step(f"{MANY // 4:,} messages for {CONSUMERS:,} consumers"):
            waiting = [asyncio.ensure_future(each.get(60)) for each in subscriptions]
            for _ in range(MANY // 4_000):
                await there[0].queue("work").push_batch(_BODIES)
            await asyncio.gather(*waiting)
        with broker.step(f"console page of {CONSUMERS:,} consumers"):
            await asyncio.to_thread(broker.get, "/console/consumers")
        with broker.step(f"{CONSUMERS:,} consumers leave"):
            await asyncio.gather(*[each.close() for each in there])
            await asyncio.sleep(2)

    async def wait(there: AsyncClient) -> None:
        with broker.step(f"{WAITING:,} pops that wait, and their queue is deleted"):
            pops = [asyncio.ensure_future(there.queue("empty").pop(60)) for _ in range(WAITING)]
            await asyncio.sleep(3)
            await there.queue("empty").delete()
            await asyncio.gather(*pops, return_exceptions=True)

    asyncio.run(subscribe())
    asyncio.run(_with(broker.url, wait))


def _definitions(broker: Watched) -> None:
    client = broker.client
    document = {
        "queues": [{"name": f"queue-{number}"} for number in range(QUEUES)],
        "topics": [{"name": "news"}],
        "bindings": [{"topic": "news", "queue": f"queue-{number}"} for number in range(BOUND)],
    }
    with broker.step(f"import of {QUEUES:,} queues, twice"):
        client.import_definitions(document)
        client.import_definitions(document)
    with broker.step("export of them"):
        client.export_definitions()
    with broker.step("list of them"):
        client.queues()
    with broker.step("/metrics of them"):
        broker.get("/metrics")
    with broker.step("first pages of the console"):
        for page in ("", "/queues", "/dead-letters", "/topics", "/queues/queue-1"):
            broker.get(f"/console{page}")
    for bound in (BOUND // 5, BOUND):
        name = f"news-{bound}"
        client.create_topic(name)
        each = range(bound)
        bindings = [{"topic": name, "queue": f"queue-{number}"} for number in each]
        client.import_definitions({"bindings": bindings})
        with broker.step(f"publish to {bound:,} bound queues"):
            client.topic(name).publish(b"x")
            time.sleep(1)


def _fill(queue: Any) -> None:
    for _ in range(MANY // len(_BODIES)):
        queue.push_batch(_BODIES)


async def _with(url: str, work: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async with nexo.connect_async(url, timeout=120) as there:
        await work(there)
