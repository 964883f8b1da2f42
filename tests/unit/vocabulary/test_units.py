"""Sizes, durations and times, as people write them."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.units import (
    Moment,
    parse_duration,
    parse_moment,
    parse_size,
    parse_time,
    show_duration,
    show_size,
)

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45", 45),
        ("0", 0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("250ms", 0.25),
        ("10s", 10),
        (" 2 S ", 2),
        ("5m", 300),
        ("4h", 14_400),
        ("1.5h", 5_400),
        ("30d", 2_592_000),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "10x", "-1", "1h30m", "inf", "nan", "1e9", "s"])
def test_what_is_no_duration(text):
    with pytest.raises(InvalidArgument, match="250ms"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (0.9999, "1s"),
        (1.25, "1.2s"),
        (45, "45s"),
        (59.97, "1m"),
        (300, "5m"),
        (5_400, "1.5h"),
        (86_399.9, "1d"),
        (345_600, "4d"),
    ],
)
def test_durations_shown(seconds, text):
    assert show_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("100", 100),
        ("7b", 7),
        ("64KB", 65_536),
        ("64k", 65_536),
        ("1MiB", 1_048_576),
        ("512mb", 536_870_912),
        ("1.5 GB", 1_610_612_736),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "5QB", "-1", "1e3", "inf"])
def test_what_is_no_size(text):
    with pytest.raises(InvalidArgument, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1_000, "1000 B"),
        (1_536, "1.5 KB"),
        (2**20 - 1, "1 MB"),
        (67_108_864, "64 MB"),
        (2**41, "2 TB"),
        (2**60, "1048576 TB"),
    ],
)
def test_sizes_shown(size, text):
    assert show_size(size) == text


@given(st.integers(0, 2**50))
def test_a_size_that_is_shown_can_be_read(size):
    assert parse_size(show_size(size)) == pytest.approx(size, rel=0.05)


@given(st.floats(0.001, 10**9))
def test_a_duration_that_is_shown_can_be_read(seconds):
    assert parse_duration(show_duration(seconds)) == pytest.approx(seconds, rel=0.05, abs=0.0005)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-05-31", datetime(2026, 5, 31, tzinfo=UTC)),
        ("2026-05-31 14:30", datetime(2026, 5, 31, 14, 30, tzinfo=UTC)),
        ("2026-05-31T14:30:01.5Z", datetime(2026, 5, 31, 14, 30, 1, 500_000, tzinfo=UTC)),
        (" 2026-05-31T14:30+02:00 ", datetime(2026, 5, 31, 12, 30, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_a_time_is_the_same_instant_in_every_zone(monkeypatch, zone, text, at):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert parse_time(text) == at
        assert parse_moment(text, NOW) == Moment(at)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_duration_is_so_long_ago():
    assert parse_moment(" 2h ", NOW) == Moment(NOW - timedelta(hours=2), "2h")


@pytest.mark.parametrize(
    "text", ["", "yesterday", "-5", "1.2.3", "2026-13-01", "99999999999d", "0001-01-01T00:00+01:00"]
)
def test_what_is_no_time(text):
    with pytest.raises(InvalidArgument, match="is not a time"):
        parse_moment(text, NOW)
