"""What a request is about: the queue or topic that it names, wherever the name stands in it. What
cannot be read is for the API or page to refuse, whichever node has it."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from nexo.doors.http.body import read_form
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from nexo.doors.http.exchange import Exchange

_FORM_FIELDS_MAX = 10_000
_QUEUE_PATH = re.compile(r"/\d{12}/([^/?]+)")
_API_NAME = re.compile(r"/api/v1/(?:queues|topics)/([^/]+)(?:/.*)?")
_API_NUMBER = re.compile(r"/api/v1/(redrives|connections)/(\d{1,19})")
_CONSOLE_NAME = re.compile(r"/console/(?:live/)?(?:queues|topics|dead-letters)/([^/]+)(?:/.*)?")


# -- SQS and SNS ------------------------------------------------------------------------------


class _Names(msgspec.Struct, frozen=True, rename="pascal"):
    """Where the name of a queue or topic may stand in a request of SQS or SNS."""

    queue_url: str | None = None
    queue_name: str | None = None
    source_arn: str | None = None
    topic_arn: str | None = None
    target_arn: str | None = None
    subscription_arn: str | None = None
    resource_arn: str | None = None
    task_handle: str | None = None
    name: str | None = None


class _Handle(msgspec.Struct, frozen=True):
    """Of a move task."""

    source_arn: str = msgspec.field(name="sourceArn")


def aws_subject(exchange: Exchange, body: bytes) -> tuple[str, str | None]:
    """The action of a request, and the queue or topic that it is about; None: about none."""
    try:
        if b"x-amz-target" in exchange.fields:
            action = exchange.fields[b"x-amz-target"].rpartition(b".")[2].decode("latin-1")
            names = msgspec.json.decode(body or b"{}", type=_Names)
        else:
            fields = dict(read_form(exchange.query, _FORM_FIELDS_MAX))
            fields.update(read_form(body, _FORM_FIELDS_MAX))
            action = fields.get("Action", "")
            if _QUEUE_PATH.fullmatch(exchange.path):
                fields.setdefault("QueueUrl", exchange.path)
            names = msgspec.convert(fields, _Names)
        return action, _name_of(names)
    except (msgspec.DecodeError, NexoError, NotBase64, ValueError, RecursionError):
        return "", None


def _name_of(names: _Names) -> str | None:
    if names.queue_url:
        return unquote(names.queue_url.partition("?")[0].rstrip("/").rpartition("/")[2])
    if names.subscription_arn:  # arn:aws:sns:REGION:ACCOUNT:TOPIC:ID
        parts = names.subscription_arn.split(":")
        return parts[5] if len(parts) > 5 else None
    arn = names.source_arn or names.topic_arn or names.target_arn or names.resource_arn
    if names.task_handle:
        told = msgspec.json.decode(b64decode(names.task_handle, validate=True), type=_Handle)
        arn = told.source_arn
    if arn:
        return arn.rpartition(":")[2] or None
    return names.queue_name or names.name


# -- The admin API ----------------------------------------------------------------------------


class _Created(msgspec.Struct, frozen=True):
    name: str


def api_name(path: str) -> str | None:
    """The queue or topic in a path of the API."""
    found = _API_NAME.fullmatch(path)
    return None if found is None else unquote(found[1])


def api_number(path: str) -> tuple[str, int]:
    """`redrives` or `connections`, and which of them; nothing and 0 if a path names none."""
    found = _API_NUMBER.fullmatch(path)
    return ("", 0) if found is None else (found[1], int(found[2]))


def created_name(body: bytes) -> str | None:
    """What a body is to create."""
    try:
        return msgspec.json.decode(body, type=_Created).name
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# -- The console ------------------------------------------------------------------------------


def console_name(path: str) -> str | None:
    """The queue or topic of a page."""
    found = _CONSOLE_NAME.fullmatch(path.rstrip("/"))
    return None if found is None else unquote(found[1])


def form_field(body: bytes, name: str) -> str:
    try:
        return dict(read_form(body, _FORM_FIELDS_MAX)).get(name, "")
    except NexoError:
        return ""
