"""A broker in a thread of the test: the real one, on a real port, that can be stopped and started
again on the same port and data."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import uvloop

from nexo.server.broker import Broker
from nexo.server.configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Callable


class RunningBroker:
    def __init__(self, data: str) -> None:
        self._data = data
        self.port = 0
        self.udp_port = 0
        self._loop: asyncio.AbstractEventLoop
        self.broker: Broker

    @property
    def url(self) -> str:
        return f"nexo://127.0.0.1:{self.port}"

    def start(self) -> RunningBroker:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker")
        self._thread.start()
        self.broker = Broker(
            Configuration(data=self._data, http_port=0, rpc_port=self.port, udp_port=self.udp_port)
        )
        ports = self.wait_for(self.broker.start())
        self.port, self.udp_port = ports.rpc, ports.udp
        return self

    def stop(self) -> None:
        if not self._loop.is_closed():
            self.wait_for(self.broker.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def wait_for(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def call(self, action: Callable[[], Any]) -> Any:
        """Run something where the broker lives."""

        async def act() -> Any:
            return action()

        return self.wait_for(act())

    def connections(self) -> list[Any]:
        door: Any = self.broker._rpc
        found: list[Any] = self.call(lambda: list(door.connections))
        return found
