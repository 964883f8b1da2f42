"""The form has every setting of the declaration, and gives back only what was changed."""

from __future__ import annotations

from msgspec import UNSET

from nexo.doors.console.settings_form import (
    given_queue_settings,
    given_topic_settings,
    queue_fields,
    topic_fields,
)
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
    assert (shown["delay"].value, shown["delay"].unit) == ("1.5", "s")
    assert (shown["backoff_initial"].value, shown["tags"].value) == ("0.25", "team=shop")
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
