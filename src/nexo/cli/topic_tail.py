"""`nexo topic tail`: print what is published, as it comes."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.ending import Ending
from nexo.cli.messages import event_document
from nexo.cli.moments import parse_start
from nexo.cli.talk import Talk, talks
from nexo.cli.topic_names import topic_argument, topic_client
from nexo.vocabulary.names import EVENTS_TOPIC
from nexo.vocabulary.patterns import is_pattern

if TYPE_CHECKING:
    from nexo import Client, Event

LOOK_S = 0.5  # how long one wait may take no notice of the end
QUIET_S = 0.3  # without --follow: nothing more is there when nothing came for so long


@talks
def tail(
    talk: Talk,
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
    with topic_client(talk) as client, Ending() as ending:
        show = _printer(talk, name)
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


def _printer(talk: Talk, name: str) -> Any:
    """How an event is shown: as a document, as the life of messages, or as its body."""
    if talk.as_json:
        return lambda event: talk.document(event_document(event))
    if name == EVENTS_TOPIC:
        from nexo.cli.tables import console
        from nexo.cli.topic_tables import life_line

        screen = console()
        return lambda event: screen.print(life_line(event.body), soft_wrap=True)
    is_one = not is_pattern(name)

    def show(event: "Event") -> None:
        prefix = b"" if is_one else event.topic.encode() + b"\t"
        sys.stdout.buffer.write(prefix + event.body + b"\n")
        sys.stdout.buffer.flush()

    return show
