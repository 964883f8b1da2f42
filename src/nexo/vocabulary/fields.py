"""What values a field may have, as types: whoever decodes a request by them gets nothing else.

The broker decodes what arrives by these, and the clients check by the same limits before they
send. What does not fit is refused by the name of its field and what is allowed there.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, inspect

from nexo.vocabulary import limits
from nexo.vocabulary.errors import InvalidArgument

# -- Numbers ----------------------------------------------------------------------------------

Number = Annotated[int, Meta(ge=0, le=limits.INTEGER_MAX)]  # offsets, leases, epochs, counters
NumberBefore = Annotated[int, Meta(ge=0, le=limits.INTEGER_MAX - 1)]  # one more is a Number
Count = Annotated[int, Meta(ge=1, le=limits.INTEGER_MAX)]
ReadCount = Annotated[int, Meta(ge=1, le=limits.BATCH_MESSAGES_MAX)]
ReadBytes = Annotated[int, Meta(ge=1, le=limits.POP_BYTES_MAX)]
PeekCount = Annotated[int, Meta(ge=1, le=limits.PEEK_MESSAGES_MAX)]
PieceBytes = Annotated[int, Meta(ge=1, le=limits.BACKUP_PIECE_BYTES_MAX)]
Priority = Annotated[int, Meta(ge=0, le=limits.PRIORITY_MAX)]
Prefetch = Annotated[int, Meta(ge=1, le=limits.PREFETCH_MAX)]
Held = Annotated[int, Meta(ge=0, le=limits.PREFETCH_MAX)]
LingerMs = Annotated[int, Meta(ge=0, le=limits.LINGER_MS_MAX)]
SubscriptionNumber = Annotated[int, Meta(ge=1, le=limits.SUBSCRIPTION_NUMBER_MAX)]
TimeoutMs = Annotated[int, Meta(ge=0, le=limits.TIMEOUT_MS_MAX)]
WaitMs = Annotated[int, Meta(ge=0, le=limits.WAIT_MS_MAX)]
DelayMs = Annotated[int, Meta(ge=0, le=limits.DELAY_MS_MAX)]
TimeMs = Annotated[int, Meta(ge=0, le=limits.TIME_MS_MAX)]
LifeMs = Annotated[int, Meta(ge=1, le=limits.RETENTION_MS_MAX)]
Rate = Annotated[float, Meta(gt=0, le=limits.RECEIVE_RATE_MAX)]

# -- Texts ------------------------------------------------------------------------------------

Name = Annotated[str, Meta(max_length=limits.FULL_NAME_CHARS_MAX)]  # of what may be there or not
MessageId = Annotated[str, Meta(min_length=1, max_length=limits.MESSAGE_ID_CHARS_MAX)]
PatternText = Annotated[str, Meta(min_length=1, max_length=limits.PATTERN_CHARS_MAX)]
ClientName = Annotated[str, Meta(max_length=limits.CONSUMER_CHARS_MAX)]
NodeName = Annotated[str, Meta(min_length=1, max_length=limits.NODE_CHARS_MAX)]
ConsumerName = Annotated[str, Meta(min_length=1, max_length=limits.CONSUMER_CHARS_MAX)]
ProducerName = Annotated[str, Meta(max_length=limits.PRODUCER_CHARS_MAX)]
GroupId = Annotated[str, Meta(min_length=1, max_length=limits.GROUP_ID_CHARS_MAX)]
DeduplicationId = Annotated[str, Meta(min_length=1, max_length=limits.DEDUPLICATION_ID_CHARS_MAX)]
PermissionText = Annotated[str, Meta(max_length=limits.PERMISSION_CHARS_MAX)]
CallName = Annotated[str, Meta(max_length=limits.RPC_CALL_CHARS_MAX)]
SnapshotName = Annotated[str, Meta(max_length=limits.CONSUMER_CHARS_MAX)]

# -- Several ----------------------------------------------------------------------------------

Range = tuple[Number, Number, Number]  # lease, first, end
RangeList = Annotated[list[Range], Meta(min_length=1, max_length=limits.RECEIPT_RANGES_MAX)]
Offsets = Annotated[dict[Name, Number], Meta(max_length=limits.FOLLOWED_TOPICS_MAX)]
_FilterText = Annotated[str, Meta(max_length=limits.FILTER_CHARS_MAX)]
Filter = Annotated[dict[_FilterText, _FilterText], Meta(max_length=limits.FILTER_ATTRIBUTES_MAX)]

_BOUND = re.compile(r"Expected `(\w+)`( of length)? (?:<=|>=|<|>) ")
_PATH = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_COUNTED = {"str": "characters", "array": "entries", "object": "entries", "bytes": "bytes"}


def check_allowed(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidArgument(f"{field} is {value}, allowed is {low} to {high}")


def check_chars(field: str, text: str, most: int) -> None:
    if len(text) > most:
        raise InvalidArgument(f"{field} has {len(text)} characters, allowed are {most}")


def refused(error: msgspec.ValidationError, kind: type[Any]) -> InvalidArgument:
    """What is wrong with a value that is not of this type, in the words of its fields."""
    said, _, where = str(error).partition(" - at ")
    path = [name or index for name, index in _PATH.findall(where)]
    field, wanted = _field(kind, path)
    if where.startswith("`key`"):
        field = f"a key of {field}"
    found = _BOUND.match(said)
    bounds = _bounds(wanted, found[1]) if found and not where.startswith("`key`") else None
    if found is None or bounds is None:
        said = said.replace("`", "").replace("Expected ", "expected ")
        return InvalidArgument(f"{field}: {said}" if field else said)
    allowed = f"{bounds[0]} to {bounds[1]}"
    if found[2]:
        return InvalidArgument(f"{field} must have {allowed} {_COUNTED.get(found[1], 'entries')}")
    return InvalidArgument(f"{field} is out of range, allowed is {allowed}")


def _field(kind: type[Any], path: list[str]) -> tuple[str, inspect.Type | None]:
    """The name of what lies at this place, and what it has to be."""
    at = _types.get(kind)
    if at is None:
        at = _types[kind] = inspect.type_info(kind)  # it takes a millisecond
    name = ""
    for step in path:
        options, at = _options(at), None
        for each in options:
            if isinstance(each, inspect.StructType):
                fields = each.fields
                if step.isdigit():
                    chosen = fields[int(step)]
                else:
                    chosen = next(field for field in fields if field.encode_name == step)
                name += f".{chosen.name}" if name else chosen.name
                at = chosen.type
            elif isinstance(each, (inspect.ListType, inspect.DictType, inspect.TupleType)):
                name += f"[{step}]"
                if isinstance(each, inspect.ListType):
                    at = each.item_type
                elif isinstance(each, inspect.DictType):
                    at = each.value_type
                else:
                    at = each.item_types[int(step)]
            if at is not None:
                break
    return name, at


def _options(kind: inspect.Type | None) -> tuple[inspect.Type | None, ...]:
    """The types that a value may have one of; what describes them in a schema is left out."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if not isinstance(kind, inspect.UnionType):
        return (kind,)
    return tuple(option for each in kind.types for option in _options(each))


def _bounds(wanted: inspect.Type | None, kind: str) -> tuple[float, float] | None:
    """The lowest and the highest value, or length, that a type takes."""
    for each in _options(wanted):
        if isinstance(each, (inspect.IntType, inspect.FloatType)) and kind in ("int", "float"):
            low = each.ge if each.ge is not None else each.gt
            high = each.le if each.le is not None else each.lt
        elif isinstance(each, (inspect.StrType, inspect.ListType, inspect.DictType)):
            if kind != _KINDS[type(each)]:
                continue
            low, high = each.min_length or 0, each.max_length
        else:
            continue
        if low is not None and high is not None:
            return low, high
    return None


_types: dict[type[Any], inspect.Type] = {}
_KINDS: dict[type[inspect.Type], str] = {
    inspect.StrType: "str",
    inspect.ListType: "array",
    inspect.DictType: "object",
}
