"""A body for people: as JSON if it is, as text if it can be, else as hex."""

from __future__ import annotations

from typing import Literal

import msgspec

from nexo.doors.console.wording import visible
from nexo.engine.looking import HEAD_BYTES

BODY_SHOWN_BYTES = 64 * 1024  # the rest is for the download
HEX_SHOWN_BYTES = 4 * 1024
PREVIEW_CHARS = 120
_UTF8_TAIL_BYTES = 3  # of a character that was cut in two
_HEX_ROW = 16

View = Literal["json", "text", "hex"]
VIEWS: tuple[View, ...] = ("json", "text", "hex")


class ShownBody(msgspec.Struct, frozen=True):
    """`views` are the ways in which it can be shown; `cut` is how many bytes are left out."""

    view: View
    views: tuple[View, ...]
    text: str
    size: int
    cut: int


def shown_body(body: bytes, wanted: str = "") -> ShownBody:
    head = body[:BODY_SHOWN_BYTES]
    pretty = _pretty(body) if len(body) <= BODY_SHOWN_BYTES else None
    text = _text(head, is_cut=len(head) < len(body))
    found = {"json": pretty, "text": text}
    views = tuple(each for each in VIEWS if each == "hex" or found[each] is not None)
    view = next((each for each in views if each == wanted), views[0])
    shown = found.get(view)
    if shown is None:
        head = body[:HEX_SHOWN_BYTES]
        return ShownBody("hex", views, hex_rows(head), len(body), len(body) - len(head))
    return ShownBody(view, views, visible(shown), len(body), len(body) - len(head))


def preview(body: bytes, size: int | None = None) -> str:
    """The beginning of a body in one line; with its size, if this is not all of it."""
    head = body[:HEAD_BYTES]
    is_head = len(head) < (len(body) if size is None else size)
    text = _text(head, is_cut=is_head)
    line = head[:32].hex(" ") if text is None else visible(" ".join(text.split()))
    is_cut = len(line) > PREVIEW_CHARS or is_head
    return line[:PREVIEW_CHARS] + ("…" if is_cut else "")


def hex_rows(body: bytes) -> str:
    rows = []
    for start in range(0, len(body), _HEX_ROW):
        row = body[start : start + _HEX_ROW]
        letters = "".join(chr(each) if 32 <= each < 127 else "·" for each in row)
        rows.append(f"{start:08x}  {row.hex(' '):<{_HEX_ROW * 3 - 1}}  {letters}")
    return "\n".join(rows)


def _pretty(body: bytes) -> str | None:
    """Laid out anew without being read as values: numbers stay as they were written."""
    if not body.lstrip().startswith((b"{", b"[")):
        return None
    try:
        body.decode()  # the layout does not look as closely
        msgspec.json.decode(body, type=msgspec.Raw)
        return msgspec.json.format(body, indent=2).decode()
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None


def _text(head: bytes, is_cut: bool) -> str | None:
    for tail in range(_UTF8_TAIL_BYTES + 1 if is_cut else 1):
        try:
            text = head[: len(head) - tail].decode()
        except UnicodeDecodeError:
            continue
        return None if "\x00" in text else text
    return None
