"""`nexo topic publish`: one message, or a line each from standard input."""

import contextlib
import sys
from typing import Annotated

import typer

from nexo.cli.attributes import attributes_of
from nexo.cli.push import batches
from nexo.cli.talk import Talk, talks
from nexo.cli.topic_names import Topic, topic_client
from nexo.vocabulary.errors import InvalidArgument, TopicExists


@talks
def publish(
    talk: Talk,
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
    with topic_client(talk) as client:
        topic = client.topic(name)
        if create:
            with contextlib.suppress(TopicExists):  # with other settings, which is fine
                client.create_topic(name)
        if body is not None:
            offset = topic.publish(body, attributes=attributes)
            talk.answer({"offset": offset}, str(offset))
            return
        for lines in batches(sys.stdin.buffer):
            offsets = topic.publish_batch(lines, attributes=attributes)
            shown = (f'{{"offset":{each}}}' if talk.as_json else str(each) for each in offsets)
            talk.line("\n".join(shown))
