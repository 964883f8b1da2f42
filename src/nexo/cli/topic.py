"""`nexo topic …`: create, look at and delete topics, publish to them, follow and bind them."""

from typing import Annotated, Any

import typer

from nexo.cli.attributes import attributes_of
from nexo.cli.completion import queue_argument
from nexo.cli.durations import parse_duration
from nexo.cli.group import command_group
from nexo.cli.moments import parse_start
from nexo.cli.talk import Talk, talks
from nexo.cli.topic_names import Topic, topic_client
from nexo.cli.topic_publish import publish
from nexo.cli.topic_tail import tail
from nexo.server.sizes import parse_size
from nexo.vocabulary.errors import InvalidArgument

app = command_group(
    "topic",
    """Create, look at and delete topics; publish, follow, bind.

    \b
    Examples
      nexo topic create news --retention-messages 100
      nexo topic publish news "hello"
      nexo topic tail news --from earliest
      nexo topic bind news billing
    """,
)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except InvalidArgument as error:
        raise typer.BadParameter(f"{error.message}; {error.hint}") from None


@app.command()
@talks
def create(
    talk: Talk,
    name: Topic,
    retention_messages: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Keep so many messages; else all.")
    ] = None,
    retention_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="Keep them so long; else for ever."
        ),
    ] = None,
    retention_bytes: Annotated[
        int | None,
        typer.Option(metavar="SIZE", parser=_size, help="Keep about so much; else all."),
    ] = None,
    max_message_bytes: Annotated[
        int | None, typer.Option(metavar="SIZE", parser=_size, help="Largest message allowed.")
    ] = None,
) -> None:
    """Create a topic; again with the same settings is no error.

    \b
    Examples
      nexo topic create news
      nexo topic create news --retention-messages 100
      nexo topic create fleet.7.position --retention-seconds 1h --retention-bytes 64MB
    """
    given = {
        "retention_messages": retention_messages,
        "retention_seconds": retention_seconds,
        "retention_bytes": retention_bytes,
        "max_message_bytes": max_message_bytes,
    }
    settings: Any = {word: value for word, value in given.items() if value is not None}
    with talk.client() as client:
        topic = client.create_topic(name, **settings)
        talk.answer(_document(topic.info()), f"topic {name} is there")


@app.command("list")
@talks
def list_topics(talk: Talk) -> None:
    """List the topics with their figures.

    \b
    Examples
      nexo topic list
      nexo topic list --json | jq '.[].name'
    """
    with talk.client() as client:
        infos = client.topics()
    if talk.as_json:
        talk.document([_document(info) for info in infos])
    else:
        from nexo.cli.tables import console
        from nexo.cli.topic_tables import topic_table

        console().print(topic_table(infos))


@app.command()
@talks
def info(talk: Talk, name: Topic) -> None:
    """Show a topic: offsets, size, settings, bound queues.

    \b
    Examples
      nexo topic info news
      nexo topic info news --json | jq .end
    """
    with topic_client(talk) as client:
        found = client.topic(name).info()
    if talk.as_json:
        talk.document(_document(found))
    else:
        from nexo.cli.tables import console
        from nexo.cli.topic_tables import topic_page

        console().print(topic_page(found))


@app.command()
@talks
def delete(
    talk: Talk,
    name: Topic,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a topic with everything that it keeps. Bound queues keep what they got.

    \b
    Examples
      nexo topic delete news
      nexo topic delete news --yes
    """
    with topic_client(talk) as client:
        topic = client.topic(name)
        talk.confirm(f"Delete {name} with {topic.info().messages:,} messages, for good?", yes)
        topic.delete()
    talk.answer({"name": name, "deleted": True}, f"topic {name} is deleted")


@app.command()
@talks
def bind(
    talk: Talk,
    name: Topic,
    queue: Annotated[str, queue_argument("The queue; it is created if it is not there.")],
    start: Annotated[
        Any,
        typer.Option(
            metavar="START",
            parser=parse_start,
            help="latest, earliest, an offset or a time: what was kept since then comes too.",
        ),
    ] = "latest",
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only what has this attribute; again: and this."),
    ] = None,
) -> None:
    """Let what is published also go to a queue.

    \b
    Examples
      nexo topic bind news billing
      nexo topic bind news replay --start earliest
      nexo topic bind orders eu --where region=eu --start 2h

    Members of a consumer group share such a queue. Bound again, a queue only
    gets another filter.
    """
    wanted = attributes_of(where or [], "--where")
    with topic_client(talk) as client:
        client.topic(name).bind(queue, start=start, where=wanted)
    answer = {"topic": name, "queue": queue, "where": wanted, "bound": True}
    talk.answer(answer, f"queue {queue} is bound to {name}")


@app.command()
@talks
def unbind(talk: Talk, name: Topic, queue: Annotated[str, queue_argument()]) -> None:
    """End a binding. The queue keeps what it got.

    \b
    Example
      nexo topic unbind news billing
    """
    with topic_client(talk) as client:
        client.topic(name).unbind(queue)
    answer = {"topic": name, "queue": queue, "bound": False}
    talk.answer(answer, f"queue {queue} is no longer bound to {name}")


app.command()(publish)
app.command()(tail)


def _document(found: Any) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(found)
    return {**document, "messages": found.messages}
