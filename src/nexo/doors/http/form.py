"""Forms and query strings: `a=1&b=two%20words`, read in one pass and little memory.

The reader of the standard library makes an object of every `%41`: a form of 8 MB takes a second and
800 MB. Here the number of fields is counted first, and each field is decoded as a whole.
"""

from __future__ import annotations

from binascii import a2b_qp
from typing import NamedTuple

from nexo.vocabulary.errors import InvalidArgument

# Percent-encoding is quoted-printable with another sign, for which there is a decoder in C.
_AS_QUOTED = bytes.maketrans(b"%+", b"= ")
_PLUS = bytes.maketrans(b"+", b" ")
_NAME_CHARS_SHOWN = 60


class Field(NamedTuple):
    """A field as it was sent, still encoded."""

    name: bytes
    value: bytes


def fields_of(text: bytes, fields_max: int) -> list[Field]:
    """The fields in their order, not decoded yet: that costs next to nothing."""
    if not text:
        return []
    count = text.count(b"&") + 1
    if count > fields_max:
        raise InvalidArgument(f"a form has at most {fields_max:,} fields, not {count:,}")
    parted = (each.partition(b"=") for each in text.split(b"&") if each)
    return [Field(name, value) for name, _, value in parted]


def read_form(text: bytes, fields_max: int) -> list[tuple[str, str]]:
    """The fields in their order, as texts."""
    return [(decoded(each.name), decoded(each.value)) for each in fields_of(text, fields_max)]


def decoded(text: bytes) -> str:
    """What an encoded name or value says. Refuses a `%` without two hexadecimal digits, as AWS
    does, and what is not UTF-8."""
    plain = text.translate(_PLUS) if b"%" not in text else _unquoted(text)
    try:
        return plain.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"{_shown(text)} is not UTF-8", "encode it as UTF-8") from None


def _unquoted(text: bytes) -> bytes:
    text = text.replace(b"=", b"%3D")  # it would mean something else below
    # A line break behind the sign would be swallowed; all else that is wrong shows in the length,
    # because only a right escape becomes shorter by two.
    is_odd = b"%\n" in text or b"%\r" in text
    plain = a2b_qp(text.translate(_AS_QUOTED))
    if is_odd or len(plain) != len(text) - 2 * text.count(b"%"):
        raise InvalidArgument(
            f"{_shown(text)} has a % without two hexadecimal digits", "write % as %25"
        )
    return plain


def _shown(text: bytes) -> str:
    return repr(text[:_NAME_CHARS_SHOWN].decode("latin-1"))
