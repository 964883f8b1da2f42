"""Settings as users see them: made from the declaration, with the same values everywhere."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from nexo.vocabulary import fields, settings
from nexo.vocabulary import user_settings as users
from nexo.vocabulary.definitions import QueueDefinition
from nexo.vocabulary.errors import InvalidArgument
from scripts import user_settings as generator
from tests.unit.vocabulary.test_settings import BACKOFF_RANGES, QUEUE_RANGES, TOPIC_RANGES

PAIRS = [
    (users.GivenQueueSettings, users.QueueSettings),
    (users.GivenTopicSettings, users.TopicSettings),
    (users.GivenBackoff, users.Backoff),
]
ALL = [*settings.FLAT_QUEUE_SETTINGS, *settings.TOPIC_SETTINGS]
RANGES = [
    (users.GivenQueueSettings, QUEUE_RANGES),
    (users.GivenTopicSettings, TOPIC_RANGES),
    (users.GivenBackoff, BACKOFF_RANGES),
]


def test_the_module_is_what_the_declaration_gives() -> None:
    written = (generator.ROOT / generator.PAGE).read_text(encoding="utf-8")
    assert written == generator.user_settings(), "run: python -m scripts.user_settings"


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_every_setting_says_what_it_does(setting: settings.Setting) -> None:
    """In half a line that goes on from a label: no capital, no full stop, no other's name."""
    assert 15 < len(setting.about) < 80
    assert setting.about[0].islower() or setting.about.startswith(("SNS", "SQS"))
    assert not setting.about.endswith(".")


def test_defaults_are_the_same_in_either_unit() -> None:
    assert settings.user_queue_settings(settings.QueueSettings()) == users.QueueSettings()
    assert settings.user_topic_settings(settings.TopicSettings()) == users.TopicSettings()
    with_backoff = settings.QueueSettings(backoff=settings.Backoff())
    assert settings.user_queue_settings(with_backoff).backoff == users.Backoff()


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_times_alone_are_stored_in_milliseconds(setting: settings.Setting) -> None:
    assert setting.field.endswith("_ms") == (setting.kind == "duration")


def test_a_refused_setting_is_named_with_what_is_allowed() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"settings": {"max_attempts": 0}, "name": "a"}, QueueDefinition)
    refused = fields.refused(caught.value, QueueDefinition)
    assert refused.message == "settings.max_attempts is out of range, allowed is 1 to 1000000"


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
        word = "retention_seconds" if (kind is users.GivenTopicSettings) else ""
        word = word if field == "retention_ms" and word else field.removesuffix("_ms")
        scale = 1000 if field.endswith("_ms") else 1
        expected[word] = (low / scale, high / scale)
    expected.pop("deduplication_scope_since", None)  # the broker's own
    assert bounded == expected


def test_what_is_not_given_stays() -> None:
    now = settings.QueueSettings(max_attempts=9, deduplication_scope_since_ms=5)
    some = msgspec.json.decode(
        b'{"visibility_timeout": 0.25, "max_depth": null}', type=users.GivenQueueSettings
    )
    after = settings.queue_settings_of(some, now)
    assert after == msgspec.structs.replace(now, visibility_timeout_ms=250)


def test_all_settings_there_and_back() -> None:
    now = settings.QueueSettings(
        visibility_timeout_ms=1, backoff=settings.Backoff(initial_ms=5), tags={"a": "b"}
    )
    told = json.loads(msgspec.json.encode(settings.given_queue_settings(now)))
    again = settings.queue_settings_of(msgspec.convert(told, users.GivenQueueSettings))
    assert again == now


def test_topics_there_and_back() -> None:
    now = settings.TopicSettings(retention_ms=1_500, retention_bytes=7)
    told = json.loads(msgspec.json.encode(settings.given_topic_settings(now)))
    assert told["retention_seconds"] == 1.5
    assert settings.topic_settings_of(msgspec.convert(told, users.GivenTopicSettings)) == now


def test_settings_of_one_family_are_shown_together() -> None:
    names = [each.name for each in settings.FLAT_QUEUE_SETTINGS]
    assert len(names) == len(set(names)) == len(settings.QUEUE_SETTINGS) + 3
    for family, size in (("deduplication", 3), ("backoff_", 4), ("archive", 2)):
        first = names.index(next(name for name in names if name.startswith(family)))
        assert all(name.startswith(family) for name in names[first : first + size])


def test_what_differs_is_named_as_users_do() -> None:
    now = settings.QueueSettings()
    wanted = msgspec.structs.replace(now, delay_ms=5, fifo=True, deduplication_scope_since_ms=9)
    assert settings.differing_settings(wanted, now) == ["delay", "fifo"]
    topic = settings.TopicSettings(retention_ms=5_000)
    assert settings.differing_settings(topic, settings.TopicSettings()) == ["retention_seconds"]


def test_what_no_type_sees_is_refused_all_the_same() -> None:
    with pytest.raises(InvalidArgument):
        settings.queue_settings_of(users.GivenQueueSettings(max_attempts="many"))  # type: ignore[arg-type]
