"""The way of a push through the client is the one that the card of the room tells."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nexo
import nexo.client

if TYPE_CHECKING:
    from types import FrameType

CLIENT = Path(nexo.client.__file__).parent


class Way:
    """The modules of the client that are called in this thread, each once, the first call first."""

    def __init__(self) -> None:
        self.modules: list[str] = []

    def __enter__(self) -> Way:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *failure: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(CLIENT) and path.stem not in self.modules:
            self.modules.append(path.stem)


def test_a_push_passes_what_the_card_says(broker: Any) -> None:
    sentence = (nexo.client.__doc__ or "").partition("A push passes, in this order:")[2]
    both, _, blocking = sentence.partition("; of a blocking client also")
    told, besides = (re.findall(r"`(\w+)`", part) for part in (both, blocking))
    assert told
    assert besides

    with nexo.connect(broker.url) as client:
        queue = client.create_queue("q")
        queue.push("warm")
        with Way() as way:
            queue.push({"id": 1})
    assert way.modules == told + besides
    assert asyncio.run(_async_way(broker.url)) == told


async def _async_way(url: str) -> list[str]:
    async with nexo.connect_async(url) as client:
        queue = client.queue("q")
        await queue.push("warm")
        with Way() as way:
            await queue.push({"id": 1})
        return way.modules
