"""One connection: frames in, frames out, and never more in memory than the limits say.

Until it has greeted, a client may send a few KiB and takes a few seconds. What is written within
one turn of the event loop goes out in one call. While the client does not read, nothing more is
read from it and its subscriptions are out of the room; so all that it can make the broker hold is
what was under way. When it has gone nothing here refers to itself any more: the memory is free at
once, and not when the garbage collector comes by.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from nexo.access.caller import ANYONE
from nexo.doors.rpc_tcp.access import check_frame, resource_of
from nexo.doors.rpc_tcp.deliveries import Subscriptions
from nexo.doors.rpc_tcp.handlers import HANDLERS
from nexo.doors.rpc_tcp.inbox import Inbox
from nexo.engine.committer import call_back
from nexo.engine.connections import AckTally, ConnectionFigures, ConsumerFigures, state_of
from nexo.vocabulary import limits
from nexo.vocabulary.errors import NexoError, RateLimited, Unauthorized, VersionMismatch
from nexo.vocabulary.limits import (
    HEARTBEATS_MISSED_MAX,
    JOINED_BYTES_MAX,
    RPC_CLOSING_MS,
    RPC_GREETING_BYTES_MAX,
    RPC_GREETING_MS,
    RPC_REQUESTS_MAX,
    RPC_UNREAD_BYTES_MAX,
    SUBSCRIPTIONS_MAX,
)
from nexo.wire import commands
from nexo.wire.frame import FirstFrame, Frame, FrameReader, Kind, ProtocolError, frame, frame_parts

if TYPE_CHECKING:
    from nexo.access.guard import Guard
    from nexo.access.operations import Operation
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor

DOOR = "rpc"
HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX = 500, 300_000


class Connection(asyncio.Protocol):
    def __init__(
        self,
        engine: Engine,
        guard: Guard,
        server_name: str,
        instance: int,
        peers: set[Connection],
        peers_max: int,
    ) -> None:
        self.engine = engine
        self.caller = ANYONE  # until the greeting, before which nothing is done
        self._guard = guard
        self._peer = ""
        self.subscriptions = Subscriptions()
        self.aheads: dict[str, tuple[int, int]] = {}  # by queue: incarnation and lease of a pop
        self._server_name = server_name
        self._instance = instance
        self._peers = peers
        self._peers_max = peers_max
        self._loop = asyncio.get_running_loop()
        self._first: FirstFrame | None = FirstFrame(RPC_GREETING_BYTES_MAX)
        self._reader = FrameReader()
        self._inbox = Inbox()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._readers_wait: list[asyncio.Future[None]] = []  # for the client to read
        self._flushing = False
        self._asked = False  # an answer to what was just read waits for a commit
        self._greeted = False
        self._ending = False
        self._unanswered = 0
        self._reading = True
        self._writable = True
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()  # of them, those that a goodbye ends
        self.is_left = False  # the client has said goodbye
        self._heartbeat_s = RPC_GREETING_MS / 1000
        self._heard = self._spoke = self._loop.time()
        self._pulse: asyncio.TimerHandle | None = None
        self._beat_due = self._heard
        self.name = ""
        self._software = ""
        self._since_ms = 0
        self._number = 0  # among all connections, once it has greeted
        self._acks: dict[str, AckTally] = {}  # by queue

    # -- The transport's side -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=RPC_UNREAD_BYTES_MAX)
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        if len(self._peers) >= self._peers_max:
            self.end(RateLimited(f"the limit of {self._peers_max} connections is reached"))
            return
        self._peers.add(self)
        self._beat_later()

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        self._heard = self._loop.time()
        self._asked = False
        try:
            if self._first is not None:
                data = self._meet(data, self._first)
            frames = self._reader.feed(data)
            if self._inbox.is_waiting:
                self._inbox.add(frames)
            elif len(frames) == 1:  # as most often
                self._take(frames[0])
            else:
                self._inbox.add(frames)
                self._inbox.take(self, self._take)
        except ProtocolError as error:
            self.end(error)
        if self._flushing:
            self._flush()  # before the commit that these requests may have called for

    def pause_writing(self) -> None:
        self._writable = False
        self.subscriptions.pause()
        self.regulate()

    def resume_writing(self) -> None:
        self._writable = True
        self._let_go_on()
        self.subscriptions.resume()
        self.regulate()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self._inbox.is_waiting:  # else what has come is done first: acks, for one
            self._lose()

    def _lose(self) -> None:
        self._peers.discard(self)
        self.engine.connections.remove(self._number)
        self.caller.forget(self._expel)
        if self._pulse is not None:
            self._pulse.cancel()
        self.subscriptions.close()
        if self.aheads:
            kept_s = limits.AHEAD_KEPT_MS / 1000
            self._loop.call_later(kept_s, _take_back, self.engine, self.aheads)
        self._let_go_on()
        self._out.clear()
        for task in self._tasks:
            task.cancel()

    # -- The handlers' side -------------------------------------------------------------------

    def reply(self, correlation: int, head: bytes = b"") -> None:
        if correlation:
            self.send([frame(Kind.OK, correlation, head)])

    def reply_with(self, correlation: int, head: bytes, body: list[bytes | memoryview]) -> None:
        self.send(frame_parts(Kind.OK, correlation, head, body))

    def refuse(self, correlation: int, error: NexoError) -> None:
        if correlation:
            self.send([frame(Kind.ERROR, correlation, commands.refusal_of(error))])

    def answer(self, future: asyncio.Future[Any], correlation: int, encode: Any) -> None:
        """Reply when a future of the engine is done."""
        self._asked = self._asked or correlation != 0
        self._unanswered += 1
        if self._unanswered >= RPC_REQUESTS_MAX:
            self.regulate()

        def told(result: Any, error: BaseException | None) -> None:
            self._answered()
            # If no other answer is about to come, it need not wait for a turn of the loop.
            is_last = not self._flushing and self._unanswered == len(self._tasks)
            self._flushing = self._flushing or is_last
            try:
                if error is None:
                    self.reply(correlation, encode(result))
                elif isinstance(error, NexoError):
                    self.refuse(correlation, error)
                else:
                    raise error
            finally:
                if is_last:
                    self._flush()

        call_back(future, told)

    def spawn_waiting(self, work: Any, correlation: int) -> None:
        """Of one that waits for something to come: it is cancelled when the client says goodbye,
        and answers then that nothing came."""
        task = self.spawn(work, correlation)
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def spawn(self, work: Any, correlation: int) -> asyncio.Task[None]:
        """Run a handler that has to wait; it replies by itself."""
        self._unanswered += 1
        if self._unanswered >= RPC_REQUESTS_MAX:
            self.regulate()
        task = self._loop.create_task(self._guarded(work, correlation))
        self._tasks.add(task)
        task.add_done_callback(partial(self._worked, correlation))
        return task

    def send(self, pieces: list[bytes | memoryview]) -> None:
        if self._transport is None or self._ending:
            return
        self._out += pieces
        self._out_bytes += sum(map(len, pieces))
        if self._out_bytes > RPC_UNREAD_BYTES_MAX:
            self._flush()  # now, so that it is known at once whether the client reads
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def send_along(self, pieces: list[bytes | memoryview]) -> None:
        """Send with the answer that is under way to the requests read with this one, if there is
        any: who sent an ack and the next pop in one go waits for both, and wakes up once."""
        small = self._out_bytes < JOINED_BYTES_MAX
        if self._asked and small and not self._flushing and self._transport is not None:
            self._out += pieces
            self._out_bytes += sum(map(len, pieces))
        else:
            self.send(pieces)

    @property
    def guard(self) -> Guard:
        return self._guard

    @property
    def writable(self) -> bool:
        return self._writable and self._transport is not None

    def end(self, error: NexoError | None = None) -> None:
        """Close, telling why if there is a reason. A client that does not read it is cut off."""
        if self._transport is not None and not self._ending:
            self._ending = True
            self._inbox.clear()
            self._close(error)

    def _close(self, error: NexoError | None) -> None:
        transport = self._transport
        if transport is None:
            return
        self.subscriptions.close()
        if error is not None:
            self._out.append(frame(Kind.GOODBYE, 0, commands.refusal_of(error)))
        self._flush()
        if self._pulse is not None:
            self._pulse.cancel()
        self._pulse = self._loop.call_later(RPC_CLOSING_MS / 1000, transport.abort)
        transport.close()

    def say_goodbye(self) -> None:
        self.send([frame(Kind.GOODBYE, 0)])
        self.end()

    # -- For those who ask who is connected ---------------------------------------------------

    def note_acks(self, actor: QueueActor, ranges: list[tuple[int, int, int]]) -> None:
        """What is acked is counted by queue, so that a consumer that stands still is seen."""
        now_ms = self.engine.wall_ms()
        tally = self._acks.get(actor.name)
        if tally is None:
            if len(self._acks) >= SUBSCRIPTIONS_MAX:  # names of queues that came and went
                self._acks.clear()
            tally = self._acks[actor.name] = AckTally(now_ms)
        if len(ranges) == 1:
            tally.add(ranges[0][2] - ranges[0][1], now_ms)
        else:
            tally.add(sum(end - first for _, first, end in ranges), now_ms)

    def figures(self, number: int) -> ConnectionFigures:
        now_ms = self.engine.wall_ms()
        consumers = []
        queues = set()
        for queue, prefetch, unacked, held_ms in self.subscriptions.held():
            queues.add(queue)
            consumers.append(self._consumer(queue, prefetch, unacked, held_ms, now_ms))
        consumers += [self._consumer(each, 0, 0, 0, now_ms) for each in self._acks.keys() - queues]
        return ConnectionFigures(
            number=number,
            door=DOOR,
            name=self.name,
            address=self._peer,
            software=self._software,
            token=self.caller.name if self.caller.is_bound else "",
            since_ms=self._since_ms,
            consumers=consumers,
        )

    def _consumer(
        self, queue: str, prefetch: int, unacked: int, held_ms: int, now_ms: int
    ) -> ConsumerFigures:
        tally = self._acks.get(queue)
        last_ms = tally.last_ms if tally is not None else 0
        return ConsumerFigures(
            queue=queue,
            prefetch=prefetch,
            unacked=unacked,
            acked=tally.count if tally is not None else 0,
            rate=round(tally.rate(now_ms), 2) if tally is not None else 0.0,
            last_ack_ms=last_ms,
            state=state_of(unacked, self._writable, held_ms, now_ms - last_ms),
        )

    def close_by_operator(self) -> None:
        """As when the broker stops: a client that is well comes back by itself."""
        self.say_goodbye()

    def audited(self, operation: Operation, wanted: Any) -> contextlib.AbstractContextManager[None]:
        """Around a call: what changes something goes to the audit log, however it ends."""
        if not operation.is_audited:
            return contextlib.nullcontext()
        return self._guard.tell(self.caller, self._peer, DOOR, operation.name, resource_of(wanted))

    # -- Inside -------------------------------------------------------------------------------

    def _meet(self, data: bytes, first: FirstFrame) -> bytes:
        """The greeting, as far as it has come; returns what came behind it."""
        greeting, rest = first.feed(data)
        if greeting is not None:
            self._greet(greeting)
            if self._greeted:
                self._first = None
                return rest
        return b""

    def take_more(self) -> None:
        self._asked = False
        self._inbox.go_on(self, self._take)
        if self._flushing:
            self._flush()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def caught_up(self) -> None:
        self.regulate()
        if self._transport is None:
            self._lose()

    def _take(self, received: Frame) -> None:
        kind, correlation = received.kind, received.correlation
        if kind is Kind.HEARTBEAT:
            return
        if kind is Kind.GOODBYE:
            self._leave(correlation)
            return
        handler = HANDLERS.get(kind)
        if handler is None:
            raise ProtocolError(f"a client may not send {kind.name}")
        try:
            if self.caller.is_bound:
                check_frame(self.caller, received)
            handler(self, correlation, received.head, received.body)
        except ProtocolError:
            raise
        except NexoError as error:
            self.refuse(correlation, error)

    def _leave(self, correlation: int) -> None:
        """The client is about to leave: what waits for messages is answered now, so that none is
        on its way to it when it has gone."""
        self.is_left = True
        self.reply(correlation)
        self._loop.call_soon(self._end_waits)  # what came along with it has begun by then

    def _end_waits(self) -> None:
        for task in self._waiting:
            task.cancel()

    def _greet(self, received: Frame) -> None:
        if received.kind is not Kind.HELLO:
            raise ProtocolError("the first frame must be HELLO")
        hello = commands.unpack(received.head, commands.Hello)
        if hello.magic != commands.MAGIC:
            raise ProtocolError("the handshake does not begin with NEXO")
        low, high = hello.versions
        version = commands.PROTOCOL_VERSION
        if not low <= version <= high:
            self.end(
                VersionMismatch(
                    f"the broker speaks protocol {version}, the client {low} to {high}",
                    "upgrade the older of the two",
                )
            )
            return
        try:
            self.caller = self._guard.admit(hello.token, self._peer, DOOR)
        except (Unauthorized, RateLimited) as error:
            self.end(error)
            return
        if self.caller.is_bound:
            self.caller.when_ended(self._expel)
        self._greeted = True
        self.name = hello.client
        self._software = hello.software
        self._since_ms = self.engine.wall_ms()
        self._number = self.engine.connections.add(self)
        beat_ms = min(max(hello.heartbeat_ms, HEARTBEAT_MS_MIN), HEARTBEAT_MS_MAX)
        self._heartbeat_s = beat_ms / 1000
        if self._pulse is not None:
            self._pulse.cancel()
        self._beat_later()
        ahead_ms = self.engine.clock_ahead_ms()
        instance = self._instance + self.engine.epoch
        welcome = commands.Welcome(version, self._server_name, beat_ms, instance, ahead_ms)
        self.send([frame(Kind.WELCOME, received.correlation, commands.pack(welcome))])

    def _expel(self, reason: Unauthorized) -> None:
        """The token was revoked or has expired: nothing more goes in or out. The rest is done in
        the next turn of the event loop: very many connections may have this token."""
        for task in self._tasks:
            if task is not asyncio.current_task():  # an admin may revoke the token at hand
                task.cancel()
        if not self._ending:
            self._ending = True
            self._inbox.clear()
            self._loop.call_soon(self._close, reason)

    async def _guarded(self, work: Any, correlation: int) -> None:
        try:
            while not self._writable and self._transport is not None:
                # What waits here costs nothing; what it would bring must not pile up.
                reading = self._loop.create_future()
                self._readers_wait.append(reading)
                await reading
            await work
        except ProtocolError as error:
            self.end(error)
        except NexoError as error:
            self.refuse(correlation, error)
        finally:
            work.close()  # it may never have begun
            self._answered()

    def _worked(self, correlation: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None:  # a defect of ours: one request fails, and the log tells
            self._loop.call_exception_handler(
                {"message": "a request failed", "exception": failure, "task": task}
            )
            self.refuse(
                correlation, NexoError("internal error in the broker", "see the broker's log")
            )

    def _let_go_on(self) -> None:
        waiting, self._readers_wait = self._readers_wait, []
        for reading in waiting:
            if not reading.done():
                reading.set_result(None)

    def _answered(self) -> None:
        self._unanswered -= 1
        if self._unanswered == RPC_REQUESTS_MAX - 1:
            self.regulate()

    def regulate(self) -> None:
        """Read from the client only while it reads and the broker keeps up."""
        if self._transport is None:
            return
        is_behind = self._inbox.is_waiting or self._unanswered >= RPC_REQUESTS_MAX
        wanted = self._writable and not is_behind
        if wanted and not self._reading:
            self._transport.resume_reading()
        elif not wanted and self._reading:
            self._transport.pause_reading()
        self._reading = wanted

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is None or not self._out:
            return
        pieces, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        self._spoke = self._loop.time()
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        elif size < JOINED_BYTES_MAX:
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)

    def _beat(self) -> None:
        """Say something when nothing was said for a while; end when nothing was heard."""
        now = self._loop.time()
        if not self._greeted:
            self.end(ProtocolError("no handshake was received"))
            return
        if now - self._beat_due > self._heartbeat_s:
            self._heard = now  # it was the broker that slept: what came meanwhile is not read yet
        silence = self._heartbeat_s * HEARTBEATS_MISSED_MAX
        if self._reading and now - self._heard > silence:
            self.end(ProtocolError(f"nothing was received for {silence:.0f} s"))
            return
        if now - self._spoke >= self._heartbeat_s:
            self.send([frame(Kind.HEARTBEAT, 0)])
        self._beat_later()

    def _beat_later(self) -> None:
        self._beat_due = self._loop.time() + self._heartbeat_s
        self._pulse = self._loop.call_at(self._beat_due, self._beat)


def _take_back(engine: Engine, aheads: dict[str, tuple[int, int]]) -> None:
    """What a client that has gone had popped ahead, if nobody came for it."""
    for name, (incarnation, lease) in aheads.items():
        actor = engine.queues.get(name)
        if actor is not None and actor.queue.incarnation == incarnation:
            with contextlib.suppress(NexoError):  # the broker has stopped meanwhile
                actor.take_back(lease)
