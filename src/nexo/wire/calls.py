"""The named calls: everything that is not hot. Each has a type for what is asked and one for what
is answered, which the broker, the clients and Spark share.

A request is a map of its fields. What does not fit its type is refused before anything happens, and
a field that is not known is refused by name; so what has its default is not sent, and a newer
client is understood by an older broker as long as it asks for nothing new. In an answer fields that
are not known are passed over. `docs/reference/rpc-protocol.md` says what each of them does.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nexo.vocabulary import fields
from nexo.vocabulary.definitions import Definitions, Imported
from nexo.vocabulary.limits import (
    BATCH_MESSAGES_MAX,
    CHOSEN_IDS_MAX,
    LIST_PAGE_MAX,
    POP_BYTES_MAX,
    POP_MESSAGES_MAX,
    REASON_CHARS_MAX,
    SEARCH_MESSAGES_MAX,
    SEARCH_TEXT_CHARS_MAX,
)
from nexo.vocabulary.message import Message
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from nexo.vocabulary.start import LATEST, Start
from nexo.wire import commands
from nexo.wire.answers import (
    AuditLine as AuditLine,
)
from nexo.wire.answers import (
    ClusterFigures as ClusterFigures,
)
from nexo.wire.answers import (
    ConnectionFigures as ConnectionFigures,
)
from nexo.wire.answers import (
    ConsumerFigures as ConsumerFigures,
)
from nexo.wire.answers import (
    CountedReasons as CountedReasons,
)
from nexo.wire.answers import (
    Found as Found,
)
from nexo.wire.answers import (
    MessageLife as MessageLife,
)
from nexo.wire.answers import (
    ReasonGroup as ReasonGroup,
)
from nexo.wire.answers import (
    Resent as Resent,
)
from nexo.wire.frame import ProtocolError

if TYPE_CHECKING:
    from nexo.wire.frame import Frame

Reply = TypeVar("Reply")

_PageLimit = Annotated[int, Meta(ge=1, le=LIST_PAGE_MAX)]
_Seqs = Annotated[list[fields.Number], Meta(min_length=1, max_length=POP_MESSAGES_MAX)]
_Bodies = Annotated[list[bytes], Meta(max_length=POP_MESSAGES_MAX)]
_Bounds = tuple[int, int]  # the lowest and the highest
_SearchLimit = Annotated[int, Meta(ge=0, le=SEARCH_MESSAGES_MAX)]
_Ids = Annotated[list[fields.MessageId], Meta(min_length=1, max_length=CHOSEN_IDS_MAX)]
_ReasonText = Annotated[str, Meta(max_length=REASON_CHARS_MAX)]
_SearchText = Annotated[str, Meta(max_length=SEARCH_TEXT_CHARS_MAX)]


# -- What is answered -------------------------------------------------------------------------


class QueueFigures(msgspec.Struct, frozen=True):
    """A queue at one moment; the totals count since it was created."""

    name: str
    settings: Any  # a map: a newer broker may have settings that a client does not know
    consumers: int
    depth: int
    ready: int
    scheduled: int
    in_flight: int
    oldest_age_ms: int
    paused: bool
    pushed: int
    delivered: int
    acked: int
    nacked: int
    expired: int
    dead_lettered: int
    claimed: dict[str, int]  # messages held by each Spark consumer …
    unsealed: int = 0  # … and how many of all those fall back unless it is heard of
    unreadable: int = 0  # messages that the disk could not give; they are passed over
    timed_out: int = 0  # an older broker counts these as expired
    claimed_age_ms: dict[str, int] = {}  # how long those who hold some have held the first


class TopicFigures(msgspec.Struct, frozen=True):
    """A topic at one moment: offsets `start` to `end` (not included) can be read."""

    name: str
    start: int
    end: int
    kept_bytes: int
    settings: Any  # a map, as that of a queue
    bound_queues: list[str]


class RedriveProgress(msgspec.Struct, frozen=True):
    """How far a redrive is. `skipped` messages have no queue to go back to, and stay."""

    moved: int
    total: int
    skipped: int
    finished: bool


class Redriven(msgspec.Struct, frozen=True):
    """What came of messages that were chosen; `missing` are not in line any more."""

    moved: int
    skipped: int
    missing: int


class Claimed(msgspec.Struct, frozen=True, array_like=True):
    """Batch `number` of a consumer; 0 if there was nothing to claim."""

    number: int
    messages: int
    payload_bytes: int


class Sealed(Claimed, frozen=True, array_like=True):
    incarnation: int  # of the queue: it makes the ids of the messages


class SnapshotInfo(msgspec.Struct, frozen=True):
    snapshot: str
    count: int
    payload_bytes: int  # roughly
    incarnation: int
    at_ms: int


class SnapshotPage(msgspec.Struct, frozen=True, array_like=True):
    """What stands before the messages: where to go on, how many are gone from the disk, and the
    state of each part."""

    next: int
    missing: int
    states: list[int]


class BackupProgress(msgspec.Struct, frozen=True):
    backup: int
    copied_bytes: int
    total_bytes: int
    done: bool
    sha256: str = ""  # of the whole, once it is done


class TokenFigures(msgspec.Struct, frozen=True):
    """What is known of a token. Only the answer to its creation has its secret: `token`, or of an
    AWS access key `secret_access_key`."""

    name: str
    id: str
    allow: tuple[str, ...]
    created_ms: int
    expires_ms: int | None = None
    access_key_id: str | None = None
    token: str | UnsetType = UNSET
    secret_access_key: str | UnsetType = UNSET


# -- What is asked ----------------------------------------------------------------------------


class Request(
    msgspec.Struct, Generic[Reply], frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a call takes; `Reply` is what it answers."""


