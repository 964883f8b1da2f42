"""The model's push: numbers, delays, duplicates, retries of producers, and what is refused."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.vocabulary import limits
from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge, QueueFull
from nexo.vocabulary.states import State
from tests.property.model.state import LANE, Item

if TYPE_CHECKING:
    from nexo.vocabulary.batch import Batch
    from tests.property.model.state import Model


def push(
    model: Model, batch: Batch, now: int, kept: int, producer: str = "", number: int = 0
) -> tuple[list[int], int]:
    """The numbers of the messages and how many were duplicates. `kept` is how many answers are
    remembered of a producer."""
    now = model.advance(now)
    answers = model.producers.get(producer, {})
    if producer and number in answers:
        return answers[number], batch.count
    if producer and len(answers) >= kept and number < min(answers):
        return [], batch.count
    _check(model, batch)
    keys = [_key(model, batch, index) for index in range(batch.count)]
    fresh = _fresh(model, keys, now)
    most = model.settings.max_depth
    if most is not None and len(model.items) + len(fresh) > most:
        raise QueueFull("full")
    seqs = {index: _add(model, batch, index, now) for index in fresh}
    for index in fresh:
        key = keys[index]
        if key is not None:
            model.keys[key] = (now + model.settings.deduplication_window_ms, seqs[index])
    answer = [
        seqs[index] if index in seqs else model.keys[str(keys[index])][1]
        for index in range(batch.count)
    ]
    if producer:
        answers = model.producers.setdefault(producer, {})
        answers[number] = answer
        if len(answers) > kept:
            del answers[min(answers)]
    return answer, batch.count - len(fresh)


def push_moved(model: Model, batch: Batch, now: int) -> list[int]:
    """From another queue: nothing is refused, a FIFO queue has one priority, and here they come
    now, whatever their former life was."""
    now = model.advance(now)
    batch = msgspec.structs.replace(batch, created=None)
    return [_add(model, batch, index, now) for index in range(batch.count)]


def push_shared(model: Model, batch: Batch, now: int) -> None:
    now = model.advance(now)
    for index in range(batch.count):
        _add(model, batch, index, now)


def value(column: Any, index: int) -> Any:
    return column[index] if isinstance(column, list) else column


def _add(model: Model, batch: Batch, index: int, now: int) -> int:
    priority = batch.priority if isinstance(batch.priority, int) else batch.priority[index]
    priority = 0 if model.settings.fifo else priority
    seq = model.ends.get(priority, priority * LANE)
    model.ends[priority] = seq + 1
    delay = value(batch.delay_ms, index)
    delay = model.settings.delay_ms if delay is None else delay
    model.items[seq] = Item(
        seq=seq,
        body=batch.body(index),
        created=now if batch.created is None else batch.created[index],
        arrived=now,
        group=value(batch.groups, index),
        deduplication_id=value(batch.deduplication_ids, index),
        attributes=value(batch.attributes, index),
        origin=value(batch.origins, index),
        state=State.SCHEDULED if delay else State.READY,
        due=now + delay if delay else 0,
    )
    model.totals["pushed"] += 1
    return seq


def _size(batch: Batch, index: int) -> int:
    """As the sender counts: the body, and the names and values of the attributes."""
    attributes = decode_attributes(value(batch.attributes, index))
    return len(batch.body(index)) + sum(len(n) + len(v) for n, v in attributes.items())


def _key(model: Model, batch: Batch, index: int) -> str | None:
    mode = model.settings.deduplication
    given: str | None = value(batch.deduplication_ids, index)
    if mode == "off":
        return None
    if mode == "id" or given:
        return given
    return sha256(batch.body(index)).hexdigest()


def _fresh(model: Model, keys: list[str | None], now: int) -> list[int]:
    """The indexes of messages that repeat neither an earlier one nor one of their own batch."""
    fresh, seen = [], {key for key, (until, _) in model.keys.items() if until > now}
    for index, key in enumerate(keys):
        if key is None or key not in seen:
            fresh.append(index)
        if key is not None:
            seen.add(key)
    return fresh


def _check(model: Model, batch: Batch) -> None:
    settings = model.settings
    if batch.count < 1:
        raise InvalidArgument("no message")
    if any(_size(batch, index) > settings.max_message_bytes for index in range(batch.count)):
        raise MessageTooLarge("too large")
    priorities = [batch.priority] if isinstance(batch.priority, int) else list(batch.priority)
    if any(not 0 <= priority <= 255 for priority in priorities):
        raise InvalidArgument("priority")
    if settings.fifo and any(priorities):
        raise InvalidArgument("priority in a FIFO queue")
    for index in range(batch.count):
        delay = value(batch.delay_ms, index) or 0
        if not 0 <= delay <= limits.DELAY_MS_MAX or delay >= settings.retention_ms:
            raise InvalidArgument("delay")
        for text in (value(batch.groups, index), value(batch.deduplication_ids, index)):
            if text is not None and not 1 <= len(text) <= 128:
                raise InvalidArgument("group or deduplication id")
