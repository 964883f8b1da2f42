"""Each setting is allowed at the ends of its range and refused just outside it."""

from typing import Any

import pytest

from nexo.vocabulary import limits
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.settings import (
    Backoff,
    QueueSettings,
    TopicSettings,
    check_filter,
    check_queue_settings,
    check_topic_settings,
)

DAY_MS = 24 * 3_600_000
LONG = limits.RETENTION_MS_MAX  # so that no delay contradicts the retention

QUEUE_RANGES: dict[str, tuple[float, float]] = {
    "visibility_timeout_ms": (0, 30 * DAY_MS),
    "retransmit_timeout_ms": (1, 30 * DAY_MS),
    "max_attempts": (1, 1_000_000),
    "delay_ms": (0, 10 * 365 * DAY_MS),
    "retention_ms": (1_000, 20 * 365 * DAY_MS),
    "deduplication_window_ms": (1, 20 * 365 * DAY_MS),
    "max_receive_rate": (0.001, 10**9),
    "max_message_bytes": (1, 16 * 1024 * 1024),
    "max_depth": (1, 10**12),
    "archive_retention_ms": (1_000, 20 * 365 * DAY_MS),
    "receive_wait_ms": (0, 20_000),
    "deduplication_scope_since_ms": (0, 2**53),
}
BACKOFF_RANGES: dict[str, tuple[float, float]] = {
    "initial_ms": (0, 30 * DAY_MS),
    "factor": (1, 1_000),
    "max_ms": (0, 30 * DAY_MS),
    "jitter": (0, 1),
}
TOPIC_RANGES: dict[str, tuple[float, float]] = {
    "retention_messages": (1, 10**12),
    "retention_ms": (1_000, 20 * 365 * DAY_MS),
    "retention_bytes": (1, 2**60),
    "max_message_bytes": (1, 16 * 1024 * 1024),
}


def just_outside(bounds: tuple[float, float], name: str) -> tuple[float, float]:
    step = 0.0001 if name in ("max_receive_rate", "factor", "jitter") else 1
    return bounds[0] - step, bounds[1] + step


def one(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def queue_with(**settings: Any) -> None:
    check_queue_settings("orders", QueueSettings(**{"retention_ms": LONG, **settings}))


@pytest.mark.parametrize("name", QUEUE_RANGES)
def test_queue_setting_has_a_range(name: str) -> None:
    for value in QUEUE_RANGES[name]:
        queue_with(**one(name, value))
    for value in just_outside(QUEUE_RANGES[name], name):
        with pytest.raises(InvalidArgument, match=name.removesuffix("_ms")):
            queue_with(**one(name, value))


@pytest.mark.parametrize("name", BACKOFF_RANGES)
def test_backoff_has_a_range(name: str) -> None:
    for value in BACKOFF_RANGES[name]:
        queue_with(backoff=Backoff(**one(name, value)))
    for value in just_outside(BACKOFF_RANGES[name], name):
        with pytest.raises(InvalidArgument, match=name.removesuffix("_ms")):
            queue_with(backoff=Backoff(**one(name, value)))


@pytest.mark.parametrize("name", TOPIC_RANGES)
def test_topic_setting_has_a_range(name: str) -> None:
    for value in TOPIC_RANGES[name]:
        check_topic_settings(TopicSettings(**one(name, value)))
    for value in just_outside(TOPIC_RANGES[name], name):
        with pytest.raises(InvalidArgument, match=name.removesuffix("_ms")):
            check_topic_settings(TopicSettings(**one(name, value)))


def test_every_number_of_a_queue_has_a_range() -> None:
    words = {"dead_letter", "deduplication", "backoff", "fifo", "archive", "events"}
    words |= {"deduplication_scope", "tags", "aws"}
    assert set(QueueSettings.__struct_fields__) - words == set(QUEUE_RANGES)
    assert set(Backoff.__struct_fields__) == set(BACKOFF_RANGES)
    assert set(TopicSettings.__struct_fields__) - words == set(TOPIC_RANGES)


def test_defaults_are_those_of_the_documentation() -> None:
    settings = QueueSettings()
    check_queue_settings("orders", settings)
    assert settings.visibility_timeout_ms == 30_000
    assert settings.retransmit_timeout_ms == 10_000
    assert settings.max_attempts == 5
    assert settings.dead_letter == "{name}_dlq"
    assert settings.retention_ms == 4 * DAY_MS
    assert (settings.deduplication, settings.deduplication_window_ms) == ("off", 300_000)
    assert settings.max_message_bytes == 1024 * 1024
    assert settings.archive_retention_ms == 7 * DAY_MS


@pytest.mark.parametrize("value", [True, "5", float("nan")])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="max_attempts"):
        queue_with(max_attempts=value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delay_ms": 5_000, "retention_ms": 5_000}, "delay"),
        ({"backoff": Backoff(max_ms=5_000), "retention_ms": 5_000}, "backoff"),
        ({"dead_letter": "orders"}, "its own dead-letter queue"),
        ({"dead_letter": "no such name"}, "not a queue name"),
        ({"deduplication": "sometimes"}, "off, id or content"),
        ({"deduplication_scope": "universe"}, "queue or group"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        queue_with(**settings)


TEXTS: list[tuple[str, dict[str, str], dict[str, str]]] = [  # what still fits, and what does not
    (
        "tags",
        {f"k{number}": "v" for number in range(limits.TAGS_MAX)},
        {f"k{number}": "v" for number in range(limits.TAGS_MAX + 1)},
    ),
    ("tags", {"k" * limits.TAG_KEY_CHARS_MAX: ""}, {"k" * (limits.TAG_KEY_CHARS_MAX + 1): ""}),
    ("tags", {"k": ""}, {"": "v"}),
    (
        "tags",
        {"k": "v" * limits.TAG_VALUE_CHARS_MAX},
        {"k": "v" * (limits.TAG_VALUE_CHARS_MAX + 1)},
    ),
    (
        "aws",
        {f"k{number}": "v" for number in range(limits.AWS_SETTINGS_MAX)},
        {f"k{number}": "v" for number in range(limits.AWS_SETTINGS_MAX + 1)},
    ),
    (
        "aws",
        {"Policy": "p" * (limits.AWS_SETTINGS_BYTES_MAX - 6)},
        {"Policy": "p" * (limits.AWS_SETTINGS_BYTES_MAX - 5)},
    ),
    ("aws", {}, {"Policy": "é" * (limits.AWS_SETTINGS_BYTES_MAX // 2)}),
    ("aws", {}, {"P" * limits.AWS_SETTINGS_BYTES_MAX: "x"}),
]


@pytest.mark.parametrize(("name", "fits", "refused"), TEXTS)
def test_texts_that_a_queue_keeps_are_bounded(
    name: str, fits: dict[str, str], refused: dict[str, str]
) -> None:
    queue_with(**{name: fits})
    with pytest.raises(InvalidArgument) as caught:
        queue_with(**{name: refused})
    assert len(caught.value.message) < 200


def test_a_filter_is_bounded() -> None:
    most, chars = limits.FILTER_ATTRIBUTES_MAX, limits.FILTER_CHARS_MAX
    for fits in (None, {}, {"k" * chars: "v" * chars}, {str(n): "" for n in range(most)}):
        check_filter(fits)
    for refused in ({"k" * (chars + 1): ""}, {"k": "v" * (chars + 1)}):
        with pytest.raises(InvalidArgument, match=f"{chars} characters"):
            check_filter(refused)
    with pytest.raises(InvalidArgument, match=f"at most {most}"):
        check_filter({str(n): "" for n in range(most + 1)})
