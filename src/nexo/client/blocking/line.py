"""The socket of a blocking connection.

Two threads may be in calls on it, one writing and one reading, when it is given up. It is shut
down then, which wakes them, and its descriptor is closed later, when nobody can be using it: else
the number might be that of another connection by the time they look.
"""

from __future__ import annotations

import select
import socket
from struct import pack
from typing import TYPE_CHECKING

from nexo.client.handshake import configure
from nexo.vocabulary.errors import Unreachable

if TYPE_CHECKING:
    from nexo.client.address import Address
    from nexo.client.blocking.secure import SecureSocket
    from nexo.client.session import Session
    from nexo.wire.frame import Frame

    Channel = socket.socket | SecureSocket

RECEIVE_S = 1.0  # a read that brings nothing for this long looks around
BUFFER_BYTES = 256 * 1024


class Line:
    def __init__(self) -> None:
        self.socket: Channel | None = None
        self._retired: list[Channel] = []

    def retire(self) -> None:
        """Give the socket up, and wake whoever is in a call on it."""
        sock, self.socket = self.socket, None
        if sock is not None:
            self._retired.append(sock)
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it was not connected any more

    def close_retired(self) -> None:
        """Nobody uses them."""
        while self._retired:
            self._retired.pop().close()

    def disown(self) -> None:
        """In the child of a fork: the connection is the parent's, and only the copies are ours."""
        if self.socket is not None:
            self._retired.append(self.socket)
            self.socket = None
        self.close_retired()


def dial(address: Address, seconds: float, session: Session) -> tuple[Channel, list[Frame]]:
    """A connection that was greeted, and what the broker answered. Nobody else uses the session's
    reader meanwhile: there is no other connection."""
    plain = socket.create_connection((address.host, address.port), timeout=seconds)
    try:
        configure(plain)
        sock = secured(plain, address)
        sock.sendall(session.hello())
        frames: list[Frame] = []
        while not frames:
            data = sock.recv(BUFFER_BYTES)
            if not data:
                raise Unreachable(
                    f"the broker at {address} hung up during the greeting",
                    "does the URL name the RPC port, and speak TLS (nexos://) where it does?",
                )
            frames = session.read(data)
        _make_blocking(plain)
    except BaseException:
        plain.close()
        raise
    return sock, frames


def secured(plain: socket.socket, address: Address) -> Channel:
    """The same connection with TLS, where the address asks for it."""
    if address.tls is None:
        return plain
    from nexo.client.blocking.secure import SecureSocket

    secure = SecureSocket(plain, address.tls.context(), address.host)
    secure.shake_hands()
    return secure


def _make_blocking(sock: socket.socket) -> None:
    """Time limits by the kernel: Python's own would cost a poll before each read."""
    limit = pack("@ll", int(RECEIVE_S), int(RECEIVE_S % 1 * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    sock.settimeout(None)


def readable(sock: Channel, seconds: float) -> bool:
    if type(sock) is not socket.socket and sock.pending():  # type: ignore[union-attr]
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def send_all(sock: Channel, data: bytes | memoryview) -> memoryview:
    """Send as much as goes; returns what the broker does not take yet."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[sock.send(rest) :]
    except BlockingIOError:
        return rest
    return rest