class _OfName(Request[Reply], frozen=True):
    name: fields.Name


class _OfConsumer(_OfName[Reply], frozen=True):
    """Of a Spark query on a queue."""

    consumer: fields.ConsumerName


class _OfEpoch(_OfConsumer[Reply], frozen=True):
    epoch: fields.Number


class _Listing(Request[Reply], frozen=True):
    """Up to `limit` of those behind the name `after`; None: all of them, which may be more than a
    frame takes."""

    after: fields.Name = ""
    limit: _PageLimit | None = None


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which messages are meant: those for which all holds that is said. In reasons numbers and ids
    do not count. `source` is the queue that a dead letter came from."""

    ids: _Ids | None = None
    reason: _ReasonText | None = None
    text: _SearchText = ""
    source: fields.Name | None = None


class CreateQueue(_OfName[QueueFigures], frozen=True):
    settings: QueueSettings | None = None
    exist_ok: bool = False  # a queue of this name will do, whatever its settings


class EditQueue(_OfName[QueueFigures], frozen=True):
    settings: dict[str, Any]  # only what is to change


class DeleteQueue(_OfName[None], frozen=True):
    pass


class ListQueues(_Listing[list[QueueFigures]], frozen=True):
    pass


class DescribeQueue(_OfName[QueueFigures], frozen=True):
    pass


class Purge(_OfName[int], frozen=True):
    """The answer is how many messages were removed."""


class Pause(_OfName[None], frozen=True):
    pass


class Resume(_OfName[None], frozen=True):
    pass


class Peek(_OfName[list[Message]], frozen=True):
    limit: fields.PeekCount = 10


class Redrive(_OfName[int], frozen=True):
    """The answer is the number of a task."""

    to: fields.Name | None = None
    rate: fields.Rate | None = None
    choice: Choice | None = None  # None: all of them


class RedriveChosen(_OfName[Redriven], frozen=True):
    incarnation: int  # of the queue in which they were seen
    seqs: _Seqs
    to: fields.Name | None = None
    bodies: _Bodies | None = None


class Discard(_OfName[int], frozen=True):
    """The answer is the number of a task, which is asked about like a redrive. Either a choice, or
    sequence numbers with the incarnation of the queue in which they were seen."""

    choice: Choice | None = None
    incarnation: int = 0
    seqs: _Seqs | None = None


class Search(_OfName[Found], frozen=True):
    choice: Choice = Choice()
    limit: _SearchLimit = 100
    after: fields.Number | None = None
    whole: bool = False  # count also what is not shown


class CountReasons(_OfName[CountedReasons], frozen=True):
    choice: Choice = Choice()
    after: fields.Number | None = None


class ShowMessage(_OfName[MessageLife], frozen=True):
    id: fields.MessageId


class Resend(_OfName[Resent], frozen=True):
    """With another body, and with these attributes set, or left out where the value is nil."""

    id: fields.MessageId
    body: bytes | None = None
    attributes: dict[str, str | None] = {}
    to: fields.Name | None = None


class AwaitRedrive(Request[RedriveProgress], frozen=True):
    task: fields.Number
    wait_ms: fields.WaitMs = 0


class CancelRedrive(AwaitRedrive, frozen=True):
    """`wait_ms` is not looked at."""


class Release(_OfConsumer[int], frozen=True):
    """The answer is how many messages were given back, or sent to the dead letters."""

    dead_letter: bool = False
    forget: bool = False


class CreateTopic(_OfName[TopicFigures], frozen=True):
    settings: TopicSettings | None = None
    exist_ok: bool = False


class DeleteTopic(_OfName[None], frozen=True):
    pass


class ListTopics(_Listing[list[TopicFigures]], frozen=True):
    pass


class DescribeTopic(_OfName[TopicFigures], frozen=True):
    pass


class Bind(Request[None], frozen=True):
    topic: fields.Name
    queue: fields.Name
    where: fields.Filter | None = None
    start: Start = LATEST
    create: bool = False  # the queue, if it is not there


class Unbind(Request[None], frozen=True):
    topic: fields.Name
    queue: fields.Name


class Starts(Request[dict[str, int]], frozen=True):
    """The answer is where that start is in each topic that matches now."""

    pattern: fields.PatternText
    start: Start = LATEST


class OpenClaims(_OfConsumer[int], frozen=True):
    """The answer is the epoch."""


class Claim(_OfEpoch[Claimed], frozen=True):
    after: fields.NumberBefore
    count: fields.Count
    timeout_ms: fields.TimeoutMs
    bytes_max: fields.Count = POP_BYTES_MAX
    wait_ms: fields.WaitMs = 0


class SealClaim(_OfEpoch[Sealed], frozen=True):
    number: fields.Number


class KeepClaims(_OfEpoch[None], frozen=True):
    timeout_ms: fields.TimeoutMs


class AckClaims(_OfEpoch[int], frozen=True):
    """The answer is how many messages of the batches up to `number` are gone for good."""

    number: fields.Number


class ReadClaim(_OfEpoch[None], frozen=True):
    """The answer is messages alone."""

    number: fields.Number
    start: fields.Number = 0  # in messages from the beginning of the batch
    count: fields.ReadCount = BATCH_MESSAGES_MAX
    bytes_max: fields.ReadBytes = POP_BYTES_MAX


class Ranges(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which messages are of interest; what is ruled out by whole runs is left out."""

    priority: _Bounds = (0, 255)
    attempts: _Bounds = (0, 2**62)
    created_ms: _Bounds = (-(2**62), 2**62)


