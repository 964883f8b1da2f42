"""`nexo top`: the queues of a broker, live."""

import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.parameters import parse_duration
from nexo.cli.session import Ending, Session, takes_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from nexo import QueueInfo

FIRST_S = 0.5  # rates need two looks: how long the first ones are apart
_TOTALS = {"pushed": "push_rate", "delivered": "deliver_rate", "acked": "ack_rate"}


class Order(StrEnum):
    NAME = "name"
    DEPTH = "depth"
    RATE = "rate"


@takes_session
def top(
    session: Session,
    once: Annotated[bool, typer.Option("--once", help="One look, then the end.")] = False,
    interval: Annotated[
        float,
        typer.Option(metavar="DURATION", parser=parse_duration, help="How often to look."),
    ] = 1.0,
    sort: Annotated[Order, typer.Option(help="What comes first.")] = Order.NAME,
) -> None:
    """Watch the queues: depth, ages, rates, dead letters.

    \b
    Examples
      nexo top
      nexo top --once
      nexo top --json --interval 5s | jq '.queues[].depth'

    Ctrl-C ends it.
    """
    with session.client() as client, Ending() as ending:
        look = Look(client.queues())
        ending.sleep(min(FIRST_S, interval))
        look = look.after(client.queues())
        if once or session.as_json or not sys.stdout.isatty():
            _print(session, look, sort)
            while not once and not ending.is_near:
                ending.sleep(interval)
                look = look.after(client.queues())
                _print(session, look, sort)
            return
        from rich.live import Live

        from nexo.cli.tables import console

        with Live(
            _page(session, look, sort), console=console(), screen=True, refresh_per_second=4
        ) as live:
            while not ending.is_near:
                ending.sleep(interval)
                look = look.after(client.queues())
                live.update(_page(session, look, sort), refresh=True)


class Look:
    """The figures of all queues at one moment, with rates since the look before."""

    def __init__(self, infos: "Sequence[QueueInfo]", before: "Look | None" = None) -> None:
        self.at = time.perf_counter()
        self.infos = {info.name: info for info in infos}
        self.rates: dict[str, dict[str, float]] = {}
        for name, info in self.infos.items():
            earlier = before.infos.get(name) if before is not None else None
            seconds = self.at - before.at if before is not None else 1.0
            self.rates[name] = {
                rate: max(0.0, getattr(info, total) - getattr(earlier or info, total)) / seconds
                for total, rate in _TOTALS.items()
            }

    def after(self, infos: "Sequence[QueueInfo]") -> "Look":
        return Look(infos, self)

    def sorted(self, order: Order) -> "list[QueueInfo]":
        def rank(info: "QueueInfo") -> Any:
            if order is Order.DEPTH:
                return (-info.depth, info.name)
            if order is Order.RATE:
                return (-sum(self.rates[info.name].values()), info.name)
            return info.name

        return sorted(self.infos.values(), key=rank)


def _print(session: Session, look: Look, order: Order) -> None:
    if not session.as_json:
        from nexo.cli.tables import console

        console().print(_table(look, order))
        return
    import msgspec

    queues = [{**msgspec.to_builtins(info), **look.rates[info.name]} for info in look.sorted(order)]
    session.document({"at": time.time(), "queues": queues})


def _page(session: Session, look: Look, order: Order) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    infos = look.infos.values()
    head = Text.assemble(
        ("nexo top", "bold"),
        f"  {session.url}  ",
        (f"{len(infos):,} queues, {sum(info.depth for info in infos):,} messages", "cyan"),
        ("  Ctrl-C ends", "dim"),
    )
    return Group(head, Text(), _table(look, order))


def _table(look: Look, order: Order) -> "RenderableType":
    from nexo.cli.tables import age, figure, plain_table, queue_name

    figures = ["\ndepth", "in\nflight", "\ndelayed", "\noldest", "\nin/s", "\nout/s", "\nacks/s"]
    figures += ["con-\nsumers", "dead\nletters"]
    table = plain_table("\nqueue", *figures, right=figures, wide=("\nqueue",))
    for info in look.sorted(order):
        rates = look.rates[info.name]
        table.add_row(
            queue_name(info),
            figure(info.depth, "bold"),
            figure(info.in_flight, "cyan"),
            figure(info.scheduled),
            age(info.oldest_age),
            figure(rates["push_rate"], "green"),
            figure(rates["deliver_rate"], "green"),
            figure(rates["ack_rate"], "green"),
            figure(info.consumers),
            figure(info.dead_lettered, "red"),
        )
    return table
