"""The parts of a switch that need no node: where frames end, and what it remembers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nexo.cluster.legs import FrameCutter
from nexo.cluster.rpc import Switch
from nexo.vocabulary.limits import SUBSCRIPTIONS_MAX
from nexo.wire import commands
from nexo.wire.frame import Frame, FrameReader, Kind, frame


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(1, 30), min_size=1))
def test_what_is_cut_is_whole_frames(heads: list[bytes], sizes: list[int]) -> None:
    """However it arrives: nothing is lost, and nothing but the last frame is held back."""
    sent = b"".join(frame(Kind.OK, at, head) for at, head in enumerate(heads))
    cutter, passed, at, turn = FrameCutter(), b"", 0, 0
    while at < len(sent):
        size = sizes[turn % len(sizes)]
        whole = cutter.feed(sent[at : at + size])
        reader = FrameReader()
        reader.feed(whole)
        assert reader.waiting_bytes == 0
        passed += whole
        at, turn = at + size, turn + 1
    assert passed == sent


def test_subscriptions_that_have_ended_are_forgotten() -> None:
    """A connection may live for months, and number its subscriptions on and on."""

    async def work() -> tuple[int, list[Any]]:
        node = SimpleNamespace(shard_of=lambda name: 3)
        switch: Any = Switch(SimpleNamespace(node=node))  # type: ignore[arg-type]
        passed, refused = [], []
        switch.pass_on = lambda shard, received: passed.append(shard)
        switch.refuse = lambda correlation, error: refused.append(error)
        for number in range(1, SUBSCRIPTIONS_MAX + 20):
            head = commands.pack(commands.Subscribe("orders", number, 10))
            switch._take(Frame(Kind.SUBSCRIBE, 1, head, memoryview(b"")))
            head = commands.pack_credit(number, 5)
            switch._take(Frame(Kind.CREDIT, 0, head, memoryview(b"")))
            head = commands.pack_unsubscribe(number, True)
            switch._take(Frame(Kind.UNSUBSCRIBE, 2, head, memoryview(b"")))
        assert set(passed) == {3}
        return len(passed), refused

    count, refused = asyncio.run(work())
    assert refused == []
    assert count == 3 * (SUBSCRIPTIONS_MAX + 19)
