"""Bodies, numbers and samples as the pages show them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexo.doors.console.formatting import number, rate, size, span, visible
from nexo.doors.console.history import Points
from nexo.doors.console.message import preview, shown_body
from nexo.vocabulary.limits import (
    CONSOLE_BODY_SHOWN_BYTES,
    CONSOLE_HEX_SHOWN_BYTES,
    CONSOLE_POINTS_MAX,
    CONSOLE_POINTS_SHOWN,
    CONSOLE_PREVIEW_CHARS,
)
from tests.console.looking import LINES_BYTES_MAX


@given(st.binary(max_size=300), st.sampled_from(["", "json", "text", "hex", "other"]))
def test_any_body_can_be_shown(body: bytes, wanted: str) -> None:
    shown = shown_body(body, wanted)
    assert shown.view in shown.views
    assert shown.views[-1] == "hex"
    assert shown.view == wanted or wanted not in shown.views
    assert (shown.size, shown.cut) == (len(body), 0)
    assert visible(shown.text) == shown.text
    assert len(preview(body)) <= CONSOLE_PREVIEW_CHARS + 1


def test_json_is_laid_out_and_not_read() -> None:
    shown = shown_body(b'{"b":1.0,"a":12345678901234567890123,"b":2e400}')
    assert shown.view == "json"
    assert shown.text == '{\n  "b": 1.0,\n  "a": 12345678901234567890123,\n  "b": 2e400\n}'


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b'{"a":}', b"12", b'"text"', b"{\xff}"])
def test_what_is_no_json_document_is_text_or_hex(body: bytes) -> None:
    assert "json" not in shown_body(body).views


def test_long_bodies_are_cut_at_a_whole_character() -> None:
    shown = shown_body("é".encode() * CONSOLE_BODY_SHOWN_BYTES)
    assert shown.view == "text"
    assert shown.cut == CONSOLE_BODY_SHOWN_BYTES
    odd = shown_body(b"x" + "é".encode() * CONSOLE_BODY_SHOWN_BYTES)
    assert odd.text.endswith("é")
    assert shown_body(b"\xff" * 10_000).cut == 10_000 - CONSOLE_HEX_SHOWN_BYTES


def test_what_acts_is_written_out() -> None:
    assert visible("a\u202eb\x00\u200b\u2028\ufeff") == (
        "a⟨U+202E⟩b⟨U+0000⟩⟨U+200B⟩⟨U+2028⟩⟨U+FEFF⟩"
    )
    assert visible("tabs\tand\nlines, שלום, é, 日本") == "tabs\tand\nlines, שלום, é, 日本"


def test_numbers_for_people() -> None:
    assert [number(each) for each in (0, 999, 1_234_567)] == ["0", "999", "1,234,567"]
    assert [rate(each) for each in (0, 0.25, 9.96, 1_500)] == ["0", "0.2", "10.0", "1,500"]
    assert [size(each) for each in (0, 999, 1_536, 2**31)] == ["0 B", "999 B", "1.5 KB", "2 GB"]
    shown = [span(each) for each in (0, 250, 1_500, 45_000, 90_000, 5_400_000, 200_000_000)]
    assert shown == ["0s", "250ms", "1.5s", "45s", "1.5m", "1.5h", "2.3d"]


def test_lines_are_bounded() -> None:
    points = Points(2)
    for at in range(CONSOLE_POINTS_MAX + 1_000):
        points.add(at, at * 2)
    times, values = points.columns()
    assert CONSOLE_POINTS_SHOWN * 0.8 < len(times) <= CONSOLE_POINTS_SHOWN
    assert times[0] <= 1_000 + 100
    assert (times[-1], values[-1]) == (CONSOLE_POINTS_MAX + 999, 2 * (CONSOLE_POINTS_MAX + 999))
    assert points.last == [times[-1], values[-1]]
    assert all(isinstance(each, int) for each in times), "a whole number is written short"


def test_the_longest_lines_fit_into_a_page() -> None:
    """Eight of them are on the overview; with all else a page has 250 KB."""
    points = Points(8)
    for at in range(CONSOLE_POINTS_MAX + 99):
        points.add(1.8e9 + at * 0.8, 12_345.678, 12_345.678, 1e7, 1_234.567, 1e4, 1e6, 1e12 + at)
    assert len(msgspec.json.encode(points.columns())) < LINES_BYTES_MAX
