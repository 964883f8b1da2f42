"""A broker that requires access, in a thread of the test, and the credentials that tests need."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

from nexo.server.broker import Broker
from nexo.server.configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from nexo.access.tokens import Minted
    from nexo.engine.engine import Engine


class GuardedBroker:
    def __init__(self, **settings: Any) -> None:
        plain = {"data": ":memory:", "http_port": 0, "rpc_port": 0, "udp_port": 0}
        self.broker = Broker(Configuration(**{**plain, "access": "required", **settings}))
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker")
        self._thread.start()
        self._numbers = iter(range(1, 1_000_000))
        try:
            self.ports = self.wait_for(self.broker.start())
        except BaseException:
            self._end()
            raise

    @property
    def engine(self) -> Engine:
        return self.broker.engine

    @property
    def url(self) -> str:
        return f"nexo://127.0.0.1:{self.ports.rpc}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.ports.http}"

    def wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def run(self, action: Any) -> Any:
        """Call something where the broker lives."""

        async def act() -> Any:
            return action()

        return self.wait_for(act())

    def mint(self, *allow: str, aws: bool = False, expires_after_ms: int | None = None) -> Minted:
        name = f"token-{next(self._numbers)}"
        minted: Minted = self.wait_for(
            self.engine.tokens.create(name, allow, aws=aws, expires_after_ms=expires_after_ms)
        )
        return minted

    def token(self, *allow: str) -> str:
        return self.mint(*allow).token

    def expired(self, *allow: str) -> str:
        """A token whose time is over: as if it had been made an hour ago."""
        minted = self.mint(*allow, expires_after_ms=3_600_000)
        catalog = self.engine._catalog.catalog
        past = msgspec.structs.replace(minted.defined, expires_ms=minted.defined.created_ms - 1)

        def age() -> None:
            catalog.tokens[past.name] = past
            self.engine.tokens.tell()

        self.run(age)
        return minted.token

    def revoked(self, *allow: str) -> str:
        minted = self.mint(*allow)
        self.revoke(minted)
        return minted.token

    def revoke(self, minted: Minted) -> None:
        self.wait_for(self.engine.tokens.revoke(minted.defined.name))

    def audit(self, limit: int = 100) -> list[Any]:
        assert self.broker._security is not None
        return self.broker._security.guard.audit.read(limit)

    def stop(self) -> None:
        try:
            self.wait_for(self.broker.stop())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
