"""The form has every setting of the declaration, and gives back only what was changed."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from nexo.doors.console.settings_form import (
    given_queue_settings,
    given_topic_settings,
    queue_fields,
    topic_fields,
)
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.settings import (
    FLAT_QUEUE_SETTINGS,
    TOPIC_SETTINGS,
    Backoff,
    QueueSettings,
    TopicSettings,
)
from nexo.vocabulary.user_settings import GivenBackoff, GivenQueueSettings, GivenTopicSettings

NOW = QueueSettings(delay_ms=1_500, backoff=Backoff(initial_ms=250), tags={"team": "shop"})


def test_every_setting_has_a_field() -> None:
    shown = {each.name: each for each in queue_fields(NOW, {})}
    wanted = {each.name for each in FLAT_QUEUE_SETTINGS} - {"fifo", "aws"}
    assert shown.keys() == wanted
    assert [each.name for each in topic_fields(TopicSettings(), {})] == [
        each.name for each in TOPIC_SETTINGS
    ]
    assert (shown["delay"].value, shown["delay"].unit) == ("1.5s", "")
    assert (shown["backoff_initial"].value, shown["tags"].value) == ("250ms", "team=shop")
    assert (shown["retention"].value, shown["max_message_bytes"].value) == ("4d", "1 MB")
    assert (shown["events"].value, shown["events"].choices) == ("on", ("on", "off"))
    assert shown["deduplication"].choices == ("off", "id", "content")
    assert shown["max_depth"].about.endswith("; empty: no limit")


def test_a_form_that_changes_nothing_gives_nothing() -> None:
    fields = queue_fields(NOW, {})
    form = {each.name: [each.value] for each in fields}
    form |= {f"was_{each.name}": [each.was] for each in fields}
    assert given_queue_settings(form, NOW) == GivenQueueSettings()


def test_what_is_changed_is_given_in_its_own_type() -> None:
    form = {
        "max_attempts": [""],
        "was_max_attempts": ["5"],
        "max_depth": ["7"],
        "archive": ["on"],
        "was_archive": ["off"],
        "deduplication_scope": ["group"],
        "backoff_max": ["9"],
    }
    given = given_queue_settings(form, NOW)
    assert (given.max_attempts, given.max_depth, given.archive) == (None, 7, True)
    assert (given.deduplication_scope, given.delay) == ("group", UNSET)
    assert given.backoff == GivenBackoff(initial=0.25, factor=2.0, max=9, jitter=0.0)


def test_a_topic_gets_what_was_written() -> None:
    form = {"retention_seconds": ["1.5"], "retention_bytes": ["4096"]}
    given = GivenTopicSettings(retention_seconds=1.5, retention_bytes=4_096)
    assert given_topic_settings(form) == given


def test_durations_and_sizes_are_written_as_people_do() -> None:
    form = {"retention": ["2d"], "max_message_bytes": ["64 KB"], "delay": ["250ms"]}
    given = given_queue_settings(form, NOW)
    assert (given.retention, given.max_message_bytes, given.delay) == (172_800, 65_536, 0.25)


def test_what_is_shown_can_be_read_again() -> None:
    odd = QueueSettings(retention_ms=345_600_125, max_message_bytes=70_001, delay_ms=1)
    for each in queue_fields(odd, {}):
        given = given_queue_settings({each.name: [each.value], f"was_{each.name}": [""]}, odd)
        if each.name in ("retention", "max_message_bytes", "delay"):
            told = {"retention": 345_600.125, "max_message_bytes": 70_001, "delay": 0.001}
            assert getattr(given, each.name) == told[each.name]


def test_every_wrong_field_is_told_of() -> None:
    form = {"retention": ["soon"], "max_depth": ["many"], "max_message_bytes": ["big"]}
    with pytest.raises(InvalidArgument) as refused:
        given_queue_settings(form, NOW)
    for name in form:
        assert name in refused.value.message
    with pytest.raises(InvalidArgument) as refused:
        given_queue_settings({"max_attempts": ["0"], "max_depth": ["0"]}, NOW)
    assert "max_attempts" in refused.value.message
    assert "max_depth" in refused.value.message


def test_what_cannot_be_read_hides_nothing_that_is_out_of_range() -> None:
    form = {"retention": ["soon"], "visibility_timeout": ["40d"], "max_message_bytes": ["64 MB"]}
    form |= {"backoff_jitter": ["7"], "max_attempts": ["0"]}
    with pytest.raises(InvalidArgument) as refused:
        given_queue_settings(form, NOW)
    told = refused.value.message
    for name in form:
        assert f"{name}: " in told
    assert "visibility_timeout: 40d is out of range, allowed is 0s to 30d" in told
    assert "max_message_bytes: 64 MB is out of range, allowed is 1 B to 16 MB" in told