class OpenSnapshot(_OfName[SnapshotInfo], frozen=True):
    wanted: Ranges | None = None
    scan: fields.SnapshotName = ""  # all who name the same one share a snapshot


class ReadSnapshot(_OfName[SnapshotPage], frozen=True):
    """The answer is messages with a page before them."""

    snapshot: fields.SnapshotName
    start: fields.Number
    count: fields.ReadCount = BATCH_MESSAGES_MAX
    bytes_max: fields.ReadBytes = POP_BYTES_MAX
    scan: fields.SnapshotName = ""


class CloseSnapshot(_OfName[None], frozen=True):
    snapshot: fields.SnapshotName


class BeginBackup(Request[BackupProgress], frozen=True):
    pass


class AwaitBackup(Request[BackupProgress], frozen=True):
    backup: fields.Number
    wait_ms: fields.WaitMs = 0


class ReadBackup(Request[bytes], frozen=True):
    backup: fields.Number
    offset: fields.Number
    size: fields.PieceBytes


class EndBackup(Request[None], frozen=True):
    backup: fields.Number


class ReadAudit(Request[list[AuditLine]], frozen=True):
    """The newest lines of the audit log, the newest first."""

    limit: _PageLimit = 50


class ListConnections(Request[list[ConnectionFigures]], frozen=True):
    """Those behind number `after`, up to 1,000."""

    after: fields.Number = 0


class CloseConnection(Request[None], frozen=True):
    number: fields.Number


class DescribeCluster(Request[ClusterFigures], frozen=True):
    """The nodes and shards of the cluster that the broker is a node of."""


class DrainNode(Request[None], frozen=True):
    """The shards of a node go to the others, until `rebalance_cluster`."""

    node: fields.NodeName


class RebalanceCluster(Request[None], frozen=True):
    """Every node that is up gets its share of the shards."""


class CreateToken(_OfName[TokenFigures], frozen=True):
    allow: list[fields.PermissionText]
    expires_after_ms: fields.LifeMs | None = None  # counted from now; None: never
    aws: bool = False  # an access key pair for the SQS API


class ListTokens(Request[list[TokenFigures]], frozen=True):
    pass


class RevokeToken(_OfName[None], frozen=True):
    pass


