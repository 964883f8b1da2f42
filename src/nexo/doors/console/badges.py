"""The counts in the navigation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.doors.console import wording

if TYPE_CHECKING:
    from nexo.doors.console.visit import Visit


def badges(visit: Visit) -> dict[str, str]:
    """Of the same sample as the figures. Who may not see everything is not told how much there
    is."""
    if visit.caller.is_bound:
        return {}
    totals = visit.house.sampler.fresh()
    return {
        "badge.queues": wording.number(totals.queues),
        "badge.dead_letters": wording.number(totals.dead_letters),
    }
