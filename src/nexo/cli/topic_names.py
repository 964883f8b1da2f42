"""Names of topics: for the shell's completion, and for who has misspelt one."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.talk import Talk

if TYPE_CHECKING:
    from nexo import Client

_QUICK_S = 1.0


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin like this; none if no broker answers quickly."""
    import nexo
    from nexo.cli.talk import DEFAULT_URL
    from nexo.vocabulary.errors import NexoError

    given = context.params
    url, token = given.get("url") or DEFAULT_URL, given.get("token")
    try:
        talk = Talk(url, token, json=False, tls_ca=given.get("tls_ca"))
        talk.require_broker()
        with nexo.connect(url, token=token, timeout=_QUICK_S, tls_ca=talk.tls_ca) as client:
            names = [each.name for each in client.topics()]
    except NexoError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def topic_argument(help: str = "The topic.") -> Any:
    return typer.Argument(
        metavar="TOPIC", help=help, show_default=False, autocompletion=topic_names
    )


Topic = Annotated[str, topic_argument()]


@contextlib.contextmanager
def topic_client(talk: Talk) -> Iterator["Client"]:
    """A client. If the broker does not know a topic, the refusal says which may be meant."""
    from nexo.vocabulary.errors import TopicNotFound

    with talk.client() as client:
        try:
            yield client
        except TopicNotFound as error:
            names = [each.name for each in client.topics()]
            raise TopicNotFound(error.message, _suggestion(error.message, names)) from None


def _suggestion(refusal: str, names: list[str]) -> str:
    import difflib

    name = refusal.partition("'")[2].partition("'")[0]
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"create it: nexo topic create {name}"
