"""The greeting: is there a broker, does it speak our protocol, and which version is it?

A command tries once. A client would wait for a broker to come back, as a program that runs for
weeks wants it, and a person at a terminal does not.
"""

import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nexo.client.address import address_of, tls_failure, token_of
from nexo.client.blocking.sockets import secured
from nexo.client.operation import error_of
from nexo.vocabulary.errors import Unreachable
from nexo.wire import commands
from nexo.wire.frame import Frame, FrameReader, Kind, ProtocolError, frame

if TYPE_CHECKING:
    from nexo.client.blocking.sockets import Channel

GREETING_S = 3.0  # how long it may take to find out
_READ_BYTES = 65_536
_HINT = "start one with nexo serve, or say where it is with --url or $NEXO_URL"


def greet(url: str, token: str | None, tls_ca: str | None = None) -> commands.Welcome:
    """What the broker there says of itself: its `server` is such as `nexo 0.1.0`."""
    address = address_of(url, tls_ca)
    version = commands.PROTOCOL_VERSION
    hello = commands.Hello(commands.MAGIC, (version, version), "nexo-cli", token_of(token))
    place = (address.host, address.port)
    with (
        worded(url, tls_ca),
        socket.create_connection(place, timeout=GREETING_S) as plain,
    ):
        connection = secured(plain, address)
        connection.sendall(frame(Kind.HELLO, 1, commands.pack(hello)))
        answer = _first_frame(connection)
        if answer is not None and answer.kind is Kind.WELCOME:
            welcome: commands.Welcome = commands.unpack(answer.head, commands.Welcome)
            return welcome
        if answer is not None and answer.head and answer.kind in (Kind.GOODBYE, Kind.ERROR):
            raise error_of(commands.unpack(answer.head, commands.Refusal))
        raise ProtocolError("it does not greet")


@contextlib.contextmanager
def worded(url: str, tls_ca: str | None) -> Iterator[None]:
    """What goes wrong with a greeting, in words for who typed the URL."""
    address = address_of(url, tls_ca)
    try:
        yield
    except TimeoutError:
        raise Unreachable(f"nothing was heard from {url} for {GREETING_S:.0f} s", _HINT) from None
    except OSError as error:
        if address.tls is not None and (failure := tls_failure(str(address), error)) is not None:
            raise failure from None
        reason = error.strerror or str(error)
        raise Unreachable(f"no broker answers at {url} ({reason})", _HINT) from None
    except ProtocolError:
        raise Unreachable(
            f"what answers at {url} is not a Nexo broker",
            "check --url: its port, and nexos:// for TLS",
        ) from None


def _first_frame(connection: "Channel") -> Frame | None:
    """None if the other side hangs up first."""
    reader = FrameReader()
    while data := connection.recv(_READ_BYTES):
        for received in reader.feed(data):
            return received
    return None
