"""The sockets of a blocking connection, plain or with TLS.

Two threads may be in calls on one, one writing and one reading, when it is given up. It is shut
down then, which wakes them, and its descriptor is closed later, when nobody can be using it: else
the number might be that of another connection by the time they look.

Python's own sockets with TLS must not be used by two threads at once. Here TLS itself happens in
memory, under a lock that is only held while nothing waits; what waits is the plain socket below,
which does not mind. To its users such a socket is like a plain one: `BlockingIOError` says that
nothing came, or went, within the time that the kernel was given. `ssl` takes a while to import, so
only those who speak TLS do.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from struct import pack
from typing import TYPE_CHECKING, TypeAlias

from nexo.client.handshake import HUNG_UP_HINT, configure
from nexo.client.redirects import Greeting
from nexo.vocabulary.errors import Unreachable
from nexo.vocabulary.limits import CLIENT_BUFFER_BYTES, CLIENT_RECEIVE_S, CLIENT_RECORD_BYTES

if TYPE_CHECKING:
    import ssl

    from nexo.client.address import Address


class SecureSocket:
    """TLS for one thread that reads and one that writes at the same time."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        import ssl

        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._lock = threading.Lock()  # TLS and its buffers; never held during I/O
        self._sending = threading.Lock()  # what is sealed leaves in the order it was sealed
        self._unsent = memoryview(b"")
        self._sealed = 0  # bytes of a `send` that are sealed, and not all sent yet

    def shake_hands(self) -> None:
        """Before anything else, while the plain socket still has a time limit of its own."""
        import ssl

        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                data = self._plain.recv(CLIENT_RECORD_BYTES)
                if not data:
                    raise ConnectionResetError(
                        "the broker closed the connection during the handshake"
                    ) from None
                self._incoming.write(data)
            except ssl.SSLError:
                self._flush()  # the alert that tells the other side why
                raise
            else:
                self._flush()
                return

    def recv(self, size: int) -> bytes:
        """Waits until something comes; for the greeting."""
        buffer = bytearray(size)
        while True:
            try:
                return bytes(buffer[: self.recv_into(memoryview(buffer))])
            except BlockingIOError:
                continue

    def recv_into(self, view: memoryview) -> int:
        """What has come, 0 at the end. A record of which only a part has come is nothing yet."""
        got = self._opened(view)
        if got is None:
            data = self._plain.recv(CLIENT_RECORD_BYTES)
            with self._lock:
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            got = self._opened(view)
        if self._outgoing.pending:  # such as the answer to a change of keys
            with contextlib.suppress(BlockingIOError):  # it goes with what is sent next
                self._flush()
        if got is None:
            raise BlockingIOError
        return got

    def pending(self) -> bool:
        """Whether there may be something to read that has left the network already."""
        with self._lock:
            return self._tls.pending() > 0 or self._incoming.pending > 0

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self.send(rest) :]

    def send(self, data: memoryview) -> int:
        """How much of it is on its way. After `BlockingIOError` the same data is to be given
        again: a part of it is sealed already."""
        if not self._sealed:
            with self._lock:
                self._sealed = self._tls.write(data[:CLIENT_RECORD_BYTES])
        self._flush()
        sealed, self._sealed = self._sealed, 0
        return sealed

    def shutdown(self, how: int) -> None:
        self._plain.shutdown(how)

    def close(self) -> None:
        self._plain.close()

    def fileno(self) -> int:
        return self._plain.fileno()

    def _opened(self, view: memoryview) -> int | None:
        """What can be read without the network; None if nothing is there yet."""
        import ssl

        with self._lock:
            try:
                return self._tls.read(len(view), view)  # type: ignore[return-value]
            except ssl.SSLWantReadError:
                return None
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):  # goodbye
                return 0

    def _flush(self) -> None:
        """Send what is sealed. `BlockingIOError`: the rest goes first next time."""
        with self._sending:
            while True:
                if not self._unsent:
                    with self._lock:
                        self._unsent = memoryview(self._outgoing.read())
                if not self._unsent:
                    return
                self._unsent = self._unsent[self._plain.send(self._unsent) :]


Channel: TypeAlias = socket.socket | SecureSocket


class Sockets:
    """The one in use, and those that were given up."""

    def __init__(self) -> None:
        self.current: Channel | None = None
        self._retired: list[Channel] = []

    @property
    def has_retired(self) -> bool:
        return bool(self._retired)

    def replace(self, sock: Channel) -> None:
        """Another takes the place of the one in use."""
        self.retire()
        self.current = sock

    def retire(self) -> None:
        """Give the socket up, and wake whoever is in a call on it."""
        sock, self.current = self.current, None
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
        if self.current is not None:
            self._retired.append(self.current)
            self.current = None
        self.close_retired()


def dial(address: Address, seconds: float, hello: bytes) -> tuple[Channel, Greeting]:
    """A connection that was greeted, and what the broker answered."""
    plain = socket.create_connection((address.host, address.port), timeout=seconds)
    try:
        configure(plain)
        sock = secured(plain, address)
        sock.sendall(hello)
        greeting = Greeting()
        while not greeting.frames:
            data = sock.recv(CLIENT_BUFFER_BYTES)
            if not data:
                raise Unreachable(
                    f"the broker at {address} closed the connection during the handshake",
                    HUNG_UP_HINT,
                )
            greeting.feed(data)
        _make_blocking(plain)
    except BaseException:
        plain.close()
        raise
    return sock, greeting


def secured(plain: socket.socket, address: Address) -> Channel:
    """The same connection with TLS, where the address asks for it."""
    if address.tls is None:
        return plain
    secure = SecureSocket(plain, address.tls.context(), address.host)
    secure.shake_hands()
    return secure


def _make_blocking(sock: socket.socket) -> None:
    """Time limits by the kernel: Python's own would cost a poll before each read."""
    limit = pack("@ll", int(CLIENT_RECEIVE_S), int(CLIENT_RECEIVE_S % 1 * 1e6))
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
