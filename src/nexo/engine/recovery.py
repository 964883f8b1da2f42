"""Recovery: from what the journal holds to living queues and topics. No payload is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.engine.recorder import StoredBytes
from nexo.journal.port import CATALOG
from nexo.machine.apply import apply, apply_to_topic
from nexo.machine.catalog import Catalog, CatalogImage, decode_catalog_image, fold_catalog
from nexo.machine.chunk import PackedRows
from nexo.machine.image import revive_topic
from nexo.machine.queue import Queue
from nexo.machine.snapshot import load_snapshot, read_topic_snapshot
from nexo.machine.topic import Topic
from nexo.vocabulary.changes import (
    decode_catalog_changes,
    decode_queue_changes,
    decode_topic_changes,
)
from nexo.vocabulary.errors import DataCorrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.journal.port import Journal, Stored
    from nexo.vocabulary.changes import QueueDefined, TopicDefined


class Recovered(msgspec.Struct, frozen=True):
    catalog: Catalog
    queues: dict[int, Queue]
    topics: dict[int, Topic]
    latest_ms: int  # the latest time that the journal knows of
    held_rows: list[list[int] | PackedRows]  # of every chunk
    stored: dict[int, StoredBytes]  # what it was loaded from, by owner


def recover(journal: Journal, row_numbers: Iterator[int], first_lease: int) -> Recovered:
    """Load everything. Raises `DataCorrupt` if the journal contradicts itself."""
    stored: dict[int, StoredBytes] = {}

    def load(owner: int) -> Stored:
        found = journal.load(owner)
        stored[owner] = StoredBytes(len(found.snapshot or b""), sum(map(len, found.records)))
        return found

    catalog = load_catalog(load(CATALOG))
    queues, topics = {}, {}
    for defined in catalog.queues.values():
        queue = queues[defined.owner] = new_queue(defined, row_numbers, first_lease)
        load_queue(queue, load(defined.owner))
    for topic_defined in catalog.topics.values():
        topic = topics[topic_defined.owner] = new_topic(topic_defined, row_numbers)
        load_topic(topic, load(topic_defined.owner))
    owners: list[Queue | Topic] = [*queues.values(), *topics.values()]
    latest_ms = max((owner.now_ms for owner in owners), default=0)
    held = [rows for owner in owners for rows in rows_of(owner)]
    return Recovered(catalog, queues, topics, latest_ms, held, stored)


def new_queue(defined: QueueDefined, row_numbers: Iterator[int], first_lease: int) -> Queue:
    return Queue(defined.name, defined.settings, defined.incarnation, row_numbers, first_lease)


def new_topic(defined: TopicDefined, row_numbers: Iterator[int]) -> Topic:
    return Topic(defined.name, defined.settings, row_numbers)


def load_catalog(stored: Stored) -> Catalog:
    try:
        image = decode_catalog_image(stored.snapshot) if stored.snapshot else CatalogImage()
        return Catalog(fold_catalog(image, map(decode_catalog_changes, stored.records)))
    except msgspec.DecodeError as error:
        raise _unreadable("the catalog", error) from error


def load_queue(queue: Queue, stored: Stored) -> None:
    """Bring a new queue to the state that the journal holds of it."""
    try:
        if stored.snapshot:
            load_snapshot(queue, stored.snapshot)
        apply(queue, map(decode_queue_changes, stored.records))
    except (msgspec.DecodeError, KeyError) as error:
        raise _unreadable("a queue", error) from error


def load_topic(topic: Topic, stored: Stored) -> None:
    try:
        if stored.snapshot:
            revive_topic(topic, read_topic_snapshot(stored.snapshot))
        apply_to_topic(topic, map(decode_topic_changes, stored.records))
    except (msgspec.DecodeError, KeyError) as error:
        raise _unreadable("a topic", error) from error


def rows_of(owner: Queue | Topic) -> Iterator[list[int] | PackedRows]:
    """The rows that its state refers to, of each chunk."""
    logs = [owner.log] if isinstance(owner, Topic) else [lane.log for lane in owner.lanes]
    return (chunk.rows for log in logs for chunk in log.chunks.values())


def _unreadable(what: str, error: Exception) -> DataCorrupt:
    return DataCorrupt(
        f"the journal's state of {what} cannot be read: {error}",
        "run nexo doctor --data DIR to see what else is wrong, or restore a backup",
    )
