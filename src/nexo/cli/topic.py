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
from nexo.cli.session import Ending, Session, created, is_there, suggestion, takes_session
from nexo.vocabulary.errors import InvalidArgument, TopicExists
from nexo.vocabulary.names import is_events
from nexo.vocabulary.patterns import is_pattern
from nexo.vocabulary.units import count_of

if TYPE_CHECKING:
    from nexo import Client, Event

app = command_group(
    "topic",
    """Create, inspect and delete topics; publish to them, read them, bind queues.

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
    """Create a topic. If it exists with the same settings, nothing happens.

    \b
    Examples
      nexo topic create news
      nexo topic create news --retention-messages 100
      nexo topic create fleet.7.position --retention-seconds 1h --retention-bytes 64MB
    """
    with session.client() as client:
        was_there = is_there(client.topic(name).info)
        topic = client.create_topic(name, **settings)
        session.answer(_document(topic.info()), created("topic", name, was_there))


@app.command("list")
@takes_session
def list_topics(session: Session) -> None:
    """List all topics with their message counts and sizes.

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
    """Show a topic: offsets, size, settings and bound queues.

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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a topic and its messages. Bound queues keep the messages they received.

    \b
    Examples
      nexo topic delete news
      nexo topic delete news --yes
    """
    with topic_client(session) as client:
        topic = client.topic(name)
        kept = count_of(topic.info().messages)
        session.confirm(f"Permanently delete {name} and its {kept}?", yes)
        topic.delete()
    session.answer({"name": name, "deleted": True}, f"Deleted topic {name}")


@app.command()
@takes_session
def bind(
    session: Session,
    name: Topic,
    queue: Annotated[str, queue_argument("Name of the queue; it is created if it does not exist.")],
    start: Annotated[
        Any,
        typer.Option(
            metavar="START",
            parser=parse_start,
            help="Where to start: latest (new messages only), earliest, an offset or a time.",
        ),
    ] = "latest",
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Only messages with this attribute; repeatable, all must match.",
        ),
    ] = None,
) -> None:
    """Bind a queue to a topic: it receives a copy of every message published.

    \b
    Examples
      nexo topic bind news billing
      nexo topic bind news replay --start earliest
      nexo topic bind orders eu --where region=eu --start 2h

    The consumers of the queue share the work, as a consumer group does.
    Binding a queue again only replaces its filter.
    """
    wanted = attributes_of(where or [], "--where")
    with topic_client(session) as client:
        client.topic(name).bind(queue, start=start, where=wanted)
    answer = {"topic": name, "queue": queue, "where": wanted, "bound": True}
    session.answer(answer, f"Bound queue {queue} to topic {name}")


@app.command()
@takes_session
def unbind(session: Session, name: Topic, queue: Annotated[str, queue_argument()]) -> None:
    """Remove a binding. The queue keeps the messages it received.

    \b
    Example
      nexo topic unbind news billing
    """
    with topic_client(session) as client:
        client.topic(name).unbind(queue)
    answer = {"topic": name, "queue": queue, "bound": False}
    session.answer(answer, f"Unbound queue {queue} from topic {name}")


@app.command()
@takes_session
def publish(
    session: Session,
    name: Topic,
    body: Annotated[
        str | None,
        typer.Argument(
            metavar="BODY", help="Message body. Without it, each line of standard input is one."
        ),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Message attribute; repeatable."),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic if it does not exist.")
    ] = False,
) -> None:
    """Publish one message, or one per line of standard input.

    \b
    Examples
      nexo topic publish news "hello"
      nexo topic publish orders '{"id": 1}' --attribute region=eu
      seq 1000 | nexo topic publish numbers --create

    Prints the offset of each message once it is on disk.
    """
    if body is None and sys.stdin.isatty():
        raise InvalidArgument(
            "no message body was given",
            "add BODY, or pipe lines to standard input: seq 9 | nexo topic publish TOPIC",
        )
    attributes = attributes_of(attribute or [])
    with topic_client(session, "add --create to create it") as client:
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
    name: Annotated[
        str, topic_argument("Name of the topic, or a pattern: fleet.*.position, fleet.>")
    ],
    start: Annotated[
        Any,
        typer.Option(
            "--from",
            metavar="START",
            parser=parse_start,
            show_default=False,
            help="Where to start: latest, earliest, an offset or a time (10m is ten minutes ago). "
            "Default: latest; earliest with --no-follow.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after this many messages.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--no-follow", help="Wait for new messages, or stop at the last one."
        ),
    ] = True,
) -> None:
    """Print the messages of a topic as they are published.

    \b
    Examples
      nexo topic tail news
      nexo topic tail news --from earliest --no-follow
      nexo topic tail 'fleet.*.position' --from 10m --json
      nexo topic tail nexo.events         what happens to all messages

    Reading does not remove messages. Stops on Ctrl-C, or after --limit
    messages. In a pattern, * matches one word between dots and > the rest.
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
    if is_events(name):
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
def topic_client(session: Session, told: str = "") -> Iterator["Client"]:
    """A client. If the broker does not know a topic, the refusal says which may be meant, or what
    the command can do about it."""
    from nexo.vocabulary.errors import TopicNotFound

    with session.client() as client:
        try:
            yield client
        except TopicNotFound as error:
            names = [each.name for each in client.topics()]
            hint = suggestion(error.message, names, "topic", told)
            raise TopicNotFound(error.message, hint) from None
