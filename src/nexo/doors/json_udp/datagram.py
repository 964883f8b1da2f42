"""A datagram as a command, or as the error that it gets: a pure function of its bytes.

Everything that could make a reader of JSON stumble later is refused here, because a payload is
handed to others as it came in: bytes that are not UTF-8, NaN and numbers beyond a float, half
surrogate pairs, nesting without end, and names that come twice in the datagram's own object.

What has a `status` is no request but a reply, of this broker or of another, that was sent here by
mistake or by a forger. It gets no answer at all: the answer would be the next such reply.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from itertools import accumulate
from typing import Any

import msgspec

from nexo.vocabulary import limits
from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge

Ref = str | int


class Action(StrEnum):
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    GET = "get"
    UNSUBSCRIBE = "unsubscribe"
    ACK = "ack"


class Command(msgspec.Struct, frozen=True, gc=False):
    """What a datagram asks for. Fields that its action does not know are not looked at."""

    action: Action
    topic: str  # as the datagram names it
    payload: bytes = b""  # of a publish, as JSON
    group: str | None = None
    ids: tuple[str, ...] = ()  # of an ack
    since: int | None = None
    limit: int | None = None
    visibility_ms: int | None = None
    token: str | None = None
    cookie: str | None = None
    ref: Ref | None = None  # comes back in the reply, so that it can be told which it is


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """The error that a datagram gets: a text for people, a code for programs."""

    text: str
    code: str = InvalidArgument.code
    ref: Ref | None = None


BAD_FORMAT = Refusal("Formato messaggio non valido")

_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode
_ACTIONS: dict[Any, Action] = {str(action): action for action in Action}
_REPLY = re.compile(rb'\s*\{\s*"status"')
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_DEPTHS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def decode(data: bytes) -> Command | Refusal | None:
    """The command in a datagram, or what is wrong with it; None if it is a reply."""
    fields = _fields(data)
    if fields is None:
        return None if begins_as_reply(data) else BAD_FORMAT
    if "status" in fields:
        return None
    given = fields.get("ref")
    ref: Ref | None = None
    if given is not None:
        if not _is_ref(given):
            return Refusal("Valore non valido: ref")
        ref = given
    said = fields.get("action")
    action = _ACTIONS.get(said) if isinstance(said, str) else None
    if action is None:
        shown = f"{said}"[: limits.UDP_ACTION_CHARS_SHOWN]
        return Refusal(f"Azione non supportata: {shown}", ref=ref)
    topic: Any = fields.get("topic")
    if not _is_name(topic):
        return Refusal("Topic mancante", ref=ref)
    if action is Action.PUBLISH:
        return _publish(fields, topic, ref)
    return _request(fields, action, topic, ref)


def begins_as_reply(data: bytes) -> bool:
    """Whether the datagram begins as every reply does, whatever comes after: one that was cut, or
    one that is not read any further."""
    return _REPLY.match(data) is not None


def _publish(fields: dict[str, Any], topic: str, ref: Ref | None) -> Command | Refusal:
    payload = fields.get("payload")
    if payload is None:
        return Refusal("Payload mancante", ref=ref)
    encoded = _encode_json(payload)
    if len(encoded) > limits.UDP_PAYLOAD_BYTES_MAX:
        return Refusal("Payload troppo grande", MessageTooLarge.code, ref)
    token, cookie = _text(fields, "token"), _text(fields, "cookie")
    return Command(Action.PUBLISH, topic, encoded, token=token, cookie=cookie, ref=ref)


def _request(
    fields: dict[str, Any], action: Action, topic: str, ref: Ref | None
) -> Command | Refusal:
    group: Any = fields.get("group")
    ids: Any = fields.get("ids")
    if group is None:
        if action is Action.ACK:
            return Refusal("Gruppo mancante", ref=ref)
    elif not _is_name(group):
        return Refusal("Valore non valido: group", ref=ref)
    if action is not Action.ACK:
        ids = []
    elif not _are_ids(ids):
        return Refusal("Ids mancanti", ref=ref)
    for name, low, high in (("since", 0, 2**63 - 1), ("limit", 1, 2**63 - 1)):
        value = fields.get(name)
        if value is not None and not (type(value) is int and low <= value <= high):
            return Refusal(f"Valore non valido: {name}", ref=ref)
    timeout = fields.get("visibility_timeout")
    if timeout is not None and not _is_timeout(timeout):
        return Refusal("Valore non valido: visibility_timeout", ref=ref)
    return Command(
        action,
        topic,
        group=group,
        ids=tuple(ids),
        since=fields.get("since"),
        limit=fields.get("limit"),
        visibility_ms=None if timeout is None else round(timeout * 1000),
        token=_text(fields, "token"),
        cookie=_text(fields, "cookie"),
        ref=ref,
    )


def _fields(data: bytes) -> dict[str, Any] | None:
    """The object in the datagram; None if there is none, or if it is not sound."""
    try:
        data.decode()  # the reader looks only at what it keeps
        found = _decode_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    brackets = data.count(b"[") + data.count(b"{")
    if brackets > limits.UDP_NESTING_MAX and _depth(data) > limits.UDP_NESTING_MAX:
        return None
    return None if _has_doubles(data, found) else found


def _depth(data: bytes) -> int:
    """How deep sound JSON is nested."""
    brackets = _STRING.sub(b"", data).translate(None, _NOT_BRACKETS)
    return max(accumulate(_DEPTHS[byte] for byte in brackets))


def _has_doubles(data: bytes, found: dict[str, Any]) -> bool:
    """Whether a name comes twice in the outermost object: then readers would disagree on what was
    asked. Looking closely is slow; a name that is written once needs no closer look."""
    if b"\\" not in data:
        for name in found:
            if data.count(b'"%b"' % name.encode()) > 1:
                break
        else:
            return False
    outermost = 0

    def count(pairs: list[tuple[str, Any]]) -> None:
        nonlocal outermost
        outermost = len(pairs)  # the outermost object ends last

    json.loads(data, object_pairs_hook=count)
    return outermost != len(found)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= limits.UDP_NAME_CHARS_MAX


def _is_ref(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= limits.UDP_REF_CHARS_MAX
    return type(value) is int and -(2**63) <= value < 2**64


def _are_ids(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= limits.UDP_ACK_IDS_MAX
        and all(isinstance(each, str) for each in value)
    )


def _is_timeout(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value * 1000 <= limits.TIMEOUT_MS_MAX


def _text(fields: dict[str, Any], name: str) -> str | None:
    """A text, or None: a token or cookie that is no text is as good as none."""
    value = fields.get(name)
    return value if isinstance(value, str) else None
