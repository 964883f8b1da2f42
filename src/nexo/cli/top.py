"""`nexo top`: the queues of a broker, live."""

import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

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
    OLDEST = "oldest"
    RATE = "rate"
    CONSUMERS = "consumers"
    DEAD_LETTERS = "dead-letters"


@takes_session
def top(
    session: Session,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            metavar="DURATION",
            parser=parse_duration,
            help="Time between updates.",
            show_default="1s",
        ),
    ] = 1.0,
    sort: Annotated[
        Order, typer.Option(help="Sort by this column; numbers with the largest first.")
    ] = Order.NAME,
) -> None:
    """Watch the queues: depth, ages, rates, dead letters.

    \b
    Examples
      nexo top
      nexo top --sort depth
      nexo top --once
      nexo top --json --interval 5s | jq '.queues[].depth'

    \b
    Keys
      ↑ ↓ PgUp PgDn   choose a queue       /        filter by name
      Enter           open it              s, r     sort, reverse the order
      Esc             back                 q        quit

    Where there is no terminal, it prints a table each time.
    """
    if not (once or session.as_json or not sys.stdout.isatty()):
        from nexo.cli.top_screen import watch

        session.require_broker()
        watch(session, interval, sort)
        return
    with session.client() as client, Ending() as ending:
        look = Look(client.queues())
        ending.sleep(min(FIRST_S, interval))
        look = look.after(client.queues())
        _print(session, look, sort)
        while not once and not ending.is_near:
            ending.sleep(interval)
            look = look.after(client.queues())
            _print(session, look, sort)


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

    def sorted(self, order: Order, text: str = "", turned: bool = False) -> "list[QueueInfo]":
        """The queues with this text in their names; `turned` is the other way round."""

        def rank(info: "QueueInfo") -> float:
            if order is Order.RATE:
                return -sum(self.rates[info.name].values())
            if order is Order.OLDEST:
                return -info.oldest_age
            figures = {Order.DEPTH: info.depth, Order.CONSUMERS: info.consumers}
            return -figures.get(order, info.dead_lettered)

        wanted = text.lower()
        found = sorted((name for name in self.infos if wanted in name.lower()), reverse=turned)
        infos = [self.infos[name] for name in found]
        return infos if order is Order.NAME else sorted(infos, key=rank, reverse=turned)


def _print(session: Session, look: Look, order: Order) -> None:
    if not session.as_json:
        from nexo.cli.tables import console

        console().print(_table(look, order))
        return
    import msgspec

    queues = [{**msgspec.to_builtins(info), **look.rates[info.name]} for info in look.sorted(order)]
    session.document({"at": time.time(), "queues": queues})


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
