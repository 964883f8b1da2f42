"""A session with a broker, without sockets: the half that both clients share.

Callers `submit` operations; the one who does I/O writes what `take_output` gives, hands in what
arrives with `receive`, and says when the connection is `connected` or `lost`. The session outlives
connections: what was not answered is sent again on the next one, subscriptions are opened again.
A planned change of the connection is to `leave` one and to `move` to another: see `redirects`.
Where operations wait is in `pushes`, `receipts` and `subscriptions`; of the session they see the
part that is `Traffic`. It takes no locks and reads no clock but the one it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo import __version__
from nexo.client.address import Silent
from nexo.client.operation import Request, Traffic, error_of
from nexo.client.pushes import Push, PushBatch, Pushes
from nexo.client.receipts import Receipts, Settling
from nexo.client.redirects import Goodbye, Greeting, Leaving
from nexo.client.subscriptions import Subscriptions
from nexo.vocabulary.errors import InvalidArgument, NexoError, NotReady
from nexo.vocabulary.limits import CLIENT_AGAIN_S, CONSUMER_CHARS_MAX, HEARTBEATS_MISSED_MAX
from nexo.wire import commands
from nexo.wire.frame import Frame, FrameReader, Kind, ProtocolError, frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.operation import Operation, Pieces

SOFTWARE = f"nexo-python {__version__}"


class Session(Traffic):
    def __init__(
        self,
        clock: Callable[[], float],
        *,
        name: str,
        producer: str,
        token: str | None,
        heartbeat_s: float,
        merging_window: int,
        follows: bool = False,
    ) -> None:
        super().__init__(clock)
        self.name: str = name[:CONSUMER_CHARS_MAX]  # it is for people
        self._token = token
        self.heartbeat_s: float = heartbeat_s
        self._pushes = Pushes(producer, merging_window)
        self._receipts = Receipts()
        self.subscriptions: Subscriptions = Subscriptions(self, self.name)
        self._reader = FrameReader()
        self._heard = self._spoke = clock()
        self._unready: tuple[NexoError | None, float] = None, 0.0
        self._follows = follows
        self.redirect: str = ""  # where the broker has told the client to go
        self.cluster: str = ""  # what the broker belongs to
        self._leaving: Leaving | None = None
        self._parting: Pieces = []  # the last words on a connection that is left

    # -- The caller's side --------------------------------------------------------------------

    def submit(self, operation: Operation) -> None:
        if self.closed is not None:
            raise self.closed.anew()
        if isinstance(operation, Settling):
            self._receipts.enter(operation)
        elif isinstance(operation, (Push, PushBatch)):
            self._pushes.enter(operation)
        else:
            assert isinstance(operation, Request)
            self.requests.append(operation)

    def abandon(self, operation: Operation) -> None:
        """The caller has gone. What was not sent will not be; of what was, the answer is dropped,
        and messages that it brings, or has brought, go back at once."""
        unseen = operation.abandon()
        if unseen is not None:
            self.give_back(unseen)

    def close(self, error: NexoError) -> None:
        """Everybody hears of it; nothing is taken any more."""
        self._stay()
        self._end(error)
        self.fail(error)

    def fail(self, error: NexoError) -> None:
        """Nothing that waits will be done: everybody hears why."""
        self.subscriptions.fail(error)
        for exchange in list(self._pending.values()):
            exchange.failed(error)
        self._pending.clear()
        for request in self.requests:
            request.fail(error)
        self.requests.clear()
        for _, exchange in self._postponed:
            exchange.failed(error)
        self._postponed.clear()
        self._quiet.clear()
        self._pushes.fail(error)
        self._receipts.fail(error)

    # -- The connection's side ----------------------------------------------------------------

    def hello(self) -> bytes:
        """The first frame of a connection."""
        version = commands.PROTOCOL_VERSION
        hello = commands.Hello(
            commands.MAGIC,
            (version, version),
            self.name,
            self._token,
            round(self.heartbeat_s * 1000),
            SOFTWARE,
            follows=self._follows,
        )
        return frame(Kind.HELLO, 1, commands.pack(hello))

    def connect(self, greeting: Greeting) -> None:
        """The broker has answered the greeting: take everything up again."""
        welcome = self._greeted(greeting)
        self._begin_connection(welcome.instance)
        self.subscriptions.connect()
        self._receive_popped_again()

    def leave(self) -> Leaving:
        """Another connection is there, and greeted. What waits goes out, and a goodbye; from then
        on everything is held back until `move`. Returns what to wait for, but not for long."""
        self._parting = self.take_output()
        subscriptions = self.subscriptions.numbers
        self.subscriptions.leave(self._parting)
        goodbye = Goodbye()
        self._parting.append(goodbye.framed(self.expect(goodbye)))
        self._leaving = Leaving(self._pending, subscriptions)
        self.is_leaving: bool = True
        return self._leaving

    def move(self, greeting: Greeting) -> None:
        """The connection that was left is lost, and the other takes its place: one step."""
        leaving = self._leaving
        assert leaving is not None
        welcome = self._greeted(greeting)
        for correlation in [each for each in self._pending if each in leaving.sent]:
            self._pending.pop(correlation).lost(self)
        self._stay()
        self._change_connection(welcome.instance)
        self.subscriptions.move(leaving.subscriptions)
        self._receive_popped_again()

    def _stay(self) -> None:
        """Nothing is held back any more."""
        leaving, self._leaving = self._leaving, None
        self.is_leaving = False
        self._parting = []
        if leaving is not None:
            leaving.finish(None)

    def _greeted(self, greeting: Greeting) -> commands.Welcome:
        welcome = greeting.frames[0]
        if welcome.kind is Kind.GOODBYE or welcome.kind is Kind.ERROR:
            raise _reason(welcome)
        if welcome.kind is not Kind.WELCOME:
            raise ProtocolError(f"unexpected {welcome.kind.name} in the handshake")
        welcomed: commands.Welcome = commands.unpack(welcome.head, commands.Welcome)
        self.heartbeat_s = welcomed.heartbeat_ms / 1000
        self.cluster, self.redirect = welcomed.cluster, ""
        self._reader = greeting.reader
        self._heard = self._clock()
        return welcomed

    def lose(self) -> None:
        """The connection is gone: what has no answer waits for the next one."""
        self._stay()
        if not self.connected:
            return
        for exchange in self._end_connection():
            exchange.lost(self)
        postponed, self._postponed = self._postponed, []
        for _, exchange in postponed:
            exchange.lost(self)
        self.subscriptions.lose()

    def receive(self, data: bytes) -> None:
        """Bytes have arrived. What breaks the protocol, or a goodbye, is raised: the connection
        is to be closed."""
        self._heard = self._clock()
        for arrived in self._reader.feed(data):
            self.dispatch(arrived)

    def dispatch(self, arrived: Frame) -> None:
        kind = arrived.kind
        if kind is Kind.OK:
            exchange = self._pending.pop(arrived.correlation, None)
            if exchange is not None:
                try:
                    exchange.answered(self, arrived)
                except ProtocolError as error:
                    exchange.failed(error)
                    raise
            if self._leaving is not None:
                self._leaving.answered(arrived.correlation)
        elif kind is Kind.DELIVER:
            self.subscriptions.deliver(arrived)
        elif kind is Kind.ERROR:
            self._refuse(arrived)
        elif kind is Kind.ENDED:
            self.subscriptions.ended(arrived)
        elif kind is Kind.GOODBYE:
            raise _reason(arrived)
        elif kind is Kind.MOVED:
            moved: commands.Moved = commands.unpack(arrived.head, commands.Moved)
            self.redirect = moved.address
        elif kind is not Kind.HEARTBEAT:
            raise ProtocolError(f"a broker does not send {kind.name}")

    def take_output(self) -> Pieces:
        """Everything that is to be written now; what was merged is one frame."""
        if not self.connected:
            return []
        if self._leaving is not None:
            parting, self._parting = self._parting, []
            return parting
        out = self._take()
        if self._receipts.busy:
            self._receipts.take(self, out)
        while self.requests:
            request = self.requests.popleft()
            if not request.abandoned:
                out += request.pieces(self.expect(request), self)
        if self._pushes.busy:
            self._pushes.take(self, out)
        if self.subscriptions.indebted:
            self.subscriptions.credit(out)
        if out:
            self._spoke = self._clock()
        return out

    @property
    def urgent(self) -> bool:
        """Whether something is to be written that nobody else will."""
        return bool(self._out or self.requests or self._pushes.busy or self.subscriptions.indebted)

    def tick(self) -> float:
        """Do what time has made due; returns in how many seconds to look again. Raises if nothing
        was heard of the broker for too long."""
        now = self._clock()
        postponed, self._postponed = self._postponed, []
        for due, exchange in postponed:
            if now >= due:
                exchange.lost(self)
            else:
                self._postponed.append((due, exchange))
        if not self.connected:
            return self._due_in(CLIENT_AGAIN_S)
        if now - self.due > self.heartbeat_s:
            self._heard = now  # it was this process that slept: what came meanwhile is not read yet
        silence = self.heartbeat_s * HEARTBEATS_MISSED_MAX
        if now - self._heard > silence:
            raise Silent(f"no answer from the broker for {silence:.1f} s")
        if now - self._spoke >= self.heartbeat_s:
            self._out.append(frame(Kind.HEARTBEAT, 0))
        due_s = self.heartbeat_s / 2
        now_ms = self.now_ms()
        due_s = min(due_s, (self.subscriptions.tick(now_ms, self._out) - now_ms) / 1000)
        if self._postponed:
            due_s = min(due_s, CLIENT_AGAIN_S)
        return self._due_in(max(due_s, 0.01))

    def note(self, error: NexoError) -> None:
        """A refusal, or why a connection was lost."""
        if isinstance(error, NotReady):
            self._unready = error.anew(), self._clock()

    def unready(self, within_s: float) -> NexoError | None:
        """What the broker has said of why it was not ready, if that is no longer ago. A call is
        tried again for it until its time is over, and is to name it then."""
        error, said = self._unready
        return error if self._clock() - said <= within_s else None

    # -- Inside -------------------------------------------------------------------------------

    def _refuse(self, arrived: Frame) -> None:
        exchange = self._pending.pop(arrived.correlation, None)
        if exchange is None:
            return
        error = _reason(arrived)
        self.note(error)
        if isinstance(error, NotReady):
            self._set_back()
            self.postpone(exchange)
        else:
            exchange.refused(self, error)
        if self._leaving is not None:
            self._leaving.answered(arrived.correlation)


def _reason(arrived: Frame) -> NexoError:
    """Why the broker refused or left."""
    if not arrived.head:  # it stops, or a node hands over a shard that is used here
        return NotReady("the broker closed the connection", "the client reconnects by itself")
    return error_of(commands.unpack(arrived.head, commands.Refusal))


def closed() -> NexoError:
    return InvalidArgument("this client is closed", "connect again")
