"""Names of topics: for the shell's completion, and for who has misspelt one."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.completion import names

if TYPE_CHECKING:
    from nexo import Client
    from nexo.cli.talk import Talk


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin like this; none if no broker answers quickly."""
    return names(context, incomplete, lambda client: [each.name for each in client.topics()])


def topic_argument(help: str = "The topic.") -> Any:
    return typer.Argument(
        metavar="TOPIC", help=help, show_default=False, autocompletion=topic_names
    )


Topic = Annotated[str, topic_argument()]


@contextlib.contextmanager
def topic_client(talk: "Talk") -> Iterator["Client"]:
    """A client. If the broker does not know a topic, the refusal says which may be meant."""
    from nexo.vocabulary.errors import TopicNotFound

    with talk.client() as client:
        try:
            yield client
        except TopicNotFound as error:
            known = [each.name for each in client.topics()]
            raise TopicNotFound(error.message, _suggestion(error.message, known)) from None


def _suggestion(refusal: str, names: list[str]) -> str:
    import difflib

    name = refusal.partition("'")[2].partition("'")[0]
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"create it: nexo topic create {name}"
