"""What several groups of the API share: names, pages, times and refusals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Meta

from nexo.vocabulary.limits import ADMIN_PAGE_MAX, NAME_CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.vocabulary.errors import NexoError

    Value = TypeVar("Value")

# A topic that archives a queue has its name behind a prefix of the broker's own.
TOPIC_NAME_CHARS_MAX = 160
_PLAIN = rf"[A-Za-z0-9_.-]{{1,{NAME_CHARS_MAX}}}"

QueueName = Annotated[
    str,
    Meta(
        pattern=rf"^([0-9]{{12}}/[a-z0-9-]{{1,32}}/)?{_PLAIN}$",
        description="The name of a queue; in a path its slashes are written %2F.",
    ),
]
TopicName = Annotated[
    str,
    Meta(
        pattern=rf"^[A-Za-z0-9_./-]{{1,{TOPIC_NAME_CHARS_MAX}}}$",
        description="The name of a topic, also one of the broker's own.",
    ),
]
NewTopicName = Annotated[str, Meta(pattern=rf"^{_PLAIN}$")]
TokenName = Annotated[str, Meta(pattern=rf"^{_PLAIN}$", description="The name of a token.")]
Limit = Annotated[int, Meta(ge=1, le=ADMIN_PAGE_MAX, description="How many, at most.")]
After = Annotated[
    str, Meta(max_length=TOPIC_NAME_CHARS_MAX, description="Go on behind this name: see `next`.")
]
Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[datetime, Meta(tz=True)]


class AtQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: QueueName


class AtTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: TopicName


class Paging(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Limit = ADMIN_PAGE_MAX
    after: After = ""


class Refusal(msgspec.Struct, frozen=True):
    """Why nothing was done: the code for programs, the message for people, and what to do."""

    code: str
    message: str
    hint: str


class Refused(msgspec.Struct, frozen=True):
    error: Refusal


def refusal_of(error: NexoError) -> Refusal:
    return Refusal(error.code, error.message, error.hint)


def moment(unix_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # delays of centuries
        return datetime.max.replace(tzinfo=UTC)


def moment_or_none(unix_ms: int | None) -> datetime | None:
    """0 and None stand for no time."""
    return moment(unix_ms) if unix_ms else None


def page(
    names: Iterable[str], wanted: Paging, knows: Callable[[str], bool]
) -> tuple[list[str], str | None]:
    """The names of one page, and the name to go on behind; None: there are no more."""
    listed = sorted(name for name in names if name > wanted.after and knows(name))
    shown = listed[: wanted.limit]
    return shown, shown[-1] if len(listed) > len(shown) else None
