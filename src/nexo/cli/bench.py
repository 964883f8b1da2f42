"""`nexo bench …`: what this broker reaches, measured from here: a load on one queue, and how long
each call took."""

import struct
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.parameters import command_group, parse_duration
from nexo.cli.progress import progress_bar
from nexo.cli.session import TIMEOUT_S, Session, takes_session

if TYPE_CHECKING:
    from nexo import AsyncQueue
    from nexo.cli.progress import Bar

    Measured = Coroutine[Any, Any, "list[Result]"]

app = command_group(
    "bench",
    """Measure a broker from this machine, on a temporary queue.

    \b
    Examples
      nexo bench throughput
      nexo bench latency --rate 500 --seconds 10
    """,
)

DRAIN_S = 5.0  # how long the last messages may take to arrive
_SENT_AT = struct.Struct("<d")
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}

Size = Annotated[int, typer.Option(metavar="N", min=8, help="Message size in bytes.")]


@app.command()
@takes_session
def throughput(
    session: Session,
    count: Annotated[int, typer.Option(metavar="N", min=1, help="Number of messages.")] = 100_000,
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Messages per call.")
    ] = 100,
    concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, max=1_000, help="Concurrent calls.")
    ] = 32,
    size: Size = 100,
) -> None:
    """Measure messages per second: pushed, then popped and acked.

    \b
    Examples
      nexo bench throughput
      nexo bench throughput --batch 1 --concurrency 64 --count 20000
      nexo bench throughput --json

    The percentiles are the times of single calls. A push returns when its
    messages are on disk.
    """

    def measure(queue: "AsyncQueue", bar: "Bar") -> "Measured":
        return measure_throughput(queue, bar, count, batch, concurrency, size)

    settings = {"count": count, "batch": batch, "concurrency": concurrency, "size": size}
    _run(session, "throughput", settings, 2 * count, measure)


@app.command()
@takes_session
def latency(
    session: Session,
    rate: Annotated[
        float,
        typer.Option(metavar="R", min=1, help="Messages per second.", show_default="500"),
    ] = 500.0,
    seconds: Annotated[
        float,
        typer.Option(
            metavar="DURATION",
            parser=parse_duration,
            help="Duration of the test.",
            show_default="5s",
        ),
    ] = 5.0,
    size: Size = 100,
) -> None:
    """Measure the time of a push, and the time until a waiting consumer has it.

    \b
    Examples
      nexo bench latency
      nexo bench latency --rate 2000 --seconds 30 --json

    Messages are sent at a steady rate, no matter how long the answers take.
    """

    def measure(queue: "AsyncQueue", bar: "Bar") -> "Measured":
        return measure_latency(queue, bar, rate, seconds, size)

    settings = {"rate": rate, "seconds": seconds, "size": size}
    _run(session, "latency", settings, int(rate * seconds), measure)


def _run(
    session: Session,
    name: str,
    settings: dict[str, Any],
    total: int,
    measure: "Callable[[AsyncQueue, Bar], Measured]",
) -> None:
    import secrets

    import nexo
    from nexo.engine.process import run

    session.require_broker()

    async def bench() -> "list[Result]":
        async with nexo.connect_async(
            session.url, token=session.token, timeout=TIMEOUT_S, tls_ca=session.tls_ca
        ) as client:
            queue = await client.create_queue(f"bench-{secrets.token_hex(4)}")
            try:
                with progress_bar(session, f"bench {name}", total) as bar:
                    return await measure(queue, bar)
            finally:
                await queue.delete()

    results = run(bench())
    if session.as_json:
        documents = {each.name: each.document() for each in results}
        session.document({"bench": name, "url": session.url, "settings": settings, **documents})
        return
    from nexo.cli.tables import console, plain_table

    columns = ("messages/s", "p50", "p90", "p99", "p99.9", "max")
    table = plain_table("", *columns, right=columns)
    for each in results:
        table.add_row(
            each.name, f"{each.rate:,.0f}", *[f"{ms:.2f} ms" for ms in each.percentiles()]
        )
    console().print(table)


class Result:
    """How many messages in how many seconds, and what each call took."""

    def __init__(self, name: str, messages: int, seconds: float, took_s: list[float]) -> None:
        self.name = name
        self.messages = messages
        self.seconds = seconds
        self._took_ms = sorted(each * 1000 for each in took_s)

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds > 0 else 0.0

    def percentiles(self) -> list[float]:
        """In milliseconds: p50, p90, p99, p99.9 and the longest."""
        took = self._took_ms or [0.0]
        return [took[min(int(share * len(took)), len(took) - 1)] for share in _SHARES.values()]

    def document(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "seconds": self.seconds,
            "rate": self.rate,
            "latency_ms": dict(zip(_SHARES, self.percentiles(), strict=True)),
        }


async def measure_throughput(
    queue: "AsyncQueue", bar: "Bar", count: int, batch: int, concurrency: int, size: int
) -> list[Result]:
    """Push everything, then pop and ack everything, with so many calls under way at once."""
    left = count
    bodies = [b"x" * size] * batch

    async def push() -> int:
        nonlocal left
        amount = min(batch, left)
        left -= amount
        if amount:
            await queue.push_batch(bodies[:amount])
        return amount

    async def pop() -> int:
        messages = await queue.pop_batch(batch)
        if messages:
            await queue.ack_batch(messages)
        return len(messages)

    pushed = await _repeat("push", push, bar, concurrency)
    popped = await _repeat("pop + ack", pop, bar, concurrency)
    return [pushed, popped]


async def _repeat(
    name: str, step: Callable[[], Awaitable[int]], bar: "Bar", concurrency: int
) -> Result:
    """Do it again and again, in so many tasks, until there is nothing more to do."""
    import asyncio

    took: list[float] = []
    done = 0

    async def work() -> None:
        nonlocal done
        while True:
            began = time.perf_counter()
            amount = await step()
            if not amount:
                return
            took.append(time.perf_counter() - began)
            done += amount
            bar.advance(amount)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(work())
    return Result(name, done, time.perf_counter() - began, took)


async def measure_latency(
    queue: "AsyncQueue", bar: "Bar", rate: float, seconds: float, size: int
) -> list[Result]:
    """Send at a steady rate, and see when the push returns and when the message arrives."""
    import asyncio

    total = int(rate * seconds)
    pushes: list[float] = []
    arrivals: list[float] = []
    arrived = asyncio.Event()

    async def push(due: float) -> None:
        await queue.push(_SENT_AT.pack(due).ljust(size, b"x"))
        pushes.append(time.perf_counter() - due)

    async def receive() -> None:
        async for message in queue.subscribe(prefetch=1_000):
            (sent_at,) = _SENT_AT.unpack_from(message.body)
            arrivals.append(time.perf_counter() - sent_at)
            bar.advance(1)
            acks.append(asyncio.create_task(message.ack()))
            if len(arrivals) == total:
                arrived.set()
                return

    acks: list[asyncio.Task[None]] = []
    receiver = asyncio.create_task(receive())
    await asyncio.sleep(0.1)  # the subscription is under way before the first message
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(total):
            due = began + number / rate
            await asyncio.sleep(due - time.perf_counter())
            tasks.create_task(push(due))
    try:
        await asyncio.wait_for(arrived.wait(), DRAIN_S)
    finally:
        receiver.cancel()
        await asyncio.gather(*acks, return_exceptions=True)
    took = time.perf_counter() - began
    return [
        Result("push to disk", len(pushes), took, pushes),
        Result("push to consumer", len(arrivals), took, arrivals),
    ]
