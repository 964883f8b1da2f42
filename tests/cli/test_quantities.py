"""Durations and sizes, as people write them."""

import pytest
import typer

from nexo.cli.durations import parse_duration, show_duration
from nexo.server.sizes import parse_size, show_size
from nexo.vocabulary.errors import InvalidArgument


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
    with pytest.raises(typer.BadParameter, match="250ms"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.25, "250ms"), (45, "45s"), (1.25, "1.2s"), (300, "5m"), (345_600, "4d")],
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
    ("size", "text"), [(0, "0 B"), (1_536, "1.5 KB"), (536_870_912, "512 MB"), (2**41, "2.0 TB")]
)
def test_sizes_shown(size, text):
    assert show_size(size) == text
