"""Names of queues for the shell's completion: only what a broker says at once."""

from typing import Annotated, Any

import typer

_QUICK_S = 1.0


def queue_names(context: typer.Context, incomplete: str) -> list[str]:
    """The queues that begin like this; none if no broker answers quickly."""
    import nexo
    from nexo.cli.talk import DEFAULT_URL, Talk
    from nexo.vocabulary.errors import NexoError

    given = context.params
    url, token = given.get("url") or DEFAULT_URL, given.get("token")
    try:
        talk = Talk(url, token, json=False, tls_ca=given.get("tls_ca"))
        talk.require_broker()
        with nexo.connect(url, token=token, timeout=_QUICK_S, tls_ca=talk.tls_ca) as client:
            names = [each.name for each in client.queues()]
    except NexoError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def queue_argument(help: str = "The queue.") -> Any:
    return typer.Argument(
        metavar="QUEUE", help=help, show_default=False, autocompletion=queue_names
    )


Queue = Annotated[str, queue_argument()]
