"""Message attributes: what a sender may give, how it is kept, and which of it a receiver sees."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nexo.doors.sqs_http.errors import SqsError, invalid, invalid_value
from nexo.doors.sqs_http.shapes import MessageAttributeValue
from nexo.vocabulary.attributes import SYSTEM_PREFIX, decode_typed
from nexo.vocabulary.limits import SQS_TRACE_CHARS_MAX
from nexo.vocabulary.sqs import PRIORITY

if TYPE_CHECKING:
    from nexo.doors.sqs_http.shapes import MessageSystemAttributeValue
    from nexo.vocabulary.attributes import Typed

ATTRIBUTES_MAX = 10
PRIORITY_MAX = 255
_PRIORITY_DIGITS = 9  # leading zeros included

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Of ASCII: what is forbidden becomes zero, which is forbidden too.
_MARKED = bytes(each if each >= 0x20 or each in b"\t\n\r" else 0 for each in range(256))
_NAME = re.compile(r"(?!(?i:aws\.|amazon\.)|\.)[A-Za-z0-9_.\u00c0-\u017f-]{1,256}(?<!\.)")
_TYPE = re.compile(r"(String|Number|Binary)(\..+)?", re.DOTALL)
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*")
_TYPE_CHARS_MAX = 256


def forbidden_in(encoded: bytes) -> str | None:
    """The first character that SQS does not take, of a text in UTF-8."""
    if encoded.isascii() and 0 not in encoded.translate(_MARKED):
        return None  # nearly all, and this is the quickest way to know
    text = encoded.decode()
    found = None if text.isprintable() else _FORBIDDEN.search(text)
    return None if found is None else found[0]


def typed_attributes(given: dict[str, MessageAttributeValue]) -> dict[str, Typed]:
    """The attributes of a message that is sent, or why they are refused."""
    if len(given) > ATTRIBUTES_MAX:
        raise invalid(
            f"Number of message attributes [{len(given)}] exceeds the allowed maximum "
            f"[{ATTRIBUTES_MAX}]."
        )
    return {name: _typed(name, value) for name, value in given.items()}


def priority_of(attributes: dict[str, Typed]) -> int:
    """The priority that a sender asks for."""
    found = attributes.get(PRIORITY)
    if found is None:
        return 0
    kind, value = found
    text = value.strip() if isinstance(value, str) else ""
    is_number = kind.startswith("Number") and text.isascii() and text.isdecimal()
    if not is_number or len(text) > _PRIORITY_DIGITS or int(text) > PRIORITY_MAX:
        raise invalid_value(
            text, PRIORITY, f"It must be a Number without fraction from 0 to {PRIORITY_MAX}."
        )
    return int(text)


def trace_header(given: dict[str, MessageSystemAttributeValue]) -> tuple[str, str]:
    """The one system attribute that may be sent: its type and value."""
    for name, value in given.items():
        if name != "AWSTraceHeader":
            raise invalid(f"Message system attribute name '{name:.256}' is invalid.")
        if value.data_type != "String" or not value.string_value:
            raise invalid(
                f"Message system attribute '{name}' must contain a non-empty value of type "
                "'String'."
            )
        if len(value.string_value) > SQS_TRACE_CHARS_MAX:
            raise invalid(
                f"Message system attribute '{name}' must have at most {SQS_TRACE_CHARS_MAX} "
                "characters."
            )
        return value.data_type, value.string_value
    raise invalid("There is no message system attribute.")


def shown_attributes(encoded: bytes | None, priority: int, names: list[str]) -> dict[str, Typed]:
    """Of a message's attributes those that a receiver asks for."""
    known = {n: t for n, t in decode_typed(encoded).items() if not n.startswith(SYSTEM_PREFIX)}
    if priority and PRIORITY not in known:
        known[PRIORITY] = ("Number", str(priority))
    if not known or any(name in ("All", ".*", "*") for name in names):
        return known
    exact = set(names)
    prefixes = tuple(name[:-2] for name in names if name.endswith(".*"))
    return {n: t for n, t in known.items() if n in exact or (prefixes and n.startswith(prefixes))}


def as_value(typed: Typed) -> MessageAttributeValue:
    kind, value = typed
    if isinstance(value, str):
        return MessageAttributeValue(string_value=value, data_type=kind)
    return MessageAttributeValue(binary_value=value, data_type=kind)


def size_of(attributes: dict[str, Typed]) -> int:
    """What attributes count towards the size of a message: names, types and values."""
    size = 0
    for name, (kind, value) in attributes.items():
        size += len(name.encode()) + len(kind.encode())
        size += len(value.encode()) if isinstance(value, str) else len(value)
    return size


def _typed(name: str, value: MessageAttributeValue) -> Typed:
    if not _NAME.fullmatch(name) or ".." in name:
        raise invalid(
            f"The message attribute name '{name:.256}' is invalid. It can contain A-Z, a-z, 0-9, "
            "underscore, hyphen and period, must not begin with AWS. or Amazon., nor begin or end "
            "with a period, and has at most 256 characters."
        )
    if value.string_list_values or value.binary_list_values:
        raise SqsError(
            "UnsupportedOperation",
            "Message attribute list values in SendMessage operation are not supported.",
        )
    kind = value.data_type
    if not kind:
        raise invalid(
            f"The message attribute '{name}' must contain non-empty message attribute type."
        )
    found = _TYPE.fullmatch(kind)
    if found is None or len(kind) > _TYPE_CHARS_MAX:
        raise invalid(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the "
            "following supported type prefixes: Binary, Number, String."
        )
    base = found[1]
    plain = value.binary_value if base == "Binary" else value.string_value
    if not plain:
        raise invalid(
            f"Message (user) attribute '{name}' must contain a non-empty value of type '{base}'."
        )
    if isinstance(plain, str):
        if _FORBIDDEN.search(plain):
            raise invalid(
                f"Invalid binary character was found in the message attribute '{name}', the set "
                "of allowed characters is #x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | "
                "[#x10000-#x10FFFF]"
            )
        if base == "Number" and not _NUMBER.fullmatch(plain):
            raise invalid(f"Can't cast the value of message (user) attribute '{name}' to a number.")
    return kind, plain
