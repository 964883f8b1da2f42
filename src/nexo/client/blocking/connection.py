"""The connection of a blocking client: one of the threads that wait reads for all of them.

A caller writes its own frames and then waits. If nobody reads it becomes the leader: it reads the
socket and hands out every answer that comes, its own and those of others, until it has its own;
then one of the followers leads. So a lone thread never pays for a hand-over, and many threads share
one connection. While one thread writes, what the others submit is merged into its next write.

The keeper, a background thread, steps in when nobody reads: heartbeats, extensions, receptions,
and reconnects of subscriptions whose consumer is busy. It never blocks in a read, so leadership is
always free for a caller.

Order of things: the lock guards the session and every field here; it is never held during I/O.
"""

from __future__ import annotations

import os
import random
import select
import socket
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from nexo.client.blocking.keeper import Keeper
from nexo.client.handshake import (
    CONNECT_S,
    Backoff,
    configure,
    is_final,
    overdue,
    unreachable,
)
from nexo.client.session import Session, closed
from nexo.vocabulary.errors import NexoError, Unreachable

if TYPE_CHECKING:
    from nexo.client.address import Address
    from nexo.client.operation import Operation
    from nexo.client.subscribed import Subscribed

RECEIVE_S = 1.0  # a read that brings nothing for this long looks around
BUFFER_BYTES = 256 * 1024
HOT_S = 0.05  # receptions that follow each other closer than this travel with what comes next …
TICK_S = 0.005  # … or at the latest after this long
IDLE_READ_S = 0.25  # the keeper reads for subscriptions that nobody reads for
MERGING_WINDOW = 2  # frames of single pushes under way to one queue; more threads are merged

