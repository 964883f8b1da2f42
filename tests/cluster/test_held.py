"""What is meant for a node that cannot be reached waits for the next owner, within bounds."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nexo.cluster import legs
from nexo.cluster.legs import NodeLeg
from nexo.cluster.node import Node, Unreached
from nexo.cluster.rpc import Switch
from nexo.vocabulary.errors import NotReady
from nexo.vocabulary.limits import RPC_UNREAD_BYTES_MAX

NODE: Any = SimpleNamespace(name="b", rpc="127.0.0.1:1", is_living=True)


class Door:
    """A switch whose node believes in another one for as long as it is told."""

    def __init__(self, is_living: bool = True) -> None:
        self.state = SimpleNamespace(nodes={"b": SimpleNamespace(is_living=is_living)})
        self.node = self
        self.door = SimpleNamespace(peer_tls=None)
        self.held = 0
        self.unreached: dict[str, Unreached] = {}
        self._now_s = time.monotonic

    def note_reached(self, node: Any, error: NotReady | None = None) -> None:
        Node.note_reached(cast("Node", self), node, error)

    def hold(self, count: int) -> None:
        self.held += count


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_leg_waits_until_the_lease_has_ended(
    is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(_wait_for_the_lease(is_killed))
    told = [each for each in caplog.records if each.message == "another node cannot be reached"]
    assert len(told) == 1
    assert "127.0.0.1:1" in vars(told[0])["reason"]


async def _wait_for_the_lease(is_killed: bool) -> None:
    switch = Door()
    leg = NodeLeg(cast("Switch", switch))
    connecting = asyncio.create_task(leg.connect(NODE))
    leg.write([b"frame"])
    await asyncio.sleep(3 * legs._AGAIN_S)
    assert not connecting.done()
    assert switch.held == 5
    if is_killed:
        switch.state.nodes["b"].is_living = False
        with pytest.raises(NotReady, match="cannot be reached"):
            await asyncio.wait_for(connecting, 5)
    else:
        leg.lose()  # the client has gone
        await asyncio.wait_for(connecting, 5)


class Transport:
    def __init__(self) -> None:
        self.is_reading = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


def test_a_client_is_not_read_while_much_waits() -> None:
    asyncio.run(_hold_much())


async def _hold_much() -> None:
    node = SimpleNamespace(state=SimpleNamespace(nodes={}))
    switch = Switch(cast("Any", SimpleNamespace(node=node)))
    transport = Transport()
    switch.transport = cast("asyncio.Transport", transport)
    switch.hold(RPC_UNREAD_BYTES_MAX)
    assert transport.is_reading
    switch.hold(1)
    assert not transport.is_reading
    switch.hold(-RPC_UNREAD_BYTES_MAX)
    assert transport.is_reading
