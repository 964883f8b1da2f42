"""Names of queues and topics: what is allowed, what is reserved, what follows from a name."""

from __future__ import annotations

import re

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import NAME_CHARS_MAX

RESERVED_PREFIX = "nexo."
EVENTS_TOPIC = "nexo.events"
ARCHIVE_PREFIX = "nexo.archive."
TRANSFER_PREFIX = "nexo.transfer."  # of queues and producers between the shards of a cluster
FIFO_SUFFIX = ".fifo"
_EVENTS = re.compile(r"nexo\.events(?:\.(\d{1,4}))?")
_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{NAME_CHARS_MAX}}}")
# Of other AWS accounts and regions than the default ones: 123456789012/eu-west-1/orders.
_SCOPED = re.compile(rf"(\d{{12}})/([a-z0-9-]{{1,32}})/([A-Za-z0-9_.-]{{1,{NAME_CHARS_MAX}}})")


def check_name(name: str, kind: str = "queue") -> None:
    """Refuse a name that a user may not give to a queue or topic."""
    scoped = _SCOPED.fullmatch(name)
    if scoped is None and not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{name!r:.100} is not a {kind} name",
            f"use 1 to {NAME_CHARS_MAX} of the characters A-Z a-z 0-9 _ . -",
        )
    if (scoped[3] if scoped else name).startswith(RESERVED_PREFIX):
        raise InvalidArgument(
            f"{name!r} is reserved: names that begin with {RESERVED_PREFIX!r} are for the broker",
            "choose another name",
        )


def scope_of(name: str) -> tuple[str, str, str] | None:
    """The account, the region and the plain name of what is outside the default scope."""
    found = _SCOPED.fullmatch(name)
    return (found[1], found[2], found[3]) if found else None


def dead_letter_name(queue: str, template: str) -> str:
    """The dead-letter queue of `queue`. The suffix that marks a FIFO queue stays at the end."""
    if "{name}" not in template:
        return template
    stem = queue.removesuffix(FIFO_SUFFIX)
    name = template.replace("{name}", stem)
    return name + FIFO_SUFFIX if stem != queue else name


def events_name(shard: int) -> str:
    """The topic of events of a shard of a cluster; `nexo.events` stands for all of them there."""
    return f"{EVENTS_TOPIC}.{shard}"


def is_events(topic: str) -> bool:
    """Whether it is a topic of events: that of a broker, or of a shard of a cluster."""
    return _EVENTS.fullmatch(topic) is not None


def events_shard(topic: str) -> int | None:
    """The shard whose events these are; None: it is not the topic of a shard's events."""
    found = _EVENTS.fullmatch(topic)
    return None if found is None or found[1] is None else int(found[1])


def archive_name(queue: str) -> str:
    """The topic under which an archived queue's messages stay readable."""
    return ARCHIVE_PREFIX + queue
