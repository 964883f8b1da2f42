"""The connection of a blocking client: one of the threads that wait reads for all of them.

A caller writes its own frames and then waits. If nobody reads it becomes the leader: it reads the
socket and hands out every answer that comes, its own and those of others, until it has its own;
then a follower leads. So a lone thread never pays for a hand-over, and many share one connection.
While one thread writes, what the others submit is merged into its next write.

The keeper, a background thread, steps in when nobody reads: heartbeats, extensions, receptions,
reconnects of subscriptions. It never blocks in a read, so a caller can always lead.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from nexo.client.blocking.sockets import Sockets, dial, readable, send_all
from nexo.client.blocking.threads import Followers, Keeper, wait_at, watch_forks
from nexo.client.handshake import (
    Backoff,
    ConnectionLog,
    is_final,
    overdue,
    unanswered,
    unreachable,
)
from nexo.client.redirects import Redirects
from nexo.client.session import Session, closed
from nexo.vocabulary.errors import NexoError, Unreachable
from nexo.vocabulary.limits import (
    CLIENT_BUFFER_BYTES,
    CLIENT_CLOSE_S,
    CLIENT_CONNECT_S,
    CLIENT_HOT_S,
    CLIENT_IDLE_READ_S,
    CLIENT_LEAVE_S,
    CLIENT_RECEIVE_S,
    CLIENT_RECEPTION_S,
    CLIENT_TICK_S,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.address import Address
    from nexo.client.blocking.sockets import Channel
    from nexo.client.operation import Operation
    from nexo.client.receipts import AckOne
    from nexo.client.redirects import Greeting
    from nexo.client.subscriptions import SubscriptionState

INTERRUPTION: type[BaseException] = KeyboardInterrupt  # what ends a call from outside
MERGING_WINDOW = 2  # frames of single pushes under way to one queue; more threads are merged


class PoppedAhead(Protocol):
    """A message that came along with an ack, as long as nobody has come for it. All of this is
    done under the lock of the connection."""

    def expire(self, now: float) -> None:
        """Give it back if it waits for too long."""

    def give_back(self) -> None: ...

    def disown(self) -> None:
        """In the child of a fork: it is the parent's."""


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
        self._token = token
        self._timeout = timeout
        self._heartbeat = heartbeat
        self._name = name
        self._begin()
        watch_forks(self)

    def _begin(self) -> None:
        self.lock: threading.Lock = threading.Lock()  # of session and all fields; not held in I/O
        self.session: Session = Session(
            time.monotonic,
            name=self._name,
            producer=os.urandom(8).hex(),
            token=self._token,
            heartbeat_s=self._heartbeat,
            merging_window=MERGING_WINDOW,
            follows=self._redirects.follows,
        )
        self._sockets = Sockets()
        self._left: deque[SubscriptionState] = deque()  # subscriptions whose loop was left
        self.aheads: dict[str, PoppedAhead] = {}  # by queue: messages that nobody has come for yet
        self._view = memoryview(bytearray(CLIENT_BUFFER_BYTES))
        self._writing = False
        self._leading = False
        self._followers = Followers()
        self._backoff = Backoff(random.random, self._timeout)
        self._failure: NexoError | None = None  # why there is no connection
        self._log = ConnectionLog()
        # Losses and connections, to be logged.
        self._changes: deque[tuple[Address, NexoError | None]] = deque()
        self._quiet_at = 0.0
        self._moving = False
        self._closing = threading.Event()
        self.keeper: Keeper = Keeper(weakref.ref(self))

    # -- Callers ------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect now, so that a wrong address is told here."""
        deadline = time.monotonic() + self._timeout
        self._leading = True  # nobody else is here yet
        try:
            while self._sockets.current is None:
                if not self._lead(deadline):
                    raise overdue(self._address, self._failure, self._timeout)
        finally:
            self._resign()

    def enter(self) -> None:
        """Of a `with` block. `connect` has opened it, and whoever calls opens it again."""

    def run(self, operation: Operation) -> Any:
        """Do what is asked, and wait for the answer."""
        with self.lock:
            self.session.submit(operation)
        self.write()
        return self.wait_for(operation)

    def begin(self, operation: Operation) -> None:
        """Ask without waiting: whoever reads next hears the answer."""
        with self.lock:
            self.session.submit(operation)
        self.write()

    def ack(self, acking: AckOne) -> Any:
        """The same for an ack, which may take the next pop along."""
        ahead = acking.delivery.ahead
        return self.run(acking) if ahead is None else ahead.ack(acking)

    def finish(self, operation: Operation) -> None:
        """Whoever waits for it need not wait any longer."""
        with self.lock:
            operation.finish(None)

    def if_blocking(self, step: Callable[[], None]) -> None:
        """Of what this one does at once, and the twin when something is awaited."""
        step()

    def wait_for(self, operation: Operation) -> Any:
        """The answer to what was asked."""
        try:
            self.wait(operation, time.monotonic() + self._timeout + operation.wait_s)
        except BaseException:
            with self.lock:
                self.session.abandon(operation)  # its answer may have come all the same
            self.keeper.stir()
            raise
        return operation.outcome()

    def wait(self, operation: Operation, deadline: float, patient: bool = False) -> None:
        """Wait until an operation is done, reading for all if nobody else does. When the time is
        over it raises, or if `patient` just returns."""
        while not operation.done:
            if time.monotonic() >= deadline:
                if patient:
                    return
                if self._sockets.current is None:
                    raise overdue(self._address, self._failure, self._timeout)
                cause = self.session.unready(self._timeout)
                raise unanswered(self._address, cause, self._timeout)
            with self.lock:
                if operation.done:
                    return
                gate = self._followers.enter(operation) if self._leading else None
                self._leading = True
            if gate is not None and not self._follow(operation, gate, deadline):
                continue
            try:
                while self._lead(deadline):
                    if operation.done:
                        return
            finally:
                self._resign()

    def _follow(self, operation: Operation, gate: threading.Lock, deadline: float) -> bool:
        """Wait while another thread leads; returns whether this one leads from here on."""
        leads = False
        try:
            leads = wait_at(gate, deadline)
        finally:
            with self.lock:
                self._followers.leave(operation)
                leads = leads and not self._leading and not operation.done
                if leads:
                    self._leading = True
                elif not self._leading:
                    self._followers.promote()  # should this one have been woken to lead
        return leads

    def close(self) -> None:
        """Give back what is held, say so, and wake everybody."""
        self._write_out()
        with self.lock:
            if self.session.closed is not None:
                return
            for ahead in list(self.aheads.values()):
                ahead.give_back()
            self.session.close(closed())
        self._write_out()
        self._closing.set()
        self.keeper.stir()
        with self.lock:
            self._sockets.retire()
            self.session.lose()
        self._tidy()

    def _tidy(self) -> None:
        """Of a closed client: the last one to use the socket closes it."""
        with self.lock:
            if self.session.closed is not None and not (self._writing or self._leading):
                self._sockets.close_retired()

    def close_soon(self, state: SubscriptionState) -> None:
        """Close a subscription from wherever an object may be finalised: the lock may be held by
        this very thread, so it is not waited for."""
        self._left.append(state)
        if self.lock.acquire(blocking=False):
            try:
                self._close_left()
            finally:
                self.lock.release()
            self.write()
        else:
            self.keeper.stir()

    def _close_left(self) -> None:
        while self._left:
            self.session.subscriptions.close(self._left.popleft())

    def open_once(self, seconds: float) -> None:
        """Connect now, with one try that takes so long at most. What fails is raised as it is, for
        who has a person waiting and words of their own."""
        left = len(self._address.others)  # nodes to try besides
        while True:
            try:
                self._adopt(*dial(self._address, seconds, self.session.hello()))
                break
            except (OSError, Unreachable):
                if not left:
                    raise
            left -= 1
            self._address = self._address.next()
        self.keeper.start()

    # -- Writing ------------------------------------------------------------------------------

    def write(self) -> None:
        """Write all that waits; if another thread is writing, it takes ours along."""
        lock = self.lock
        lock.acquire()
        try:
            while not self._writing:
                sock = self._sockets.current
                pieces = self.session.take_output() if sock is not None else None
                if sock is None or not pieces:
                    return
                self._writing = True
                lock.release()
                failure: OSError | None = None
                try:
                    rest = send_all(sock, pieces[0] if len(pieces) == 1 else b"".join(pieces))
                    while rest:
                        # The broker reads nothing more until we read what it has for us.
                        self.read_idly()
                        rest = send_all(sock, rest)
                except OSError as error:
                    failure = error
                finally:
                    lock.acquire()
                    self._writing = False
                if failure is not None:
                    self._lose(sock, unreachable(self._address, failure))
        finally:
            lock.release()
        if self.session.closed is not None:
            self._tidy()

    def _write_out(self) -> None:
        """Write all that waits, also what another thread has taken along: the socket is about to be
        closed."""
        self.write()
        give_up = time.monotonic() + CLIENT_CLOSE_S
        while self._writing and time.monotonic() < give_up:
            time.sleep(0.001)

    def written_later(self) -> None:
        """Receptions are in no hurry: in a busy loop the ack that follows takes them along."""
        now = time.monotonic()
        hot, self._quiet_at = now - self._quiet_at < CLIENT_HOT_S, now
        if hot:
            self.keeper.come_by(now + CLIENT_RECEPTION_S)
        else:
            self.write()

    # -- Reading ------------------------------------------------------------------------------

    def _lead(self, deadline: float) -> bool:
        """One step of the leader: read what comes, or connect. Returns whether time is left."""
        sock = self._sockets.current
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if sock is None:
            self._connect(left)
            return True
        try:
            if left < CLIENT_RECEIVE_S and not readable(sock, left):
                return True
            self._received(sock, sock.recv_into(self._view))
        except BlockingIOError:
            return True
        except OSError as error:
            with self.lock:
                self._lose(sock, unreachable(self._address, error))
        return True

    def _received(self, sock: Channel, count: int) -> None:
        with self.lock:
            if self._sockets.current is not sock:
                return
            session = self.session
            if not count:
                self._lose(
                    sock, Unreachable(f"the broker at {self._address} closed the connection")
                )
                return
            try:
                session.receive(bytes(self._view[:count]))
            except NexoError as error:
                self._lose(sock, error)
                return
            urgent, quiet = session.urgent, session.has_quiet
            self.keeper.come_by(session.due)
            if session.redirect:
                self.keeper.stir()
            if self._sockets.has_retired and not self._writing:
                self._sockets.close_retired()  # who leads has done with them
        if urgent:
            self.write()
        elif quiet:
            self.written_later()

    def read_idly(self) -> None:
        """Read what is there without waiting, if nobody else reads."""
        with self.lock:
            sock = self._sockets.current
            if self._leading or sock is None:
                return
            self._leading = True
        try:
            while self._sockets.current is sock and readable(sock, 0):
                self._received(sock, sock.recv_into(self._view))
        except BlockingIOError:
            return
        except OSError as error:
            with self.lock:
                self._lose(sock, unreachable(self._address, error))
        finally:
            self._resign()

    def _resign(self) -> None:
        with self.lock:
            self._leading = False
            self._followers.promote()
        if self.session.closed is not None:
            self._tidy()

    # -- Connecting ---------------------------------------------------------------------------

    def _connect(self, left: float) -> None:
        """One try, after the pause that the tries before it call for. Only the leader connects."""
        pause = self._backoff.pause(time.monotonic())
        if pause > 0:
            self._closing.wait(min(pause, left))
            if pause >= left:
                return
        if self.session.closed is not None:
            raise self.session.closed
        if self._writing:
            time.sleep(0.001)  # it is about to notice that its socket is gone
            return
        self._sockets.close_retired()
        self._backoff.tried(time.monotonic())
        try:
            seconds = min(CLIENT_CONNECT_S, left)
            self._adopt(*dial(self._address, seconds, self.session.hello()))
        except (OSError, NexoError) as error:
            failure = unreachable(self._address, error)
            if is_final(failure, self._address):
                raise failure from None
            self._failure = failure
            self._address = self._address.next()
            return
        self.write()
        if self.keeper.ident is None:
            self.keeper.start()

    def _adopt(self, sock: Channel, greeting: Greeting) -> None:
        """The broker has answered the greeting."""
        with self.lock:
            self._sockets.current = sock
            try:
                self.session.connect(greeting)
                for arrived in greeting.frames[1:]:
                    self.session.dispatch(arrived)
            except NexoError as error:
                self._lose(sock, error)
                raise
            self._failure = None
            self._backoff.connected(time.monotonic())
            self._changes.append((self._address, None))
            self.keeper.stir()

    def _consider_moving(self) -> None:
        """By the keeper: if the broker has told where to go, a thread of its own looks whether it
        can be reached. Nobody waits for that."""
        with self.lock:
            told, self.session.redirect = self.session.redirect, ""
            sock = self._sockets.current
            to = self._redirects.target(told, self._address, time.monotonic()) if told else None
            if to is None or sock is None or self._moving:
                return
            self._moving = True
        mover = threading.Thread(
            target=_move, args=(weakref.ref(self), to, sock), name="nexo-mover", daemon=True
        )
        with contextlib.suppress(RuntimeError):  # no threads any more: the process ends
            mover.start()

    def move(self, to: Address, left: Channel) -> None:
        """Go on at another node, once it has answered there, with all that was asked of the one
        that is left. If that fails, nothing has changed."""
        try:
            sock, greeting = dial(to, CLIENT_CONNECT_S, self.session.hello())
        except (OSError, NexoError) as error:
            self._redirects.failed(to, unreachable(to, error), time.monotonic())
            self._moving = False
            return
        has_moved = False
        try:
            greeting.check_cluster(self.session.cluster)
            has_moved = self._change_to(sock, greeting, to, left)
        except NexoError as error:
            self._redirects.failed(to, error, time.monotonic())
        finally:
            self._moving = False
            if not has_moved:
                sock.close()
        if has_moved:
            self._redirects.moved(to, time.monotonic())
            self.write()
            self.keeper.stir()

    def _change_to(self, sock: Channel, greeting: Greeting, to: Address, left: Channel) -> bool:
        """Whether it was done: the connection may have been lost or closed meanwhile."""
        with self.lock:
            if self.session.closed is not None or self._sockets.current is not left:
                return False
            leaving = self.session.leave()
        self.write()
        self.wait(leaving, time.monotonic() + CLIENT_LEAVE_S, patient=True)
        with self.lock:
            if not self.session.is_leaving or self._sockets.current is not left:
                return False
            self._sockets.replace(sock)
            self._address = to
            self._backoff.connected(time.monotonic())
            self.session.move(greeting)
            try:
                for arrived in greeting.frames[1:]:
                    self.session.dispatch(arrived)
            except NexoError as error:
                self._lose(sock, error)
            return True

    def _log_changes(self) -> None:
        """By the keeper alone: it holds no lock, and nobody waits for it to read."""
        while self._changes:
            address, failure = self._changes.popleft()
            if failure is None:
                self._log.connected(address, time.monotonic())
            else:
                self._log.lost(address, failure, time.monotonic())

    def _lose(self, sock: Channel, failure: NexoError) -> None:
        """Under the lock: a connection is over."""
        if self._sockets.current is sock:
            self._sockets.retire()
            self._failure = failure
            self.session.note(failure)
            self._backoff.lost(time.monotonic())
            self.session.lose()
            if self.session.closed is None:
                self._changes.append((self._address, failure))
                self.keeper.stir()
            self._address = self._address.after(failure)

    # -- The keeper's side --------------------------------------------------------------------

    def keep(self) -> float:
        """What nobody else is there for; returns in how many seconds to come again."""
        self._log_changes()
        if self.session.redirect:
            self._consider_moving()
        with self.lock:
            if self.session.closed is not None:
                return 0.0
            self._close_left()
            for ahead in list(self.aheads.values()):
                ahead.expire(time.monotonic())
            sock, leading = self._sockets.current, self._leading
            subscribed = len(self.session.subscriptions) > 0
        if sock is None and subscribed and not leading:
            self._reconnect_idly()
        if not leading:
            self.read_idly()
        with self.lock:
            try:
                pause = self.session.tick()
            except NexoError as error:
                if self._sockets.current is not None:
                    self._lose(self._sockets.current, error)
                pause = CLIENT_TICK_S
        self.write()
        if subscribed and not leading:
            pause = min(pause, CLIENT_IDLE_READ_S)
        elif sock is None:
            pause = self._heartbeat  # whoever calls next connects
        if self.aheads:
            pause = min(pause, CLIENT_TICK_S)
        elif time.monotonic() - self._quiet_at < 2 * CLIENT_HOT_S:
            pause = min(pause, CLIENT_RECEPTION_S)
        return pause

    def _reconnect_idly(self) -> None:
        with self.lock:
            if self._leading or self._backoff.pause(time.monotonic()) > 0:
                return
            self._leading = True
        try:
            self._connect(CLIENT_CONNECT_S)
        except NexoError as error:
            self._failure = error  # the consumer is told when it comes for more
        finally:
            self._resign()

    def forget_parent(self) -> None:
        """In the child of a fork: the socket and its answers are the parent's."""
        sockets, parent = self._sockets, self.session
        for ahead in self.aheads.values():
            ahead.disown()
        self._begin()
        parent.subscriptions.disown()
        sockets.disown()

    def __del__(self) -> None:
        if hasattr(self, "_sockets"):
            self._sockets.disown()  # nobody can be using it


def _move(connection: weakref.ref[Connection], to: Address, left: Channel) -> None:
    found = connection()
    if found is not None:
        found.move(to, left)
