"""What both twins need to get a connection: a name, options of the socket, pauses, clear errors."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

from nexo.client.address import Untrusted, tls_failure
from nexo.vocabulary.errors import NexoError, NotReady, RateLimited, Timeout, Unreachable
from nexo.vocabulary.limits import (
    CLIENT_STEADY_S,
    CLIENT_UNACKED_MS,
    CONSUMER_CHARS_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.address import Address

PAUSE_S_FIRST, PAUSE_S_MAX = 0.05, 2.0
HUNG_UP_HINT = (
    "check that this is the RPC port, and use nexos:// for TLS; "
    "or the load balancer has no healthy node"
)

_log = logging.getLogger("nexo.client")


def client_name() -> str:
    """The program, the process and the machine, so that an operator knows who holds what."""
    program = PurePath(sys.argv[0]).name if sys.argv else ""
    if program in ("", "-", "-c", "-m"):  # no file: a prompt, a pipe or a line
        program = "python"
    return f"{program}-{os.getpid()}@{socket.gethostname()}"[:CONSUMER_CHARS_MAX]


class Backoff:
    """The pauses between tries to connect: the first is none, then they double, spread out so
    that many clients do not come back at once."""

    def __init__(self, chance: Callable[[], float], timeout: float) -> None:
        self._chance = chance
        # A call that begins in a pause must still see a try or two before its time is over.
        self._pause_s_max = min(PAUSE_S_MAX, timeout / 4)
        self._tries = 0
        self._next_at = 0.0
        self._connected_at = 0.0

    def pause(self, now: float) -> float:
        return max(0.0, self._next_at - now)

    def tried(self, now: float) -> None:
        pause = min(self._pause_s_max, PAUSE_S_FIRST * 2.0 ** min(self._tries, 16))
        self._tries += 1
        self._next_at = now + pause * (0.5 + self._chance())

    def connected(self, now: float) -> None:
        self._connected_at = now

    def lost(self, now: float) -> None:
        if now - self._connected_at >= CLIENT_STEADY_S:
            self._tries = 0
            self._next_at = now


class ConnectionLog:
    """Says when the connection of a client is lost, and when it is back. Handlers of a log may do
    anything, such as push to this very broker: never call it with a lock."""

    def __init__(self) -> None:
        self._lost_at: float | None = None

    def lost(self, address: Address, failure: NexoError, now: float) -> None:
        self._lost_at = now
        _log.warning("lost the connection to %s: %s", address, failure.message)

    def connected(self, address: Address, now: float) -> None:
        lost_at, self._lost_at = self._lost_at, None
        if lost_at is not None:
            seconds = now - lost_at
            _log.info("reconnected to %s after %.1f s", address, seconds)


def configure(sock: socket.socket) -> None:
    """Small frames go at once; a machine that vanished is noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, CLIENT_UNACKED_MS)


def is_final(error: NexoError, address: Address | None = None) -> bool:
    """Whether trying again is of no use: the broker has spoken, or the name means nothing. Where
    there are other nodes to try, one of them may do better."""
    if address is not None and address.others and isinstance(error, Unreachable):
        return False
    return isinstance(error, (UnknownHost, Untrusted)) or not isinstance(
        error, (Unreachable, NotReady, RateLimited, Timeout)
    )


class UnknownHost(Unreachable):
    """There is no machine of that name."""


def unreachable(address: Address, error: OSError | NexoError) -> NexoError:
    """An error of the socket, in words."""
    if isinstance(error, NexoError):
        return error
    if isinstance(error, socket.gaierror):
        return UnknownHost(f"unknown host {address.host!r}: {error.strerror}", "check the URL")
    if address.tls is not None and (failure := tls_failure(str(address), error)) is not None:
        return failure
    if error.errno == errno.ECONNREFUSED:
        return Unreachable(
            f"nothing listens at {address}", "start a broker with `nexo serve`, or check the port"
        )
    if isinstance(error, TimeoutError):
        return Unreachable(f"{address} does not answer", "check the address and the firewall")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return Unreachable(f"the connection to {address} failed: {reason}")


def unanswered(address: Address, cause: NexoError | None, timeout: float) -> NexoError:
    """The time of a call is over, and there is a connection. `cause` is what the broker said of why
    it was not ready, if it did."""
    message = f"the broker at {address} did not answer within {timeout:g} s"
    if cause is None:
        return Timeout(message, "the broker or the network is busy: raise `timeout`")
    return Timeout(f"{message}: {cause.message}", cause.hint or "try again")


def overdue(address: Address, failure: NexoError | None, timeout: float) -> NexoError:
    """The same without a connection; `failure` is why there is none, if that is known."""
    if failure is None:
        return unanswered(address, None, timeout)
    if isinstance(failure, NotReady):
        return Unreachable(
            f"the broker at {address} was not ready within {timeout:g} s: {failure.message}",
            failure.hint or "try again",
        )
    if not isinstance(failure, Unreachable):
        return failure
    return Unreachable(
        f"no broker could be reached within {timeout:g} s: {failure.message}",
        failure.hint or "is the broker running?",
    )
