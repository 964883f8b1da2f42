"""Settings in documents: the same words, values and ranges as everywhere else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from nexo.vocabulary import given, settings, spoken
from nexo.vocabulary.errors import InvalidArgument
from tests.unit.vocabulary.test_settings import BACKOFF_RANGES, QUEUE_RANGES, TOPIC_RANGES

PAIRS = [
    (given.GivenQueueSettings, spoken.QueueSettings),
    (given.GivenTopicSettings, spoken.TopicSettings),
    (given.GivenBackoff, spoken.Backoff),
]
RANGES = [
    (given.GivenQueueSettings, QUEUE_RANGES),
    (given.GivenTopicSettings, TOPIC_RANGES),
    (given.GivenBackoff, BACKOFF_RANGES),
]


@pytest.mark.parametrize(("some", "whole"), PAIRS)
def test_every_setting_can_be_given(some: type[Any], whole: type[Any]) -> None:
    assert some.__struct_fields__ == whole.__struct_fields__
    assert all(field.default is UNSET for field in msgspec.structs.fields(some))


@pytest.mark.parametrize(("kind", "ranges"), RANGES)
def test_the_ranges_are_those_of_the_broker(
    kind: type[Any], ranges: dict[str, tuple[float, float]]
) -> None:
    schema = msgspec.json.schema_components([kind])[1][kind.__name__]["properties"]
    bounded = {}
    for word, told in schema.items():
        for each in told.get("anyOf", [told]):
            if "minimum" in each:
                bounded[word] = (each["minimum"], each["maximum"])
    expected = {}
    for field, (low, high) in ranges.items():
        word = "retention_seconds" if (kind is given.GivenTopicSettings) else ""
        word = word if field == "retention_ms" and word else field.removesuffix("_ms")
        scale = 1000 if field.endswith("_ms") else 1
        expected[word] = (low / scale, high / scale)
    expected.pop("deduplication_scope_since", None)  # the broker's own
    assert bounded == expected


def test_what_is_not_given_stays() -> None:
    now = settings.QueueSettings(max_attempts=9, deduplication_scope_since_ms=5)
    some = msgspec.json.decode(
        b'{"visibility_timeout": 0.25, "max_depth": null}', type=given.GivenQueueSettings
    )
    after = given.queue_settings_of(some, now)
    assert after == msgspec.structs.replace(now, visibility_timeout_ms=250)


def test_all_settings_there_and_back() -> None:
    now = settings.QueueSettings(
        visibility_timeout_ms=1, backoff=settings.Backoff(initial_ms=5), tags={"a": "b"}
    )
    told = json.loads(msgspec.json.encode(given.given_queue_settings(now)))
    again = given.queue_settings_of(msgspec.convert(told, given.GivenQueueSettings))
    assert again == now


def test_topics_there_and_back() -> None:
    now = settings.TopicSettings(retention_ms=1_500, retention_bytes=7)
    told = json.loads(msgspec.json.encode(given.given_topic_settings(now)))
    assert told["retention_seconds"] == 1.5
    assert given.topic_settings_of(msgspec.convert(told, given.GivenTopicSettings)) == now


def test_what_no_type_sees_is_refused_all_the_same() -> None:
    with pytest.raises(InvalidArgument):
        given.queue_settings_of(given.GivenQueueSettings(max_attempts="many"))  # type: ignore[arg-type]
