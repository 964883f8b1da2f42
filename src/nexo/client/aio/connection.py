"""The connection of an asyncio client: what is asked within one turn of the loop is one write.

It belongs to the loop in which it is first used. It connects when there is something to do and
stays connected; when the connection breaks it comes back by itself as long as somebody waits.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING, Any, cast

from nexo.client.handshake import (
    HUNG_UP_HINT,
    Backoff,
    ConnectionLog,
    configure,
    is_final,
    overdue,
    unanswered,
    unreachable,
)
from nexo.client.redirects import Greeting, Redirects
from nexo.client.session import Session, closed
from nexo.vocabulary.errors import InvalidArgument, NexoError, Unreachable
from nexo.vocabulary.limits import (
    CLIENT_CLOSE_S,
    CLIENT_CONNECT_S,
    CLIENT_LEAVE_S,
    JOINED_BYTES_MAX,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from nexo.client.address import Address
    from nexo.client.operation import Operation, Pieces
    from nexo.client.receipts import AckOne
    from nexo.client.subscriptions import SubscriptionState

INTERRUPTION: type[BaseException] = asyncio.CancelledError  # what ends a call from outside
MERGING_WINDOW = 8  # frames of single pushes under way to one queue


class Connection:
    def __init__(
        self,
        address: Address,
        token: str | None,
        timeout: float,
        heartbeat: float,
        name: str,
        follow_redirects: bool = True,
    ) -> None:
        self._address = address
        self._redirects = Redirects(address, follow_redirects)
        self._moving: asyncio.Task[None] | None = None
        self._timeout = timeout
        self.session: Session = Session(
            time.monotonic,
            name=name,
            producer=os.urandom(8).hex(),
            token=token,
            heartbeat_s=heartbeat,
            merging_window=MERGING_WINDOW,
            follows=follow_redirects,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._channel: Channel | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._flushing = False
        self._waiting = 0  # calls besides these, which have time limits of their own
        self._deadlines: dict[Operation, float] = {}  # of calls under way, the earliest first
        self._expiry: asyncio.TimerHandle | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self._pulse_at = 0.0
        self._backoff = Backoff(random.random, timeout)
        self._log = ConnectionLog()
        self._failure: NexoError | None = None

    # -- Callers ------------------------------------------------------------------------------

    async def enter(self) -> None:
        """Of an `async with` block: connect now, so that a wrong address is told here."""
        self.begin()
        connecting = self._connecting
        if connecting is not None:
            await asyncio.wait([connecting], timeout=self._timeout)
        if not self.session.connected:
            if connecting is not None and not connecting.done():
                connecting.cancel()
            failure = self._failure or Unreachable(f"{self._address} does not answer")
            raise failure if is_final(failure) else overdue(self._address, failure, self._timeout)

    async def run(self, operation: Operation) -> Any:
        """Do what is asked, and wait for the answer."""
        loop = self._loop
        if loop is None or self._channel is None:
            loop = self.begin()
        future = loop.create_future()
        operation.future = future
        operation.notify = _resolve
        self.session.submit(operation)
        if not self._flushing:
            self._flushing = True
            loop.call_soon(self._flush)
        if operation.wait_s:
            return await self._wait(loop, operation)
        self._deadlines[operation] = loop.time() + self._timeout
        if self._expiry is None:
            self._expiry = loop.call_later(self._timeout, self._expire)
        try:
            return await future
        except BaseException:
            self._abandon(operation)
            raise
        finally:
            del self._deadlines[operation]

    def ack(self, acking: AckOne) -> Awaitable[Any]:
        """The same for an ack."""
        return self.run(acking)

    def finish(self, operation: Operation) -> None:
        """Whoever waits for it need not wait any longer."""
        operation.finish(None)

    def if_blocking(self, step: Callable[[], Awaitable[None]]) -> None:
        """Of what the twin does at once, and this one when something is awaited."""

    async def _wait(self, loop: asyncio.AbstractEventLoop, operation: Operation) -> Any:
        """For a call that the broker may take its time for."""
        timer = loop.call_later(self._timeout + operation.wait_s, self._overdue, operation)
        self._waiting += 1
        try:
            return await operation.future
        except BaseException:
            self._abandon(operation)
            raise
        finally:
            self._waiting -= 1
            timer.cancel()

    def _abandon(self, operation: Operation) -> None:
        """Nobody waits for it any more, but its answer may have come in this turn of the loop."""
        self.session.abandon(operation)
        if self.session.urgent:
            self.write_soon()

    def begin(self) -> asyncio.AbstractEventLoop:
        """Make sure that there is a connection, or will be."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise InvalidArgument(
                    "this client belongs to another event loop", "connect once in each event loop"
                )
            self._loop = loop
        if self.session.closed is not None:
            raise self.session.closed
        if self._channel is None and (self._connecting is None or self._connecting.done()):
            self._connecting = loop.create_task(self._connect())
        return loop

    def write_soon(self) -> None:
        if not self._flushing and self._loop is not None:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def close_soon(self, state: SubscriptionState) -> None:
        """Close a subscription from wherever an object may be finalised."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.close_subscription, state)

    def close_subscription(self, state: SubscriptionState) -> None:
        self.session.subscriptions.close(state)
        self.write_soon()

    async def close(self) -> None:
        """Give back what is held, say so, and wake everybody."""
        if self.session.closed is not None:
            return
        self._flush()
        self.session.close(closed())
        self._flush()
        for handle in (self._expiry, self._pulse):
            if handle is not None:
                handle.cancel()
        for task in (self._connecting, self._moving):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        channel, self._channel = self._channel, None
        self.session.lose()
        if channel is not None:
            await channel.end(CLIENT_CLOSE_S)

    # -- The channel's side ----------------------------------------------------------------------

    def received(self, channel: Channel, data: bytes) -> None:
        if channel is not self._channel:
            return
        try:
            self.session.receive(data)
        except NexoError as error:
            self.lost(channel, error)
            return
        if self.session.urgent or self.session.has_quiet:
            self.write_soon()
        if self.session.redirect:
            self._consider_moving(channel)
        if self.session.due < self._pulse_at:
            self._pulse_at = self.session.due
            if self._pulse is not None and self._loop is not None:
                self._pulse.cancel()
                pause = max(0.0, self._pulse_at - time.monotonic())
                self._pulse = self._loop.call_later(pause, self._tick)

    def lost(self, channel: Channel, error: NexoError) -> None:
        """A connection is over."""
        if channel is not self._channel:
            return
        self._channel = None
        self._failure = error
        self.session.note(error)
        self._backoff.lost(time.monotonic())
        self.session.lose()
        channel.abort()
        if self._pulse is not None:
            self._pulse.cancel()
        self._log.lost(self._address, error, time.monotonic())
        self._address = self._address.after(error)
        if self._deadlines or self._waiting or len(self.session.subscriptions):
            self.begin()

    def resumed(self) -> None:
        """The broker reads again."""
        self.write_soon()

    # -- Inside -------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._flushing = False
        channel = self._channel
        if channel is None or not channel.writable:
            return
        pieces = self.session.take_output()
        if pieces:
            channel.write(pieces)

    async def _connect(self) -> None:
        """Try until there is a connection."""
        while self._channel is None and self.session.closed is None:
            pause = self._backoff.pause(time.monotonic())
            if pause > 0:
                await asyncio.sleep(pause)
            self._backoff.tried(time.monotonic())
            try:
                await self._try()
            except (OSError, NexoError) as error:
                self._failure = failure = unreachable(self._address, error)
                if is_final(failure, self._address):
                    self.session.fail(failure)
                    return
                self._address = self._address.next()

    async def _try(self) -> None:
        channel = await self._dial(self._address)
        try:
            self.session.connect(channel.greeting)
        except BaseException:
            channel.abort()
            raise
        self._channel = channel
        self._failure = None
        self._backoff.connected(time.monotonic())
        self._log.connected(self._address, time.monotonic())
        self._take_over(channel)
        self._tick()

    async def _dial(self, address: Address) -> Channel:
        """A connection whose greeting was answered."""
        loop = asyncio.get_running_loop()
        host, port, tls, _ = address
        context = None if tls is None else tls.context()
        channel = Channel(self, self.session)
        async with asyncio.timeout(CLIENT_CONNECT_S):
            await loop.create_connection(lambda: channel, host, port, ssl=context)
            try:
                await channel.greeted
            except BaseException:
                channel.abort()
                raise
        return channel

    def _take_over(self, channel: Channel) -> None:
        channel.take_over()
        for arrived in channel.greeting.frames[1:]:
            self.session.dispatch(arrived)
        self._flush()

    def _consider_moving(self, channel: Channel) -> None:
        """The broker has told where to go: see whether it can be reached. Nobody waits for that."""
        told, self.session.redirect = self.session.redirect, ""
        to = self._redirects.target(told, self._address, time.monotonic())
        is_moving = self._moving is not None and not self._moving.done()
        if to is not None and not is_moving and self._loop is not None:
            self._moving = self._loop.create_task(self._move(to, channel))

    async def _move(self, to: Address, left: Channel) -> None:
        """Go on at another node, once it has answered there, with all that was asked of the one
        that is left. If that fails, nothing has changed."""
        try:
            channel = await self._dial(to)
        except (OSError, NexoError) as error:
            self._redirects.failed(to, unreachable(to, error), time.monotonic())
            return
        has_moved = False
        try:
            channel.greeting.check_cluster(self.session.cluster)
            has_moved = await self._change_to(channel, to, left)
        except NexoError as error:
            self._redirects.failed(to, error, time.monotonic())
        finally:
            if not has_moved:
                channel.abort()
        if has_moved:
            self._redirects.moved(to, time.monotonic())
            await left.end(CLIENT_CLOSE_S)

    async def _change_to(self, channel: Channel, to: Address, left: Channel) -> bool:
        """Whether it was done: the connection may have been lost or closed meanwhile."""
        session = self.session
        if session.closed is not None or self._channel is not left:
            return False
        leaving = session.leave()
        leaving.future = answered = asyncio.get_running_loop().create_future()
        leaving.notify = _resolve
        self._flush()
        await asyncio.wait([answered], timeout=CLIENT_LEAVE_S)
        if not session.is_leaving or self._channel is not left:
            return False
        self._channel, self._address = channel, to
        self._backoff.connected(time.monotonic())
        session.move(channel.greeting)
        self._take_over(channel)
        if channel.is_over:
            self.lost(channel, Unreachable(f"the broker at {to} closed the connection"))
        return True

    def _tick(self) -> None:
        channel, loop = self._channel, self._loop
        if channel is None or loop is None:
            return
        try:
            pause = self.session.tick()
        except NexoError as error:
            self.lost(channel, error)
            return
        self._flush()
        self._pulse_at = self.session.due
        self._pulse = loop.call_later(pause, self._tick)

    def _expire(self) -> None:
        """Calls whose time is over; they are in the order of their deadlines."""
        assert self._loop is not None
        now, next_at = self._loop.time(), None
        for operation, deadline in self._deadlines.items():
            if deadline > now:
                next_at = deadline
                break
            self._overdue(operation)
        self._expiry = None
        if next_at is not None:
            self._expiry = self._loop.call_at(next_at, self._expire)

    def _overdue(self, operation: Operation) -> None:
        if not operation.done:
            self.session.abandon(operation)
            if self._channel is None:
                failure = self._failure or Unreachable(f"{self._address} does not answer")
                operation.fail(overdue(self._address, failure, self._timeout))
            else:
                operation.fail(
                    unanswered(self._address, self.session.unready(self._timeout), self._timeout)
                )


class Channel(asyncio.Protocol):
    """One connection to the broker, from its greeting to its end."""

    def __init__(self, owner: Connection, session: Session) -> None:
        self._owner = owner
        self._session = session
        self._transport: asyncio.Transport | None = None
        self._greeting = True
        self._ended = asyncio.get_running_loop().create_future()
        self.greeting: Greeting = Greeting()
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.writable: bool = True

    @property
    def is_over(self) -> bool:
        return self._ended.done()

    def take_over(self) -> None:
        """The greeting is done: what comes from here on is for the connection."""
        self._greeting = False

    def write(self, pieces: Pieces) -> None:
        if self._transport is not None:
            if len(pieces) == 1:
                self._transport.write(pieces[0])
            elif sum(map(len, pieces)) < JOINED_BYTES_MAX:
                self._transport.write(b"".join(pieces))
            else:
                self._transport.writelines(pieces)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def end(self, seconds: float) -> None:
        """Close once everything is written."""
        if self._transport is not None:
            self._transport.close()
            await asyncio.wait([self._ended], timeout=seconds)
            self.abort()

    # -- The transport's side -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            configure(sock)
        self._transport.write(self._session.hello())

    def data_received(self, data: bytes) -> None:
        if not self._greeting:
            self._owner.received(self, data)
            return
        try:
            is_answered = self.greeting.feed(data)
        except NexoError as error:
            self.abort()
            if not self.greeted.done():
                self.greeted.set_exception(error)
            return
        if is_answered and not self.greeted.done():
            self.greeted.set_result(None)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._owner.resumed()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self._ended.done():
            self._ended.set_result(None)
        reason = Unreachable(f"the broker closed the connection{f': {error}' if error else ''}")
        if not self.greeted.done():
            self.greeted.set_exception(
                Unreachable(
                    "the broker closed the connection during the handshake",
                    HUNG_UP_HINT,
                )
            )
            self.greeted.exception()  # nobody may be waiting for it any more
        self._owner.lost(self, reason)


def _resolve(operation: Operation) -> None:
    future = operation.future
    if not future.done():
        if operation.error is None:
            future.set_result(operation.result)
        else:
            future.set_exception(operation.error)
