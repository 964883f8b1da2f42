"""Five thousand queues: pages stay small, and an open one stays live. How quick they are, and what
they cost the broker, is measured by `make bench ARGS=console`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import nexo
from nexo.vocabulary.limits import CONSOLE_CONSUMERS_SHOWN

if TYPE_CHECKING:
    from tests.compliance.broker import ServedBroker
    from tests.console.looking import Looking

QUEUES = 5_000


def fill(url: str) -> None:
    async def create() -> None:
        async with nexo.connect_async(url) as client:
            names = [f"tenant-{number:04d}" for number in range(QUEUES)]
            for start in range(0, QUEUES, 500):
                await asyncio.gather(*(client.create_queue(n) for n in names[start : start + 500]))
            some = [client.queue(name).push("waiting") for name in names[::10]]
            await asyncio.gather(*some)

    # In a thread of its own: Playwright's loop runs in this one.
    thread = threading.Thread(target=lambda: asyncio.run(create()))
    thread.start()
    thread.join()


def test_five_thousand_queues(broker: ServedBroker, looking: Looking) -> None:
    fill(broker.native_url)
    page = looking.live("/queues?filter=tenant-1&page=2")
    assert page.locator("#rows tbody tr").count() == 100
    assert "1,000 of 5,000 queues match" in page.locator("#rows [role=status]").inner_text()
    assert looking.bytes < 250_000

    looking.live("")
    assert looking.text("badge.queues") == "5,000"
    with nexo.connect(broker.native_url) as client:
        client.queue("tenant-0001").push("one more")
        looking.wait_for_text("depth", "501")


def test_of_many_consumers_the_first_are_shown(broker: ServedBroker, looking: Looking) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(CONSOLE_CONSUMERS_SHOWN + 1):
            stack.enter_context(nexo.connect(broker.native_url, name=f"client {number}"))
        page = looking.live("/consumers")
        assert page.locator("#consumers tbody tr").count() == CONSOLE_CONSUMERS_SHOWN
        told = f"The first {CONSOLE_CONSUMERS_SHOWN} of "
        assert told in page.locator("#consumers").inner_text()
