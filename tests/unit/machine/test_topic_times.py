"""Where a topic begins at a time, also in an archive, whose times may go back."""

from __future__ import annotations

from array import array
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from nexo.machine import log
from nexo.machine import topic as rules
from nexo.machine.log import Place
from nexo.machine.topic import Topic
from nexo.vocabulary.batch import TIME_TYPE, Batch, batch_of
from nexo.vocabulary.settings import TopicSettings

if TYPE_CHECKING:
    import pytest


def pushed(*times: int) -> Batch:
    """Messages of a queue, which keep the times of their push."""
    batch = batch_of([b"x"] * len(times))
    return msgspec.structs.replace(batch, created=array(TIME_TYPE, times))


def test_a_chunk_whose_messages_all_came_before_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its last time is that of the chunk before it, which retention has taken since."""
    monkeypatch.setattr(log, "CHUNK_BYTES_MAX", 1)
    topic = Topic("t", TopicSettings(retention_bytes=4), count(1))
    for row, times in enumerate([(1_000,), (998,), (999, 1_000)], 1):
        rules.archive(topic, pushed(*times), Place(row), 1_000)
    rules.settle_topic(topic, rules.collect_topic(topic).end)
    rules.archive(topic, pushed(1_000), Place(4), 1_000)
    rules.trim(topic, 1_000)
    assert topic.start == 1
    assert [rules.offset_at(topic, time) for time in (998, 999, 1_000, 1_001)] == [1, 2, 3, 5]
