"""The accounting at the end: every promise, and what speaks against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from examples.failover.traffic import Ledger


class Verdict(NamedTuple):
    sent: int
    confirmed: int
    delivered: int
    acked: int
    waiting: int  # still in the queues
    lost: int  # confirmed, never delivered, and not there any more
    came_back: int  # delivered after its ack was confirmed
    doubled: int  # pushed once, and there as two messages
    unknown: int  # delivered, and never sent
    errors: int  # that a client saw
    kills: int
    longest_push_s: float

    @property
    def holds(self) -> bool:
        wrong = self.lost + self.came_back + self.doubled + self.unknown + self.errors
        return wrong == 0 and self.confirmed > 0 and self.waiting == 0


def verdict_of(ledger: Ledger, waiting: int, kills: int) -> Verdict:
    unseen = len(ledger.unseen)
    return Verdict(
        sent=len(ledger.sent),
        confirmed=len(ledger.confirmed),
        delivered=len(ledger.delivered),
        acked=len(ledger.acked),
        waiting=waiting,
        lost=max(0, unseen - waiting),
        came_back=len(ledger.came_back),
        doubled=sum(len(ids) > 1 for ids in ledger.ids.values()),
        unknown=len(ledger.delivered.keys() - ledger.sent),
        errors=len(ledger.errors),
        kills=kills,
        longest_push_s=round(ledger.longest_push_s, 2),
    )


def told(verdict: Verdict) -> str:
    """For people."""
    rows = [
        ("confirmed of sent", f"{verdict.confirmed:,} of {verdict.sent:,}", True),
        ("confirmed and lost", f"{verdict.lost:,}", verdict.lost == 0),
        ("acked and delivered again", f"{verdict.came_back:,}", verdict.came_back == 0),
        ("pushed once, stored twice", f"{verdict.doubled:,}", verdict.doubled == 0),
        ("delivered and never sent", f"{verdict.unknown:,}", verdict.unknown == 0),
        ("errors that clients saw", f"{verdict.errors:,}", verdict.errors == 0),
        ("still waiting", f"{verdict.waiting:,}", verdict.waiting == 0),
        ("longest push", f"{verdict.longest_push_s:.1f} s", True),
    ]
    lines = [f"  {'✓' if is_well else '✗'} {name:<28}{value:>18}" for name, value, is_well in rows]
    end = (
        f"Everything is accounted for, although {_nodes(verdict.kills)} killed with -9."
        if verdict.holds
        else "Not everything is accounted for."
    )
    return "\n".join([*lines, "", end])


def _nodes(count: int) -> str:
    return "1 node was" if count == 1 else f"{count} nodes were"
