"""`nexo.connect` and `nexo.connect_async`: how to get a client.

Each loads its own twin, so that a program without asyncio never imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nexo.client.aio.client import AsyncClient
    from nexo.client.blocking.client import Client


def connect(
    url: str | None = None,
    token: str | None = None,
    timeout: float = 30.0,
    *,
    heartbeat: float = 5.0,
    name: str | None = None,
    tls_ca: str | None = None,
    tls_verify: bool = True,
) -> Client:
    """Connect to a broker: `nexo://host:port`, by default `$NEXO_URL`, else this machine. While it
    is away this waits for it, up to `timeout` seconds. With `nexos://host:port` TLS is spoken:
    `tls_ca` is a PEM file of whom to trust, by default `$NEXO_TLS_CA`, else whom this machine
    trusts.

    After a fork the child has a connection of its own: messages that it inherited can be finished
    there, subscriptions stay the parent's."""
    from nexo.client.blocking.client import Client

    client = Client(
        url,
        token,
        timeout,
        heartbeat=heartbeat,
        name=name,
        tls_ca=tls_ca,
        tls_verify=tls_verify,
    )
    client._connection.open()
    return client


def connect_async(
    url: str | None = None,
    token: str | None = None,
    timeout: float = 30.0,
    *,
    heartbeat: float = 5.0,
    name: str | None = None,
    tls_ca: str | None = None,
    tls_verify: bool = True,
) -> AsyncClient:
    """A client of the broker at `nexo://host:port`, by default `$NEXO_URL`, else this machine. It
    connects with `async with`, or at its first call; while the broker is away that waits for it,
    up to `timeout` seconds. With `nexos://host:port` TLS is spoken: `tls_ca` is a PEM file of whom
    to trust, by default `$NEXO_TLS_CA`, else whom this machine trusts.

    It belongs to the event loop that first uses it, and is not for other threads or the children
    of a fork."""
    from nexo.client.aio.client import AsyncClient

    return AsyncClient(
        url,
        token,
        timeout,
        heartbeat=heartbeat,
        name=name,
        tls_ca=tls_ca,
        tls_verify=tls_verify,
    )
