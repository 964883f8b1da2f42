"""Replies on their way out. Sending is a call of the system each and does not wait; what the system
cannot take yet is kept, up to a limit, and beyond it a reply gets lost as datagrams do."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from nexo.vocabulary.limits import UDP_UNSENT_MAX

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Iterable

    from nexo.doors.json_udp.strangers import Address, Asker


class Outbox:
    def __init__(self, out: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._socket = out
        self._loop = loop
        self._unsent: deque[tuple[bytes, Address]] = deque(maxlen=UDP_UNSENT_MAX)
        self._is_closed = False

    def send(self, reply: bytes, asker: Asker) -> None:
        """A stranger gets no reply that is too large for one."""
        if len(reply) > asker.reply_bytes_max or self._is_closed:
            return
        if self._unsent:
            self._unsent.append((reply, asker.address))
        elif not self._sent(reply, asker.address):
            self._unsent.append((reply, asker.address))
            self._loop.add_writer(self._socket.fileno(), self._go_on)

    def send_all(self, reply: bytes, askers: Iterable[Asker]) -> None:
        """The same reply for many."""
        for asker in askers:
            self.send(reply, asker)

    def close(self) -> None:
        """Send what the system takes now; the rest is lost."""
        if self._unsent:
            self._loop.remove_writer(self._socket.fileno())
            while self._unsent and self._sent(*self._unsent[0]):
                self._unsent.popleft()
        self._unsent.clear()
        self._is_closed = True

    def _go_on(self) -> None:
        while self._unsent:
            if not self._sent(*self._unsent[0]):
                return
            self._unsent.popleft()
        self._loop.remove_writer(self._socket.fileno())

    def _sent(self, reply: bytes, address: Address) -> bool:
        """False if the system has no room for it now."""
        try:
            self._socket.sendto(reply, address)
        except BlockingIOError:
            return False
        except OSError:  # there is no way to this address: its loss
            return True
        return True
