"""`nexo topic …`: create, look at and delete topics, publish to them, follow and bind them."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.messages import batches, event_document
from nexo.cli.parameters import (
    Topic,
    attributes_of,
    command_group,
    parse_start,
    queue_argument,
    takes_topic_settings,
    topic_argument,
)
from nexo.cli.session import Ending, Session, takes_session
from nexo.vocabulary.errors import InvalidArgument, TopicExists
from nexo.vocabulary.names import EVENTS_TOPIC
from nexo.vocabulary.patterns import is_pattern

if TYPE_CHECKING:
    from nexo import Client, Event

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

LOOK_S = 0.5  # how long one wait may take no notice of the end
QUIET_S = 0.3  # without --follow: nothing more is there when nothing came for so long


@app.command()
@takes_topic_settings
@takes_session
def create(session: Session, settings: dict[str, Any], name: Topic) -> None:
    """Create a topic; again with the same settings is no error.

    \b
    Examples
      nexo topic create news
      nexo topic create news --retention-messages 100
      nexo topic create fleet.7.position --retention-seconds 1h --retention-bytes 64MB
    """
    with session.client() as client:
        topic = client.create_topic(name, **settings)
        session.answer(_document(topic.info()), f"topic {name} is there")


@app.command("list")
@takes_session
def list_topics(session: Session) -> None:
    """List the topics with their figures.

    \b
    Examples
      nexo topic list
      nexo topic list --json | jq '.[].name'
    """
    with session.client() as client:
        infos = client.topics()
    if session.as_json:
        session.document([_document(info) for info in infos])
    else:
        from nexo.cli.tables import console, topic_table

        console().print(topic_table(infos))


@app.command()
@takes_session
def info(session: Session, name: Topic) -> None:
    """Show a topic: offsets, size, settings, bound queues.

    \b
    Examples
      nexo topic info news
      nexo topic info news --json | jq .end
    """
    with topic_client(session) as client:
        found = client.topic(name).info()
    if session.as_json:
        session.document(_document(found))
    else:
        from nexo.cli.tables import console, topic_page

        console().print(topic_page(found))


@app.command()
@takes_session
def delete(
    session: Session,
    name: Topic,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a topic with everything that it keeps. Bound queues keep what they got.

    \b
    Examples
      nexo topic delete news
      nexo topic delete news --yes
    """
    with topic_client(session) as client:
        topic = client.topic(name)
        session.confirm(f"Delete {name} with {topic.info().messages:,} messages, for good?", yes)
        topic.delete()
    session.answer({"name": name, "deleted": True}, f"topic {name} is deleted")


@app.command()
@takes_session
def bind(
    session: Session,
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
    with topic_client(session) as client:
        client.topic(name).bind(queue, start=start, where=wanted)
    answer = {"topic": name, "queue": queue, "where": wanted, "bound": True}
    session.answer(answer, f"queue {queue} is bound to {name}")


@app.command()
@takes_session
def unbind(session: Session, name: Topic, queue: Annotated[str, queue_argument()]) -> None:
    """End a binding. The queue keeps what it got.

    \b
    Example
      nexo topic unbind news billing
    """
    with topic_client(session) as client:
        client.topic(name).unbind(queue)
    answer = {"topic": name, "queue": queue, "bound": False}
    session.answer(answer, f"queue {queue} is no longer bound to {name}")


@app.command()
@takes_session
def publish(
    session: Session,
    name: Topic,
    body: Annotated[
        str | None,
        typer.Argument(metavar="BODY", help="The message; without it, a line each is read."),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An attribute; may be given again."),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the topic if needed.")] = False,
) -> None:
    """Publish one message, or a line each from standard input.

    \b
    Examples
      nexo topic publish news "hello"
      nexo topic publish orders '{"id": 1}' --attribute region=eu
      seq 1000 | nexo topic publish numbers --create

    Prints the offset of each message once it is on disk.
    """
    if body is None and sys.stdin.isatty():
        raise InvalidArgument(
            "there is nothing to publish",
            "give a BODY, or lines on standard input: seq 9 | nexo topic publish",
        )
    attributes = attributes_of(attribute or [])
    with topic_client(session) as client:
        topic = client.topic(name)
        if create:
            with contextlib.suppress(TopicExists):  # with other settings, which is fine
                client.create_topic(name)
        if body is not None:
            offset = topic.publish(body, attributes=attributes)
            session.answer({"offset": offset}, str(offset))
            return
        for lines in batches(sys.stdin.buffer):
            offsets = topic.publish_batch(lines, attributes=attributes)
            shown = (f'{{"offset":{each}}}' if session.as_json else str(each) for each in offsets)
            session.line("\n".join(shown))


@app.command()
@takes_session
def tail(
    session: Session,
    name: Annotated[str, topic_argument("The topic, or a pattern: fleet.*.position, fleet.>")],
    start: Annotated[
        Any,
        typer.Option(
            "--from",
            metavar="START",
            parser=parse_start,
            show_default=False,
            help="latest, earliest, an offset, or a time: 10m for ten minutes ago. "
            "Else latest, or earliest with --no-follow.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after so many messages.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Whether to wait for more.")
    ] = True,
) -> None:
    """Print what is published to a topic, as it comes.

    \b
    Examples
      nexo topic tail news
      nexo topic tail news --from earliest --no-follow
      nexo topic tail 'fleet.*.position' --from 10m --json
      nexo topic tail nexo.events         the life of all messages

    Reading removes nothing. It ends with Ctrl-C, or after --limit messages. A
    pattern stands for all topics that match: * is one word, > the rest.
    """
    if start is None:
        start = "latest" if follow else "earliest"
    with topic_client(session) as client, Ending() as ending:
        show = _printer(session, name)
        for shown, event in enumerate(_events(client, name, start, follow, ending), 1):
            show(event)
            if shown == limit:
                return


def _events(
    client: "Client", name: str, start: Any, follow: bool, ending: Ending
) -> Iterator["Event"]:
    with client.topic(name).subscribe(start=start) as subscription:
        while not ending.is_near:
            event = subscription.get(timeout=LOOK_S if follow else QUIET_S)
            if event is not None:
                yield event
            elif not follow:
                return


def _printer(session: Session, name: str) -> Any:
    """How an event is shown: as a document, as the life of messages, or as its body."""
    if session.as_json:
        return lambda event: session.document(event_document(event))
    if name == EVENTS_TOPIC:
        from nexo.cli.tables import console, life_line

        screen = console()
        return lambda event: screen.print(life_line(event.body), soft_wrap=True)
    is_one = not is_pattern(name)

    def show(event: "Event") -> None:
        prefix = b"" if is_one else event.topic.encode() + b"\t"
        sys.stdout.buffer.write(prefix + event.body + b"\n")
        sys.stdout.buffer.flush()

    return show


def _document(found: Any) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(found)
    return {**document, "messages": found.messages}


@contextlib.contextmanager
def topic_client(session: Session) -> Iterator["Client"]:
    """A client. If the broker does not know a topic, the refusal says which may be meant."""
    from nexo.vocabulary.errors import TopicNotFound

    with session.client() as client:
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
