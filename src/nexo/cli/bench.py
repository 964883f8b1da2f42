"""`nexo bench …`: what this broker reaches, measured from here."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.parameters import command_group, parse_duration
from nexo.cli.progress import progress_bar
from nexo.cli.session import TIMEOUT_S, Session, takes_session

if TYPE_CHECKING:
    from nexo import AsyncQueue
    from nexo.cli.measurement import Result
    from nexo.cli.progress import Bar

    Measure = Callable[[AsyncQueue, Bar], Coroutine[Any, Any, list[Result]]]

app = command_group(
    "bench",
    """Measure a broker from this machine, on a queue of its own.

    \b
    Examples
      nexo bench throughput
      nexo bench latency --rate 500 --seconds 10
    """,
)

Size = Annotated[int, typer.Option(metavar="N", min=8, help="Bytes of each message.")]


@app.command()
@takes_session
def throughput(
    session: Session,
    count: Annotated[int, typer.Option(metavar="N", min=1, help="Messages.")] = 100_000,
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Messages in one call.")
    ] = 100,
    concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, max=1_000, help="Calls under way at once.")
    ] = 32,
    size: Size = 100,
) -> None:
    """How many messages a second go in, and out again with their acks.

    \b
    Examples
      nexo bench throughput
      nexo bench throughput --batch 1 --concurrency 64 --count 20000
      nexo bench throughput --json

    The times are those of single calls: a push returns when it is on disk.
    """
    from nexo.cli.measurement import measure_throughput

    def measure(queue: "AsyncQueue", bar: "Bar") -> Coroutine[Any, Any, "list[Result]"]:
        return measure_throughput(queue, bar, count, batch, concurrency, size)

    settings = {"count": count, "batch": batch, "concurrency": concurrency, "size": size}
    _run(session, "throughput", settings, 2 * count, measure)


@app.command()
@takes_session
def latency(
    session: Session,
    rate: Annotated[float, typer.Option(metavar="R", min=1.0, help="Messages a second.")] = 500.0,
    seconds: Annotated[
        float, typer.Option(metavar="DURATION", parser=parse_duration, help="How long.")
    ] = 5.0,
    size: Size = 100,
) -> None:
    """How long a push takes, and how long until a waiting consumer has the message.

    \b
    Examples
      nexo bench latency
      nexo bench latency --rate 2000 --seconds 30 --json

    Messages are sent at a steady rate, whatever the answers take.
    """
    from nexo.cli.measurement import measure_latency

    def measure(queue: "AsyncQueue", bar: "Bar") -> Coroutine[Any, Any, "list[Result]"]:
        return measure_latency(queue, bar, rate, seconds, size)

    settings = {"rate": rate, "seconds": seconds, "size": size}
    _run(session, "latency", settings, int(rate * seconds), measure)


def _run(
    session: Session, name: str, settings: dict[str, Any], total: int, measure: "Measure"
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
