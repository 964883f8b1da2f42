"""A command's session with a broker: where the broker is, and how its answers are shown.

Every command that is decorated with `takes_session` takes `--url`, `--token` and `--json`.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.parameters import add_parameters, flag

if TYPE_CHECKING:
    from nexo import Client
    from nexo.wire.commands import Welcome

DEFAULT_URL = "nexo://127.0.0.1:9325"
TIMEOUT_S = 30.0  # how long an answer may take
_PANEL = "Broker and output"

Url = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", envvar="NEXO_URL", help="The broker.", rich_help_panel=_PANEL
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="NEXO_TOKEN",
        help="The token to show, where the broker asks for one; @FILE reads it from a file.",
        rich_help_panel=_PANEL,
    ),
]
TlsCa = Annotated[
    str | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        envvar="NEXO_TLS_CA",
        help="Whom to trust where the URL begins with nexos://, a PEM file.",
        rich_help_panel=_PANEL,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Answer in JSON: one document, streams one a line.", rich_help_panel=_PANEL
    ),
]


def takes_session(function: Callable[..., None]) -> Callable[..., Any]:
    """Give a command the flags that every command has; its first parameter becomes the session."""
    added = [
        flag("url", Url, DEFAULT_URL),
        flag("token", Token),
        flag("tls_ca", TlsCa),
        flag("json", Json, False),
    ]
    return add_parameters(function, added, lambda given: Session(**given))


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
        from nexo.cli.greeting import GREETING_S, worded
        from nexo.vocabulary.errors import QueueNotFound

        with nexo.Client(self.url, self.token, TIMEOUT_S, tls_ca=self.tls_ca) as client:
            with worded(self.url, self.tls_ca):
                client._connection.open_once(GREETING_S)
            try:
                yield client
            except QueueNotFound as error:
                names = [each.name for each in client.queues()]
                raise QueueNotFound(error.message, suggestion(error.message, names)) from None

    def require_broker(self) -> str:
        """Fail at once if no broker is there; else say which version it is."""
        return self.greet().server

    def greet(self) -> "Welcome":
        """What the broker says of itself."""
        from nexo.cli.greeting import greet

        return greet(self.url, self.token, self.tls_ca)

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

            raise InvalidArgument("there is no terminal to ask in", "add --yes if you are sure")
        typer.confirm(question, abort=True, err=True)


def suggestion(refusal: str, names: list[str]) -> str:
    """What to do when the queue that the refusal names is not there."""
    import difflib

    name = refusal.partition("'")[2].partition("'")[0]
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"did you mean {near[0]}?"
    if names:
        shown = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
        return f"the queues are {shown}; create one with nexo queue create"
    return f"there are no queues yet: nexo queue create {name}"
