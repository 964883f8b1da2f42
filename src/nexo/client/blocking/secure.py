"""A socket that speaks TLS, for one thread that reads and one that writes at the same time.

Python's own must not be used by two threads at once. Here TLS itself happens in memory, under a
lock that is only held while nothing waits; what waits is the plain socket below, which does not
mind. To its users it is like that socket: `BlockingIOError` says that nothing came, or went, within
the time that the kernel was given.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

RECORD_BYTES = 64 * 1024  # sealed or read from the network at once
_BYE = (ssl.SSLZeroReturnError, ssl.SSLEOFError)


class SecureSocket:
    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._lock = threading.Lock()  # TLS and its buffers; never held during I/O
        self._sending = threading.Lock()  # what is sealed leaves in the order it was sealed
        self._unsent = memoryview(b"")
        self._sealed = 0  # bytes of a `send` that are sealed, and not all sent yet

    def shake_hands(self) -> None:
        """Before anything else, while the plain socket still has a time limit of its own."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                data = self._plain.recv(RECORD_BYTES)
                if not data:
                    raise ConnectionResetError("the broker hung up during the handshake") from None
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
            data = self._plain.recv(RECORD_BYTES)
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
                self._sealed = self._tls.write(data[:RECORD_BYTES])
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
        with self._lock:
            try:
                return self._tls.read(len(view), view)  # type: ignore[return-value]
            except ssl.SSLWantReadError:
                return None
            except _BYE:
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