class ExportDefinitions(Request[Definitions], frozen=True):
    pass


class ImportDefinitions(Request[list[Imported]], frozen=True):
    definitions: Definitions
    dry_run: bool = False


# -- Both, by name ----------------------------------------------------------------------------


class Call(NamedTuple):
    """`has_parts`: the body of the answer is messages, and the reply stands in its head."""

    request: type[Request[Any]]
    reply: Any
    has_parts: bool = False


def _call(request: type[Request[Reply]], reply: type[Reply]) -> Call:
    return Call(request, reply)


_NOTHING = type(None)

CALLS: dict[str, Call] = {
    "create_queue": _call(CreateQueue, QueueFigures),
    "edit_queue": _call(EditQueue, QueueFigures),
    "delete_queue": _call(DeleteQueue, _NOTHING),
    "list_queues": _call(ListQueues, list[QueueFigures]),
    "queue_info": _call(DescribeQueue, QueueFigures),
    "purge": _call(Purge, int),
    "pause": _call(Pause, _NOTHING),
    "resume": _call(Resume, _NOTHING),
    "peek": _call(Peek, list[Message]),
    "redrive": _call(Redrive, int),
    "redrive_chosen": _call(RedriveChosen, Redriven),
    "redrive_progress": _call(AwaitRedrive, RedriveProgress),
    "redrive_cancel": _call(CancelRedrive, RedriveProgress),
    "discard": _call(Discard, int),
    "search": _call(Search, Found),
    "reasons": _call(CountReasons, CountedReasons),
    "message": _call(ShowMessage, MessageLife),
    "resend": _call(Resend, Resent),
    "release": _call(Release, int),
    "create_topic": _call(CreateTopic, TopicFigures),
    "delete_topic": _call(DeleteTopic, _NOTHING),
    "list_topics": _call(ListTopics, list[TopicFigures]),
    "topic_info": _call(DescribeTopic, TopicFigures),
    "bind": _call(Bind, _NOTHING),
    "unbind": _call(Unbind, _NOTHING),
    "starts": _call(Starts, dict[str, int]),
    "claim_open": _call(OpenClaims, int),
    "claim": _call(Claim, Claimed),
    "claim_seal": _call(SealClaim, Sealed),
    "claim_keep": _call(KeepClaims, _NOTHING),
    "claim_ack": _call(AckClaims, int),
    "claim_read": Call(ReadClaim, _NOTHING, has_parts=True),
    "snapshot_open": _call(OpenSnapshot, SnapshotInfo),
    "snapshot_read": Call(ReadSnapshot, SnapshotPage, has_parts=True),
    "snapshot_close": _call(CloseSnapshot, _NOTHING),
    "backup": _call(BeginBackup, BackupProgress),
    "backup_progress": _call(AwaitBackup, BackupProgress),
    "backup_read": _call(ReadBackup, bytes),
    "backup_end": _call(EndBackup, _NOTHING),
    "audit": _call(ReadAudit, list[AuditLine]),
    "list_connections": _call(ListConnections, list[ConnectionFigures]),
    "close_connection": _call(CloseConnection, _NOTHING),
    "cluster_info": _call(DescribeCluster, ClusterFigures),
    "drain_node": _call(DrainNode, _NOTHING),
    "rebalance_cluster": _call(RebalanceCluster, _NOTHING),
    "create_token": _call(CreateToken, TokenFigures),
    "list_tokens": _call(ListTokens, list[TokenFigures]),
    "revoke_token": _call(RevokeToken, _NOTHING),
    "export_definitions": _call(ExportDefinitions, Definitions),
    "import_definitions": _call(ImportDefinitions, list[Imported]),
}
METHODS: dict[type[Request[Any]], str] = {call.request: name for name, call in CALLS.items()}


def encode(wanted: Request[Any]) -> bytes:
    """The body of a CALL."""
    return commands.pack((METHODS[type(wanted)], wanted))


def read(wanted: type[Request[Reply]], answer: Frame) -> Reply:
    """What was answered to such a request; of one that has messages, what stands before them."""
    call = CALLS[METHODS[wanted]]
    if call.reply is _NOTHING:
        return None  # type: ignore[return-value]  # there is nothing to look at
    told = answer.head if call.has_parts else answer.body
    try:
        reply: Reply = _decoder(wanted).decode(told)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"the broker's answer cannot be read: {error}") from None
    return reply


@cache  # made when first needed: a client that asks little starts sooner
def _decoder(wanted: type[Request[Any]]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(CALLS[METHODS[wanted]].reply)
