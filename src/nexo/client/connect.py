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
    follow_redirects: bool = True,
) -> Client:
    """Connect to a broker at `nexo://host:port`; default `$NEXO_URL`, else this machine. While
    the broker is unreachable, this waits for up to `timeout` seconds. `nexos://host:port` uses TLS:
    `tls_ca` is a PEM file with the CA certificates to trust; default `$NEXO_TLS_CA`, else those of
    the system. In a cluster, the client moves its connection to the node that has the queues it
    uses; with `follow_redirects=False` it stays at the address it was given.

    After a fork, the child has its own connection. It can finish messages that it inherited;
    subscriptions stay with the parent."""
    from nexo.client.blocking.client import Client

    client = Client(
        url,
        token,
        timeout,
        heartbeat=heartbeat,
        name=name,
        tls_ca=tls_ca,
        tls_verify=tls_verify,
        follow_redirects=follow_redirects,
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
    follow_redirects: bool = True,
) -> AsyncClient:
    """A client of the broker at `nexo://host:port`; default `$NEXO_URL`, else this machine. It
    connects with `async with`, or at its first call; while the broker is unreachable, that waits
    for up to `timeout` seconds. `nexos://host:port` uses TLS: `tls_ca` is a PEM file with the CA
    certificates to trust; default `$NEXO_TLS_CA`, else those of the system. In a cluster, the
    client moves its connection to the node that has the queues it uses; with
    `follow_redirects=False` it stays at the address it was given.

    The client belongs to the event loop that first uses it. Do not use it in other threads, or in
    the child of a fork."""
    from nexo.client.aio.client import AsyncClient

    return AsyncClient(
        url,
        token,
        timeout,
        heartbeat=heartbeat,
        name=name,
        tls_ca=tls_ca,
        tls_verify=tls_verify,
        follow_redirects=follow_redirects,
    )
