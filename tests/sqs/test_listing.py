"""Lists: in order, by pages, and in steps between which others get their turn."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from nexo.doors.http import listing
from nexo.doors.http.listing import page_of
from nexo.vocabulary.limits import HTTP_LIST_STEP


@given(
    st.sets(st.text("abc", max_size=4), max_size=60),
    st.text("abc", max_size=3),
    st.integers(1, 20),
    st.integers(1, 20),
)
def test_a_page_is_what_sorting_all_would_give(
    names: set[str], after: str, limit: int, step: int
) -> None:
    shown = sorted(name for name in names if name > after and "b" not in name)
    with patch.object(listing, "HTTP_LIST_STEP", step):
        found = asyncio.run(page_of(names, after, limit, lambda name: "b" not in name))
    assert found == (shown[:limit], len(shown) > limit)


def test_others_get_their_turn_and_few_names_are_looked_at() -> None:
    names = [f"queue-{number:06}" for number in range(100 * HTTP_LIST_STEP)]
    random.Random(7).shuffle(names)
    looked_at: list[str] = []
    turns: list[int] = []

    async def work() -> None:
        while True:
            turns.append(len(looked_at))
            await asyncio.sleep(0)

    def is_shown(name: str) -> bool:
        looked_at.append(name)
        return True

    async def both() -> tuple[list[str], bool]:
        other = asyncio.ensure_future(work())
        found = await page_of(names, "", 100, is_shown)
        other.cancel()
        return found

    assert asyncio.run(both()) == (sorted(names)[:100], True)
    assert len(turns) >= 99
    assert max(after - before for before, after in pairwise(turns)) <= HTTP_LIST_STEP
    assert len(looked_at) < 3 * HTTP_LIST_STEP, "the rest cannot be on the page"
