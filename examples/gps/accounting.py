"""The accounting: everything that was accepted is somewhere, and nowhere twice."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from examples.gps import names
from examples.gps.dispatch import read_handled
from examples.gps.lake import alert_ids, next_offset, position_ids
from examples.gps.tally import read_positions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from nexo import Client, Queue, QueueInfo, Topic

PEEK_MAX = 1_000


class Positions(msgspec.Struct, frozen=True):
    """`waiting` were confirmed and are still with the broker. `strays` are in the lake and were
    never sent."""

    sent: int
    confirmed: int
    in_lake: int
    waiting: int
    lost: list[str]
    doubled: list[str]
    strays: list[str]

    @property
    def holds(self) -> bool:
        return not (self.lost or self.doubled or self.strays)


class Alerts(msgspec.Struct, frozen=True):
    """`pushed` to `timed_out` are the broker's own totals. `timed_out` counts deadlines that were
    missed, such as by a worker whose broker was killed: these come back. `lost` were pushed by
    the pipeline, and nobody has them."""

    found: int
    pushed: int
    acked: int
    waiting: int
    dead_letters: int
    timed_out: int
    lost: list[str]

    @property
    def holds(self) -> bool:
        return (
            not self.lost
            and self.found == self.pushed
            and self.pushed == self.acked + self.waiting + self.dead_letters
        )


class Accounting(msgspec.Struct, frozen=True):
    positions: Positions
    alerts: Alerts

    @property
    def holds(self) -> bool:
        return self.positions.holds and self.alerts.holds


def account(client: Client, folder: Path) -> Accounting:
    """Nobody may be working any more, but the broker must answer."""
    lake = folder / "lake"
    waiting = client.queue(names.POSITIONS)
    return Accounting(
        account_positions(
            read_positions(folder / "tally.db"),
            position_ids(lake),
            _peeked(waiting) | _unread(client.topic(names.BY_UDP), next_offset(lake, names.BY_UDP)),
            max(0, waiting.info().depth - PEEK_MAX),
        ),
        account_alerts(
            list(alert_ids(lake)),
            {each.id for each in read_handled(folder / "handled.db")},
            _peeked(client.queue(names.ALERTS)) | _peeked(client.queue(names.DEAD_ALERTS)),
            client.queue(names.ALERTS).info(),
            client.queue(names.DEAD_ALERTS).info().depth,
        ),
    )


def account_positions(
    sent: Mapping[str, bool], in_lake: Iterable[str], queued: set[str], unseen: int = 0
) -> Positions:
    """`sent` says of each whether it was confirmed; `unseen` is how many more there are in the
    queue than were looked at."""
    found = Counter(in_lake)
    missing = {each for each, confirmed in sent.items() if confirmed} - found.keys()
    lost = sorted(missing - queued)[unseen:]
    return Positions(
        sent=len(sent),
        confirmed=sum(sent.values()),
        in_lake=len(found),
        waiting=len(missing) - len(lost),
        lost=lost,
        doubled=sorted(each for each, count in found.items() if count > 1),
        strays=sorted(found.keys() - sent.keys()),
    )


def account_alerts(
    found: list[str], handled: set[str], with_broker: set[str], queue: QueueInfo, dead: int
) -> Alerts:
    return Alerts(
        found=len(found),
        pushed=queue.pushed,
        acked=queue.acked,
        waiting=queue.depth,
        dead_letters=dead,
        timed_out=queue.timed_out,
        lost=sorted(set(found) - handled - with_broker),
    )


def _peeked(queue: Queue) -> set[str]:
    return {message.json()["id"] for message in queue.peek(PEEK_MAX)}


def _unread(topic: Topic, offset: int) -> set[str]:
    """What nobody has taken into the lake yet, from this offset on."""
    found: set[str] = set()
    while events := topic.read(offset, PEEK_MAX):
        found.update(event.json()["id"] for event in events)
        offset = events[-1].offset + 1
    return found
