"""Topics that recognise duplicates, and remember them through restarts."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from nexo.machine import topic as rules
from nexo.machine.apply import apply_to_topic
from nexo.machine.image import image_of_topic, revive_topic
from nexo.machine.snapshot import TopicSnapshot, read_topic_snapshot
from nexo.vocabulary.batch import Batch, batch_of
from nexo.vocabulary.changes import decode_topic_changes, encode_changes
from nexo.vocabulary.errors import RateLimited
from nexo.vocabulary.limits import TOPIC_DEDUPLICATION_MS
from nexo.vocabulary.settings import TopicSettings

NOW = 1_000_000
BY_ID = TopicSettings(deduplication="id")


def new(settings: TopicSettings = BY_ID) -> rules.Topic:
    return rules.Topic("news", settings, count(1))


def batch(*keys: str | None, group: str | None = None) -> Batch:
    made = batch_of([f"body {number}".encode() for number, _ in enumerate(keys)])
    return msgspec.structs.replace(made, deduplication_ids=list(keys), groups=group)


def commit(topic: rules.Topic) -> bytes:
    """What the journal gets."""
    rules.flush_topic(topic)
    collected = rules.collect_topic(topic)
    rules.settle_topic(topic, collected.end)
    return encode_changes(collected.changes)


def test_a_repeated_id_has_the_offset_of_the_first() -> None:
    topic = new()
    assert rules.publish(topic, batch("a"), NOW) == (0, 1)
    assert rules.publish(topic, batch("b"), NOW) == (1, 2)
    assert rules.publish(topic, batch("a"), NOW + 1) == (0, 1)
    assert rules.publish(topic, batch("b", "a"), NOW + 1) == (1, 2)
    assert topic.log.end == 2


def test_of_a_batch_only_what_is_new_is_added() -> None:
    topic = new()
    rules.publish(topic, batch("a"), NOW)
    assert rules.publish(topic, batch("a", "b", None, "b", "c"), NOW) == (1, 4)
    assert rules.publish(topic, batch("c"), NOW) == (3, 4)


def test_the_window_counts_from_the_first() -> None:
    topic = new()
    rules.publish(topic, batch("a"), NOW)
    assert rules.publish(topic, batch("a"), NOW + TOPIC_DEDUPLICATION_MS - 1) == (0, 1)
    assert rules.publish(topic, batch("a"), NOW + TOPIC_DEDUPLICATION_MS) == (1, 2)


def test_by_content_an_id_counts_before_the_body() -> None:
    topic = new(TopicSettings(deduplication="content"))
    assert rules.publish(topic, batch_of([b"x"]), NOW) == (0, 1)
    assert rules.publish(topic, batch_of([b"x"]), NOW) == (0, 1)
    keyed = msgspec.structs.replace(batch_of([b"x"]), deduplication_ids=["k"])
    assert rules.publish(topic, keyed, NOW) == (1, 2)


def test_without_the_setting_nothing_is_recognised() -> None:
    topic = new(TopicSettings())
    rules.publish(topic, batch("a"), NOW)
    assert rules.publish(topic, batch("a"), NOW) == (1, 2)
    assert topic.recent is None


def test_inside_of_groups() -> None:
    topic = new(TopicSettings(deduplication="id", deduplication_scope="group"))
    assert rules.publish(topic, batch("a", group="g"), NOW) == (0, 1)
    assert rules.publish(topic, batch("a", group="h"), NOW) == (1, 2)
    assert rules.publish(topic, batch("a", group="g"), NOW) == (0, 1)


def test_a_producer_gets_its_answer_again() -> None:
    topic = new()
    rules.publish(topic, batch("a"), NOW)
    assert rules.publish(topic, batch("a"), NOW, "p", 1) == (0, 1)
    assert rules.publish(topic, batch("z"), NOW, "p", 1) == (0, 1)


def test_what_the_journal_has_remembers_too() -> None:
    topic = new()
    records = []
    for keys in (("a",), ("b", "a"), ("c", None)):
        rules.publish(topic, batch(*keys), NOW)
        records.append(commit(topic))
    again = new()
    apply_to_topic(again, map(decode_topic_changes, records))
    assert image_of_topic(again).recent == image_of_topic(topic).recent
    assert rules.publish(again, batch("b"), NOW) == (1, 2)


@pytest.mark.parametrize("step", [1, 3, 1_000])
def test_a_snapshot_remembers_what_comes_while_it_is_made(step: int) -> None:
    topic = new()
    for number in range(10):
        rules.publish(topic, batch(f"k{number}"), NOW + number * 1_000)
    commit(topic)
    snapshot = TopicSnapshot(topic)
    late = 0
    while not snapshot.is_done:
        if late < 5:
            rules.publish(topic, batch(f"late {late}"), NOW + 20_000)
            late += 1
        changes = decode_topic_changes(commit(topic))
        snapshot.note(changes)
        snapshot.step(step)
    assert topic.recent is not None
    again = new()
    revive_topic(again, read_topic_snapshot(bytes(snapshot.encoded)))
    assert again.recent is not None
    assert again.recent.entries() == topic.recent.entries()
    assert len(again.recent) == 10 + late


def test_keys_that_are_over_are_dropped_without_another_publish() -> None:
    topic = new()
    rules.publish(topic, batch("a", "b"), NOW)
    commit(topic)
    rules.trim(topic, NOW + TOPIC_DEDUPLICATION_MS + 1_000)
    assert topic.recent is not None
    assert len(topic.recent) == 0


def test_no_more_keys_than_memory_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexo.vocabulary.limits.DEDUPLICATION_KEYS_MAX", 2)
    topic = new()
    rules.publish(topic, batch("a"), NOW)
    with pytest.raises(RateLimited, match="'news' remembers 1"):
        rules.publish(topic, batch("b", "c"), NOW)
    assert topic.log.end == 1
    assert rules.publish(topic, batch("a"), NOW) == (0, 1)
