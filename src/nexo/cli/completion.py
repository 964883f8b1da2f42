"""Names for the shell's completion: only what a broker says at once."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo import Client

_QUICK_S = 1.0


def queue_names(context: typer.Context, incomplete: str) -> list[str]:
    """The queues that begin like this; none if no broker answers quickly."""
    return names(context, incomplete, lambda client: [each.name for each in client.queues()])


def names(
    context: typer.Context, incomplete: str, listing: "Callable[[Client], Iterable[str]]"
) -> list[str]:
    """Those of a listing that begin like this."""
    import nexo
    from nexo.cli.talk import DEFAULT_URL, Talk
    from nexo.vocabulary.errors import NexoError

    given = context.params
    url, token = given.get("url") or DEFAULT_URL, given.get("token")
    try:
        talk = Talk(url, token, json=False, tls_ca=given.get("tls_ca"))
        talk.require_broker()
        with nexo.connect(url, token=token, timeout=_QUICK_S, tls_ca=talk.tls_ca) as client:
            found = list(listing(client))
    except NexoError:
        return []
    return [name for name in found if name.startswith(incomplete)]


def queue_argument(help: str = "The queue.") -> Any:
    return typer.Argument(
        metavar="QUEUE", help=help, show_default=False, autocompletion=queue_names
    )


Queue = Annotated[str, queue_argument()]
