"""`nexo context`: named brokers, so that nobody has to type URLs. They are kept in a file of the
user; a token is kept as the name of the file that holds it, never by itself."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from nexo.cli.parameters import add_parameters, command_group, flag
from nexo.vocabulary.errors import InvalidArgument

app = command_group(
    "context",
    """Manage contexts: named brokers, and which of them commands use.

    \b
    Examples
      nexo context add production --url nexos://broker:9325 --token @~/.nexo-token
      nexo context use production
      nexo context list
    """,
)

_JSON = typer.Option("--json", help="Print JSON.")


class Contexts:
    """What the file holds: `current`, and `contexts` by name with `url`, `token` and `tls_ca`."""

    def __init__(self) -> None:
        home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        self._file = Path(home).expanduser() / "nexo" / "contexts.json"
        self.current: str | None = None
        self.by_name: dict[str, dict[str, str]] = {}
        try:
            read = json.loads(self._file.read_text(encoding="utf-8"))
            self.current, self.by_name = read["current"], dict(read["contexts"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError):
            raise InvalidArgument(
                f"cannot read the contexts in {self._file}", "repair the file, or delete it"
            ) from None

    def write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"current": self.current, "contexts": self.by_name}, indent=2)
        self._file.write_text(text + "\n", encoding="utf-8")
        self._file.chmod(0o600)

    def known(self, name: str) -> dict[str, str]:
        found = self.by_name.get(name)
        if found is None:
            names = ", ".join(sorted(self.by_name))
            hint = f"existing contexts: {names}" if names else "add one with nexo context add"
            raise InvalidArgument(f"there is no context {name!r:.60}", hint)
        return found


def current_context() -> dict[str, str]:
    """Of the broker in use; empty if none is."""
    contexts = Contexts()
    return contexts.by_name.get(contexts.current or "", {})


def _takes_json(function: Any) -> Any:
    made = add_parameters(function, [flag("json", Annotated[bool, _JSON], False)], dict)
    made.__name__ = function.__name__.strip("_")
    return made


def _answer(given: dict[str, Any], document: Any, text: str) -> None:
    typer.echo(json.dumps(document) if given["json"] else text)


@app.command()
@_takes_json
def add(
    given: dict[str, Any],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the context.", show_default=False)
    ],
    url: Annotated[str, typer.Option(metavar="URL", help="URL of the broker.", show_default=False)],
    token: Annotated[
        str | None, typer.Option(metavar="@FILE", help="File that holds the access token.")
    ] = None,
    tls_ca: Annotated[
        str | None,
        typer.Option("--tls-ca", metavar="FILE", help="PEM file with the CA certificate to trust."),
    ] = None,
) -> None:
    """Add a named broker. The first one becomes the current context.

    \b
    Example
      nexo context add production --url nexos://broker:9325 --token @~/.nexo-token
    """
    from nexo.client.address import address_of

    address_of(url, None)
    context = {"url": url}
    if token is not None:
        if not token.startswith("@"):
            raise InvalidArgument(
                "a context stores the path of a token file, not the token itself",
                "write --token @FILE",
            )
        context["token"] = "@" + str(Path(token[1:]).expanduser().absolute())
    if tls_ca is not None:
        context["tls_ca"] = str(Path(tls_ca).expanduser().absolute())
    contexts = Contexts()
    contexts.by_name[name] = context
    contexts.current = contexts.current or name
    contexts.write()
    in_use = "" if contexts.current == name else f". Switch to it with nexo context use {name}"
    current = "current context" if contexts.current == name else "context"
    _answer(given, {"name": name, **context}, f"Added {current} {name} ({url}){in_use}")


@app.command()
@_takes_json
def use(
    given: dict[str, Any],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the context.", show_default=False)
    ],
) -> None:
    """Switch to a context: commands use its broker from now on.

    \b
    Example
      nexo context use production

    --url and $NEXO_URL take precedence over the context.
    """
    contexts = Contexts()
    url = contexts.known(name)["url"]
    contexts.current = name
    contexts.write()
    _answer(given, {"name": name, "url": url}, f"Switched to context {name} ({url})")


@app.command("list")
@_takes_json
def list_contexts(given: dict[str, Any]) -> None:
    """List all contexts. An asterisk marks the current one.

    \b
    Example
      nexo context list
    """
    contexts = Contexts()
    named = sorted(contexts.by_name.items())
    document = [{"name": n, "in_use": n == contexts.current, **each} for n, each in named]
    lines = [f"{'*' if n == contexts.current else ' '} {n}  {each['url']}" for n, each in named]
    _answer(given, document, "\n".join(lines) or "No contexts yet. Add one with nexo context add")


@app.command()
@_takes_json
def remove(
    given: dict[str, Any],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the context.", show_default=False)
    ],
) -> None:
    """Remove a context.

    \b
    Example
      nexo context remove production
    """
    contexts = Contexts()
    contexts.known(name)
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = None
    contexts.write()
    _answer(given, {"name": name, "removed": True}, f"Removed context {name}")
