"""What the rules did, as values: the records of the journal.

A change says what was applied, never what was asked, so applying the changes of a queue to its
last snapshot gives its state without deciding anything again. Ranges are half-open (`first` ≤ seq
< `end`); several are one flat list. Each struct's tag is on disk: never change or reuse one. New
fields go last, with a default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.settings import QueueSettings, TopicSettings
from nexo.vocabulary.sns import Subscription
from nexo.vocabulary.states import Cause, State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Tuples: the garbage collector soon stops looking at them, unlike at lists.
Ranges = tuple[int, ...]
Groups = str | list[str | None] | None


class Pushed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Messages arrived and lie in `row` from its message `row_start` on; `chunk` is the first
    number of the chunk that they belong to. `due_ms` 0 is now. What a topic had kept may lie in
    `more_rows` too, and came into the queue at `arrived_ms`, after it was created."""

    row: int
    row_start: int
    chunk: int
    first: int
    end: int
    created_first_ms: int
    created_last_ms: int
    due_ms: int | list[int]
    groups: Groups
    payload_bytes: int
    more_rows: tuple[int, ...] = ()
    arrived_ms: int = 0


class Delivered(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    lease: int
    state: State
    at_ms: int
    deadline_ms: int
    visibility_ms: int
    consumer: str
    ranges: Ranges


class DeadlineSet(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """Leased messages have another deadline, or none, and perhaps another state (reception ack,
    extension, seal, the end of their last attempt)."""

    lease: int
    ranges: Ranges
    state: State
    deadline_ms: int
    attempt: bool = False  # a replayed Spark batch counts as one
    failed: Cause | None = None  # why, if that was the last attempt


class Removed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """Messages are gone; `lease` 0 means that they were not in flight."""

    lease: int
    cause: Cause
    ranges: Ranges


class Returned(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """Leased messages came back to the line, or wait until `due_ms`."""

    lease: int
    cause: Cause
    at_ms: int
    due_ms: int
    ranges: Ranges


class Purged(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    at_ms: int


class Rewritten(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=7):
    """The live messages of a chunk were copied forward to `row`; `seqs` says which they are."""

    first: int
    row: int
    seqs: list[int]
    payload_bytes: int


class Remembered(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=8):
    """Deduplication keys and the messages that they stand for."""

    until_ms: int
    keys: list[str]
    seqs: list[int]


class Produced(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=9):
    """A producer's push number and what it became, so that a retry gets the same answer."""

    producer: str
    number: int
    at_ms: int
    seqs: list[int]  # flat ranges
    checksum: int = 0  # of its messages as the producer counts it; 0 if it did not say


class ClaimOpened(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=10):
    consumer: str
    epoch: int
    at_ms: int = 0


class Claimed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=11):
    consumer: str
    number: int
    lease: int
    at_ms: int = 0


class Sealed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=12):
    consumer: str
    number: int


class ClaimAcked(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=13):
    consumer: str
    through: int
    at_ms: int = 0


class ClaimEmptied(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=14):
    """A claimed batch was given back (lapsed or released): it reads as empty from now on."""

    consumer: str
    number: int
    lapsed: bool


class ClaimForgotten(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=15):
    consumer: str


class PauseSet(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=16):
    paused: bool


class Published(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=20):
    row: int
    row_start: int
    chunk: int
    first: int
    end: int
    created_first_ms: int
    created_last_ms: int
    payload_bytes: int
    more_rows: tuple[int, ...] = ()
    arrived_ms: int = 0


class Trimmed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=21):
    """Retention: offsets below `start` are gone."""

    start: int


class QueueDefined(msgspec.Struct, frozen=True, array_like=True, tag=30):
    owner: int
    name: str
    incarnation: int
    settings: QueueSettings
    created_ms: int
    modified_ms: int


class TopicDefined(msgspec.Struct, frozen=True, array_like=True, tag=31):
    owner: int
    name: str
    settings: TopicSettings
    created_ms: int
    modified_ms: int


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """A queue or topic was deleted. `retired`: it got messages from other shards of a cluster, and
    dead letters that come later do not create it again."""

    owner: int
    retired: bool = False


class Bound(msgspec.Struct, frozen=True, array_like=True, tag=33):
    topic: int
    queue: int
    where: dict[str, str] | None = None
    sns: Subscription | None = None  # what SNS's subscription of the queue asks for


class Unbound(msgspec.Struct, frozen=True, array_like=True, tag=34):
    topic: int
    queue: int


class TokenDefined(msgspec.Struct, frozen=True, array_like=True, tag=35):
    """A token as it is kept: the digest of its secret, or of an AWS access key the secret."""

    name: str
    id: str
    digest: bytes
    allow: tuple[str, ...]  # permissions, as `nexo.access.permissions` reads them
    created_ms: int
    expires_ms: int | None = None
    aws_secret: str = ""

    def __repr__(self) -> str:
        return f"TokenDefined({self.name!r}, {self.id!r})"  # it may end up in a log


class TokenRevoked(msgspec.Struct, frozen=True, array_like=True, tag=36):
    name: str


class MoveNoted(msgspec.Struct, frozen=True, array_like=True, tag=37):
    """How far a redrive is, or how it ended. `source` is the owner number of its queue; `status` is
    in the words of SQS; what stopped it is told by the code and the words of the error."""

    number: int
    id: str
    source: int
    to: str | None
    rate: float | None
    started_ms: int
    total: int
    moved: int
    skipped: int
    status: str
    error_code: str = ""
    error_message: str = ""
    error_hint: str = ""

    @property
    def is_under_way(self) -> bool:
        return self.status in ("RUNNING", "CANCELLING")


QueueChange = (
    Pushed
    | Delivered
    | DeadlineSet
    | Removed
    | Returned
    | Purged
    | Rewritten
    | Remembered
    | Produced
    | ClaimOpened
    | Claimed
    | Sealed
    | ClaimAcked
    | ClaimEmptied
    | ClaimForgotten
    | PauseSet
)
TopicChange = Published | Trimmed | Produced | Remembered | Rewritten
CatalogChange = (
    QueueDefined
    | TopicDefined
    | Dropped
    | Bound
    | Unbound
    | TokenDefined
    | TokenRevoked
    | MoveNoted
)

_encoder = msgspec.msgpack.Encoder()
_queue_decoder = msgspec.msgpack.Decoder(list[QueueChange])
_topic_decoder = msgspec.msgpack.Decoder(list[TopicChange])
_catalog_decoder = msgspec.msgpack.Decoder(list[CatalogChange])

encode_changes: Callable[[Sequence[QueueChange | TopicChange | CatalogChange]], bytes] = (
    _encoder.encode
)
decode_queue_changes: Callable[[bytes], list[QueueChange]] = _queue_decoder.decode
decode_topic_changes: Callable[[bytes], list[TopicChange]] = _topic_decoder.decode
decode_catalog_changes: Callable[[bytes], list[CatalogChange]] = _catalog_decoder.decode