_alive: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    def __init__(
        self, address: Address, token: str | None, timeout: float, heartbeat: float, name: str
    ) -> None:
        self._address = address
        self._token = token
        self._timeout = timeout
        self._heartbeat = heartbeat
        self._name = name
        self._begin()
        _alive.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self.session = Session(
            time.monotonic,
            name=self._name,
            producer=os.urandom(8).hex(),
            token=self._token,
            heartbeat_s=self._heartbeat,
            merging_window=MERGING_WINDOW,
        )
        self._socket: socket.socket | None = None
        self._retired: list[socket.socket] = []
        self._left: deque[Subscribed] = deque()  # subscriptions whose loop was left
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._writing = False
        self._leading = False
        self._followers: dict[Operation, Any] = {}  # those who wait, and the lock they wait on
        self._backoff = Backoff(random.random)
        self._failure: NexoError | None = None  # why there is no connection
        self._quiet_at = 0.0
        self._closing = threading.Event()
        self._keeper: Keeper | None = None

    # -- Callers ------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect now, so that a wrong address is told here."""
        deadline = time.monotonic() + self._timeout
        with self._lock:
            self._leading = True
        try:
            while self._socket is None:
                if not self._lead(deadline):
                    raise overdue(self._address, self._failure, self._timeout)
        finally:
            self._resign()

    def run(self, operation: Operation) -> Any:
        """Do what is asked, and wait for the answer."""
        deadline = time.monotonic() + self._timeout + operation.wait_s
        with self._lock:
            self.session.submit(operation)
        try:
            self.write()
            self.wait(operation, deadline)
        finally:
            if not operation.done:
                with self._lock:
                    self.session.abandon(operation)
        return operation.outcome()

    def locked(self) -> threading.Lock:
        """What guards the session."""
        return self._lock

    def wait(self, operation: Operation, deadline: float, patient: bool = False) -> None:
        """Wait until an operation is done, reading for all if nobody else does. When the time is
        over it raises, or if `patient` just returns."""
        while not operation.done:
            if time.monotonic() >= deadline:
                if patient:
                    return
                with self._lock:
                    failure = self._failure if self._socket is None else None
                raise overdue(self._address, failure, self._timeout)
            with self._lock:
                if operation.done:
                    return
                if self._leading:
                    follower = threading.Lock()
                    follower.acquire()
                    self._followers[operation] = follower
                    operation.notify = self._notify
                else:
                    self._leading = True
                    follower = None
            if follower is not None:
                self._follow(operation, follower, deadline)
                continue
            try:
                while self._lead(deadline):
                    if operation.done:
                        return
            finally:
                self._resign()

    def close(self) -> None:
        """Give back what is held, say so, and wake everybody."""
        self.write()
        with self._lock:
            if self.session.closed is not None:
                return
            self.session.close(closed())
        self.write()
        self._closing.set()
        if self._keeper is not None:
            self._keeper.stir()
        with self._lock:
            if self._socket is not None:
                self._retire(self._socket)
            self.session.lose()
            idle = not (self._writing or self._leading)
        if idle:
            self._close_retired()

    def close_soon(self, subscribed: Subscribed) -> None:
        """Close a subscription from wherever an object may be finalised: the lock may be held by
        this very thread, so it is not waited for."""
        self._left.append(subscribed)
        if self._lock.acquire(blocking=False):
            try:
                self._close_left()
            finally:
                self._lock.release()
            self.write()
        elif self._keeper is not None:
            self._keeper.stir()

    def _close_left(self) -> None:
        while self._left:
            self.session.close_subscription(self._left.popleft())

    # -- Writing ------------------------------------------------------------------------------

    def write(self) -> None:
        """Write all that waits; if another thread is writing, it takes ours along."""
        lock = self._lock
        lock.acquire()
        try:
            while not self._writing:
                sock = self._socket
                pieces = self.session.take_output() if sock is not None else None
                if sock is None or not pieces:
                    return
                self._writing = True
                lock.release()
                failure: OSError | None = None
                try:
                    self._send(sock, pieces[0] if len(pieces) == 1 else b"".join(pieces))
                except OSError as error:
                    failure = error
                finally:
                    lock.acquire()
                    self._writing = False
                if failure is not None:
                    self._lose(sock, unreachable(self._address, failure))
        finally:
            lock.release()

    def _send(self, sock: socket.socket, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[sock.send(rest) :]
            except BlockingIOError:
                # The broker reads nothing until we read what it has for us.
                self.read_idly()

    def _written_later(self) -> None:
        """Receptions are in no hurry: in a busy loop the ack that follows takes them along."""
        now = time.monotonic()
        hot, self._quiet_at = now - self._quiet_at < HOT_S, now
        if hot and self._keeper is not None:
            self._keeper.stay_awake(TICK_S)
        else:
            self.write()

    # -- Reading ------------------------------------------------------------------------------

    def _lead(self, deadline: float) -> bool:
        """One step of the leader: read what comes, or connect. Returns whether time is left."""
        sock = self._socket
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if sock is None:
            self._connect(left)
            return True
        try:
            if left < RECEIVE_S and not _readable(sock, left):
                return True
            count = sock.recv_into(self._view)
        except BlockingIOError:
            return True
        except OSError as error:
            with self._lock:
                self._lose(sock, unreachable(self._address, error))
            return True
        self._received(sock, count)
        return True

    def _received(self, sock: socket.socket, count: int) -> None:
        with self._lock:
            if self._socket is not sock:
                return
            session = self.session
            if not count:
                self._lose(sock, Unreachable(f"the broker at {self._address} hung up"))
                return
            try:
                session.receive(bytes(self._view[:count]))
            except NexoError as error:
                self._lose(sock, error)
                return
            urgent, quiet = session.urgent, session.has_quiet
        if urgent:
            self.write()
        elif quiet:
            self._written_later()

    def read_idly(self) -> None:
        """Read what is there without waiting, if nobody else reads."""
        with self._lock:
            sock = self._socket
            if self._leading or sock is None:
                return
            self._leading = True
        try:
            while self._socket is sock and _readable(sock, 0):
                self._received(sock, sock.recv_into(self._view))
        except BlockingIOError:
            return
        except OSError as error:
            with self._lock:
                self._lose(sock, unreachable(self._address, error))
        finally:
            self._resign()

    def _follow(self, operation: Operation, follower: Any, deadline: float) -> None:
        left = deadline - time.monotonic()
        try:
            follower.acquire(timeout=min(max(left, 0), threading.TIMEOUT_MAX))
        finally:
            with self._lock:
                self._followers.pop(operation, None)
                operation.notify = None
                if operation.done or left <= 0:
                    self._promote()  # should it have been woken to lead

    def _notify(self, operation: Operation) -> None:
        """Under the lock: an operation of a follower is done."""
        follower = self._followers.get(operation)
        if follower is not None and follower.locked():
            follower.release()

    def _resign(self) -> None:
        with self._lock:
            self._leading = False
            self._promote()

    def _promote(self) -> None:
        """Under the lock: if nobody leads, one of those who wait is to."""
        if self._leading:
            return
        for operation, follower in self._followers.items():
            if not operation.done and follower.locked():
                follower.release()
                return

    # -- Connecting ---------------------------------------------------------------------------

    def _connect(self, left: float) -> None:
        """One try, after the pause that the tries before it call for. Only the leader connects."""
        pause = self._backoff.pause(time.monotonic())
        if pause > 0:
            self._closing.wait(min(pause, left))
            if pause >= left:
                return
        with self._lock:
            if self.session.closed is not None:
                raise self.session.closed
            if self._writing:
                pause = 0.001  # the writer is about to notice
        if pause == 0.001:
            time.sleep(pause)
            return
        self._close_retired()
        self._backoff.tried(time.monotonic())
        sock: socket.socket | None = None
        try:
            sock = socket.create_connection(self._address, timeout=min(CONNECT_S, left))
            self._greet(sock)
        except (OSError, NexoError) as error:
            if sock is not None:
                sock.close()
            failure = error if isinstance(error, NexoError) else unreachable(self._address, error)
            if is_final(failure):
                raise failure from None
            self._failure = failure
        if self._keeper is None and self._socket is not None:
            self._keeper = Keeper(weakref.ref(self))
            self._keeper.start()

    def _greet(self, sock: socket.socket) -> None:
        configure(sock)
        with self._lock:
            hello = self.session.hello()
        sock.sendall(hello)
        while True:
            data = sock.recv(BUFFER_BYTES)
            if not data:
                raise Unreachable(
                    f"the broker at {self._address} hung up during the greeting",
                    "does the URL name the RPC port?",
                )
            with self._lock:
                frames = self.session.read(data)
                if frames:
                    break
        _make_blocking(sock)
        with self._lock:
            self.session.connect(frames[0])
            for arrived in frames[1:]:
                self.session.dispatch(arrived)
            self._socket = sock
            self._failure = None
        self._backoff.connected(time.monotonic())
        self.write()

    def _lose(self, sock: socket.socket, failure: NexoError) -> None:
        """Under the lock: a connection is over."""
        if self._socket is sock:
            self._retire(sock)
            self._failure = failure
            self._backoff.lost(time.monotonic())
            self.session.lose()

    def _retire(self, sock: socket.socket) -> None:
        """Under the lock. Another thread may be in a call on this socket: it is woken now, and the
        descriptor is closed when nobody can be, so that it is never one of another connection."""
        self._socket = None
        self._retired.append(sock)
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it was not connected any more

    def _close_retired(self) -> None:
        while self._retired:
            self._retired.pop().close()

    # -- The keeper's side --------------------------------------------------------------------

    def keep(self) -> float:
        """What nobody else is there for; returns in how many seconds to come again."""
        with self._lock:
            if self.session.closed is not None:
                return 0.0
            self._close_left()
            sock, leading = self._socket, self._leading
            subscribed = self.session.subscriptions > 0
        if sock is None and subscribed and not leading:
            self._reconnect_idly()
        if not leading:
            self.read_idly()
        with self._lock:
            try:
                pause = self.session.tick()
            except NexoError as error:
                if self._socket is not None:
                    self._lose(self._socket, error)
                pause = TICK_S
        self.write()
        if subscribed and not leading:
            pause = min(pause, IDLE_READ_S)
        if time.monotonic() - self._quiet_at < 2 * HOT_S:
            pause = min(pause, TICK_S)
        return pause

    def _reconnect_idly(self) -> None:
        with self._lock:
            if self._leading or self._backoff.pause(time.monotonic()) > 0:
                return
            self._leading = True
        try:
            self._connect(CONNECT_S)
        except NexoError as error:
            self._failure = error  # the consumer is told when it comes for more
        finally:
            self._resign()

    def forget_parent(self) -> None:
        """In the child of a fork: the socket and its answers are the parent's."""
        inherited = [*self._retired, *([self._socket] if self._socket else [])]
        parent = self.session
        self._begin()
        parent.disown()
        for sock in inherited:
            sock.close()


def _readable(sock: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _make_blocking(sock: socket.socket) -> None:
    """Time limits by the kernel: Python's own would cost a poll before each read."""
    limit = socket.SO_RCVTIMEO, socket.SO_SNDTIMEO
    seconds, micros = int(RECEIVE_S), int(RECEIVE_S % 1 * 1e6)
    import struct

    for option in limit:
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", seconds, micros))
    sock.settimeout(None)


def _after_fork() -> None:
    for connection in list(_alive):
        connection.forget_parent()


os.register_at_fork(after_in_child=_after_fork)
