"""A command's session with a broker: where the broker is, how its answers are shown, and how a
command ends that goes on until it is told.

Every command that is decorated with `takes_session` takes `--url`, `--token` and `--json`. It first
asks for a greeting: is there a broker, does it speak our protocol, and which version is it? A
command tries once. A client would wait for a broker to come back, as a program that runs for weeks
wants it, and a person at a terminal does not.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from nexo.cli.parameters import add_parameters, flag

if TYPE_CHECKING:
    from nexo import Client
    from nexo.client.blocking.sockets import Channel
    from nexo.wire.commands import Welcome
    from nexo.wire.frame import Frame

DEFAULT_URL = "nexo://127.0.0.1:9325"
TIMEOUT_S = 30.0  # how long an answer may take
GREETING_S = 3.0  # how long it may take to find out whether there is a broker
SLICE_S = 0.05  # how long a sleep may take no notice of a signal
_READ_BYTES = 65_536
_NO_BROKER = "start one with nexo serve, or set its address with --url or $NEXO_URL"
_PANEL = "Broker and output"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="NEXO_URL",
        help=f"URL of the broker. Default: that of the current context, else {DEFAULT_URL}.",
        rich_help_panel=_PANEL,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="NEXO_TOKEN",
        help="Access token, if the broker requires one; @FILE reads it from a file.",
        rich_help_panel=_PANEL,
    ),
]
TlsCa = Annotated[
    str | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        envvar="NEXO_TLS_CA",
        help="PEM file with the CA certificate to trust, for nexos:// URLs.",
        rich_help_panel=_PANEL,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON: one document, or one per line for streams.",
        rich_help_panel=_PANEL,
    ),
]


def takes_session(function: Callable[..., None]) -> Callable[..., Any]:
    """Give a command the flags that every command has; its first parameter becomes the session."""
    added = [
        flag("url", Url),
        flag("token", Token),
        flag("tls_ca", TlsCa),
        flag("json", Json, False),
    ]
    return add_parameters(function, added, lambda given: Session(**with_context(given)))


def with_context(given: dict[str, Any]) -> dict[str, Any]:
    """What was given, and where no URL was, that of the context in use (`nexo context`)."""
    if given.get("url") is not None:
        return given
    from nexo.cli.context import current_context

    context = current_context()
    found = {"url": DEFAULT_URL, **context}
    return {**given, **{name: given.get(name) or value for name, value in found.items()}}


class Session:
    """`json` is whether the answer is for a program."""

    def __init__(self, url: str, token: str | None, json: bool, tls_ca: str | None = None) -> None:
        self.url = url
        self.token = token
        # For nexo:// it means nothing, and may well stand in the environment.
        self.tls_ca = tls_ca if url.lower().startswith("nexos:") else None
        self.as_json = json

    @contextlib.contextmanager
    def client(self) -> Iterator["Client"]:
        """A client for the length of a `with` block. If the broker does not know a queue, the
        refusal says which one may have been meant."""
        import nexo
        from nexo.vocabulary.errors import QueueNotFound

        with nexo.Client(self.url, self.token, TIMEOUT_S, tls_ca=self.tls_ca) as client:
            with _worded(self.url, self.tls_ca):
                client._connection.open_once(GREETING_S)
            try:
                yield client
            except QueueNotFound as error:
                names = [each.name for each in client.queues()]
                hint = suggestion(error.message, names, "queue", error.hint)
                raise QueueNotFound(error.message, hint) from None

    def require_broker(self) -> str:
        """Fail at once if no broker is there; else say which version it is."""
        return self.greet().server

    def greet(self) -> "Welcome":
        """What the broker says of itself: its `server` is such as `nexo 0.1.0`."""
        return _greet(self.url, self.token, self.tls_ca)

    @property
    def is_watched(self) -> bool:
        """Whether a person looks on: then there are progress bars and questions."""
        return not self.as_json and sys.stderr.isatty()

    def document(self, value: Any) -> None:
        """One JSON document, on a line of its own."""
        import msgspec

        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
        sys.stdout.flush()

    def line(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def answer(self, value: Any, text: str) -> None:
        """The document for programs, the line for people."""
        if self.as_json:
            self.document(value)
        else:
            self.line(text)

    def confirm(self, question: str, yes: bool) -> None:
        """Ask before something is gone for good."""
        if yes:
            return
        if not sys.stdin.isatty():
            from nexo.vocabulary.errors import InvalidArgument

            raise InvalidArgument(
                "this command asks for confirmation, and there is no terminal", "add --yes"
            )
        typer.confirm(question, abort=True, err=True)


def is_there(info: Callable[[], object]) -> bool:
    """Whether the queue or topic whose `info` this is exists."""
    from nexo.vocabulary.errors import QueueNotFound, TopicNotFound

    try:
        info()
    except (QueueNotFound, TopicNotFound):
        return False
    return True


def created(noun: str, name: str, was_there: bool) -> str:
    if was_there:
        return f"{noun.capitalize()} {name} exists already, with these settings"
    return f"Created {noun} {name}"


def suggestion(refusal: str, names: list[str], noun: str, told: str = "") -> str:
    """What to do when the queue or topic that the refusal names is not there. `told` is what the
    command itself can do about it, if it mentions its own flag."""
    import difflib

    name = refusal.partition("'")[2].partition("'")[0]
    create = told if "--create" in told else f"create it with nexo {noun} create {name}"
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"did you mean {near[0]}?" + (f" Or {told}" if create == told else "")
    if create == told:
        return told
    if names:
        shown = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
        return f"existing {noun}s: {shown}; {create}"
    return f"there are no {noun}s yet; {create}"


def _greet(url: str, token: str | None, tls_ca: str | None = None) -> "Welcome":
    import socket

    from nexo.client.address import address_of, token_of
    from nexo.client.blocking.sockets import secured
    from nexo.client.operation import error_of
    from nexo.wire import commands
    from nexo.wire.frame import Kind, ProtocolError, frame

    address = address_of(url, tls_ca)
    version = commands.PROTOCOL_VERSION
    hello = commands.Hello(commands.MAGIC, (version, version), "nexo-cli", token_of(token))
    place = (address.host, address.port)
    with (
        _worded(url, tls_ca),
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
        raise ProtocolError("the server did not answer the greeting")


@contextlib.contextmanager
def _worded(url: str, tls_ca: str | None) -> Iterator[None]:
    """What goes wrong with a greeting, in words for who typed the URL."""
    from nexo.client.address import address_of, tls_failure
    from nexo.vocabulary.errors import Unreachable
    from nexo.wire.frame import ProtocolError

    address = address_of(url, tls_ca)
    try:
        yield
    except TimeoutError:
        raise Unreachable(f"no answer from {url} within {GREETING_S:.0f} s", _NO_BROKER) from None
    except OSError as error:
        if address.tls is not None and (failure := tls_failure(str(address), error)) is not None:
            raise failure from None
        reason = error.strerror or str(error)
        raise Unreachable(f"no broker answers at {url} ({reason})", _NO_BROKER) from None
    except ProtocolError:
        raise Unreachable(
            f"the server at {url} is not a Nexo broker",
            "check the port in --url, and use nexos:// for TLS",
        ) from None


def _first_frame(connection: "Channel") -> "Frame | None":
    """None if the other side hangs up first."""
    from nexo.wire.frame import FrameReader

    reader = FrameReader()
    while data := connection.recv(_READ_BYTES):
        for received in reader.feed(data):
            return received
    return None


class Ending:
    """Ctrl-C and SIGTERM are the normal end of a command that goes on until it is told. For the
    length of a `with` block, the first signal only says that the end is near, so that a step under
    way is finished and counted. The second one interrupts."""

    def __init__(self, tell: Callable[[], None] = lambda: None) -> None:
        """`tell` is called with the first one, in the middle of whatever the program does."""
        self.is_near = False
        self._also = tell
        self._before: dict[int, Any] = {}

    def sleep(self, seconds: float) -> None:
        """Sleep, unless the end is near."""
        until = time.monotonic() + seconds
        while not self.is_near and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, SLICE_S))

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._tell)
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        if self.is_near:
            raise KeyboardInterrupt
        self.is_near = True
        self._also()
