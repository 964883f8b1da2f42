"""The listener of the UDP door: datagrams in, commands to those who carry them out, replies out.

A turn reads all that has arrived, up to a limit, and publishes it as one batch a topic; nothing on
that way has a task of its own. What has to wait for something else is spawned, and there is a limit
to that too.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from nexo.access.caller import ANYONE
from nexo.access.guard import Guard
from nexo.doors.json_udp.access import Access
from nexo.doors.json_udp.addresses import Asker, Cookies, Rates, is_local, stranger
from nexo.doors.json_udp.datagram import Action, Refusal, begins_as_reply, decode
from nexo.doors.json_udp.groups import Groups, take_page, topic_name
from nexo.doors.json_udp.publishes import Publishes
from nexo.doors.json_udp.replies import (
    Page,
    encode_refusal,
    read_page,
    refusal_of,
    success,
)
from nexo.doors.json_udp.subscriptions import Subscriptions
from nexo.vocabulary.errors import NexoError, RateLimited
from nexo.vocabulary.limits import (
    UDP_BUFFER_BYTES,
    UDP_TURN_BYTES,
    UDP_TURN_DATAGRAMS,
    UDP_UNSENT_MAX,
    UDP_WAITING_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from nexo.doors.json_udp.addresses import Address
    from nexo.doors.json_udp.datagram import Command
    from nexo.engine.engine import Engine

    Work = Callable[[Command, Asker], Coroutine[Any, Any, None]]

_DATAGRAM_BYTES = 64 * 1024
# SO_RCVBUFFORCE: where the process has the right to it, a burst is not cut to net.core.rmem_max.
_FORCED = (33,) if sys.platform == "linux" else ()
_TOO_MANY = encode_refusal(refusal_of(RateLimited("too many datagrams from this address")))


class UdpDoor:
    def __init__(
        self,
        engine: Engine,
        guard: Guard | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a guard anyone may do everything."""
        self._engine = engine
        guard = guard or Guard(engine.wall_ms)
        self._access = Access(guard, engine)
        self._groups = Groups(engine, self._access)
        self._clock = clock
        self._cookies = Cookies(secrets.token_bytes(32))
        self._tasks: set[asyncio.Task[None]] = set()
        self._buffer = bytearray(_DATAGRAM_BYTES)
        self._view = memoryview(self._buffer)
        self._socket: socket.socket | None = None
        self._own: Address | None = None  # where this door listens itself
        self._outbox: Outbox
        self._publishes: Publishes
        self.subscriptions = Subscriptions()
        self.rates = Rates()

    # -- Life ---------------------------------------------------------------------------------

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port, which is of the system's choice if 0 was asked for."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF, *_FORCED):
                with contextlib.suppress(OSError):  # some systems refuse what others cut
                    opened.setsockopt(socket.SOL_SOCKET, option, UDP_BUFFER_BYTES)
            opened.bind(address)
        except OSError:
            opened.close()
            raise
        self.listen(opened)
        loop.add_reader(opened.fileno(), self._read)
        self._own = opened.getsockname()
        bound: int = self._own[1]
        return bound

    def listen(self, opened: socket.socket) -> None:
        """Answer through this socket."""
        self._socket = opened
        self._outbox = Outbox(opened, asyncio.get_running_loop())
        self._publishes = Publishes(self._engine, self._outbox, self._spawn, self._groups.topic)

    async def settled(self) -> None:
        """Wait until everything that was asked for so far is answered."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._publishes.drain()

    async def close(self) -> None:
        """Listen no more, answer those whose messages are on their way to the disk, and end."""
        if self._socket is None:
            return
        opened, self._socket = self._socket, None
        asyncio.get_running_loop().remove_reader(opened.fileno())
        try:
            await self.settled()
        finally:
            for task in self._tasks:
                task.cancel()
            self._outbox.close()
            opened.close()

    # -- Datagrams ----------------------------------------------------------------------------

    def _read(self) -> None:
        if self._socket is None:
            return
        receive, buffer, view = self._socket.recvfrom_into, self._buffer, self._view
        now_s, read_bytes = self._clock(), 0
        for _ in range(UDP_TURN_DATAGRAMS):
            try:
                size, address = receive(buffer)
            except BlockingIOError:
                break
            except OSError:  # what the network says of an earlier reply; this socket is fine
                continue
            self.take(bytes(view[:size]), address, now_s)
            read_bytes += size
            if read_bytes > UDP_TURN_BYTES:
                break
        self.flush()

    def flush(self) -> None:
        """A turn is over: what it brought goes to the engine."""
        self._publishes.flush()

    def take(self, data: bytes, address: Address, now_s: float) -> None:
        """One datagram."""
        if address == self._own:  # only a forged one has this source, and its answer comes back
            return
        asker = Asker(address) if is_local(address) else stranger(address, len(data))
        if not self.rates.allow(address, now_s):
            if not begins_as_reply(data) and self._may_err(address, now_s):
                self._outbox.send(_TOO_MANY, asker)
            return
        command = decode(data)
        if command is None:
            return
        if isinstance(command, Refusal):
            if self._may_err(address, now_s):
                self._outbox.send(encode_refusal(command), asker)
            return
        try:
            caller = self._access.admit(command, address)
            if caller is not ANYONE:  # a token vouches for the address too
                asker = Asker(address, caller=caller)
            elif asker.is_stranger and self._has_proved(command, address, now_s):
                asker = Asker(address)
            self.rates.welcome(address, now_s)
            self.subscriptions.hear(address, now_s)
            self._carry_out(command, asker, now_s)
        except NexoError as error:
            self._refuse(command, asker, error)

    def _carry_out(self, command: Command, asker: Asker, now_s: float) -> None:
        action = command.action
        if action is Action.PUBLISH:
            self._publishes.add(command, asker)
        elif action is Action.SUBSCRIBE:
            self._subscribe(command, asker, now_s)
        elif action is Action.UNSUBSCRIBE:
            self.subscriptions.drop(asker.address, topic_name(command.topic))
            self._outbox.send(success(action, command.topic, command.ref), asker)
        elif action is Action.ACK:
            self._spawn_for(self._ack, command, asker)
        elif not self.subscriptions.has(asker.address, topic_name(command.topic)):
            self._outbox.send(nothing(command, asker), asker)
        elif command.group is None:
            self._spawn_for(self._get, command, asker)
        else:
            self._spawn_for(self._take_for_group, command, asker)

    # -- What each action does ----------------------------------------------------------------

    def _subscribe(self, command: Command, asker: Asker, now_s: float) -> None:
        self.subscriptions.add(asker.address, topic_name(command.topic), now_s)
        if command.group is None:
            self._outbox.send(self._subscribed(command, asker), asker)
        else:
            self._spawn_for(self._join, command, asker)

    def _subscribed(self, command: Command, asker: Asker) -> bytes:
        more = {}
        if asker.is_stranger:
            more["cookie"] = self._cookies.give(asker.address, self._clock())
        return success(Action.SUBSCRIBE, command.topic, command.ref, **more)

    async def _join(self, command: Command, asker: Asker) -> None:
        await self._groups.join(command, asker)
        self._outbox.send(self._subscribed(command, asker), asker)

    async def _get(self, command: Command, asker: Asker) -> None:
        actor = self._engine.topics.get(topic_name(command.topic))
        reply = nothing(command, asker)
        if actor is not None:
            reply = await read_page(actor, command, asker.reply_bytes_max)
        self._outbox.send(reply, asker)

    async def _take_for_group(self, command: Command, asker: Asker) -> None:
        actor = self._groups.find(command)
        if actor is None and topic_name(command.topic) in self._engine.topics:
            await self._groups.join(command, asker)
            actor = self._groups.find(command)
        if actor is None:
            self._outbox.send(nothing(command, asker), asker)
            return
        reply, unfit = await take_page(actor, command, asker)
        self._outbox.send(reply, asker)
        await unfit.give_back()

    async def _ack(self, command: Command, asker: Asker) -> None:
        self._outbox.send(await self._groups.ack(command, asker), asker)

    # -- Inside -------------------------------------------------------------------------------

    def _may_err(self, address: Address, now_s: float) -> bool:
        """Whether what is no request is answered. From outside of this machine only those who made
        one not long ago, and with it showed their token where one is needed: a forger would else
        choose who is written to. And nobody more than a number of times in a row."""
        is_known = is_local(address) or self.rates.is_known(address, now_s)
        return is_known and self.rates.may_err(address, now_s)

    def _has_proved(self, command: Command, address: Address, now_s: float) -> bool:
        cookie = command.cookie
        return cookie is not None and self._cookies.prove(address, cookie, now_s)

    def _refuse(self, command: Command, asker: Asker, error: NexoError) -> None:
        self._outbox.send(encode_refusal(refusal_of(error, command.ref)), asker)

    def _spawn_for(self, work: Work, command: Command, asker: Asker) -> None:
        self._spawn(self._guarded, work, command, asker)

    async def _guarded(self, work: Work, command: Command, asker: Asker) -> None:
        try:
            await work(command, asker)
        except NexoError as error:
            self._refuse(command, asker, error)

    def _spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Do something that has to wait; refused when too much waits already."""
        if len(self._tasks) >= UDP_WAITING_MAX:
            raise RateLimited(f"too many requests are waiting ({UDP_WAITING_MAX})", "try again")
        task = asyncio.get_running_loop().create_task(work(*arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Outbox:
    """Replies on their way out. Sending is a call of the system each and does not wait; what the
    system cannot take yet is kept, up to a limit, and beyond it a reply gets lost as datagrams do.
    """

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


def nothing(command: Command, asker: Asker) -> bytes:
    return Page(Action.GET, command.topic, command.ref, asker.reply_bytes_max).encode()
