"""The model's claims: numbered batches of a consumer, held until they are acked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.vocabulary.errors import Fenced, InvalidArgument, LeaseLost
from nexo.vocabulary.states import State
from tests.property.model.delivery import come_back, mark_doomed
from tests.property.model.state import Consumer

if TYPE_CHECKING:
    from tests.property.model.state import ClaimedBatch, Model


def open_claims(model: Model, name: str, now: int) -> int:
    model.advance(now)
    consumer = model.consumers.setdefault(name, Consumer())
    consumer.epoch += 1
    return consumer.epoch


def known_batch(
    model: Model, name: str, epoch: int, after: int, count: int, now: int, timeout: int, most: int
) -> ClaimedBatch | None:
    """What a claim does before it takes messages; a batch if it was claimed before. `most` is how
    many batches a consumer may hold."""
    now = model.advance(now)
    consumer = fenced(model, name, epoch)
    if after < consumer.acked_through:
        raise LeaseLost("acked already")
    if count < 1:
        raise InvalidArgument("no message asked for")
    ack_claims(model, name, epoch, after, now)
    batch = consumer.batches.get(after + 1)
    if batch is not None and not batch.lapsed:
        if not batch.sealed:
            keep(model, batch, now + timeout)
        return batch
    if len(consumer.batches) >= most:
        raise InvalidArgument("too many batches")
    return None


def seal(model: Model, name: str, epoch: int, number: int, now: int) -> ClaimedBatch:
    model.advance(now)
    batch = fenced(model, name, epoch).batches.get(number)
    if batch is None or batch.lapsed:
        raise LeaseLost("not held")
    for item in model.of_lease(batch.lease):
        item.attempts += batch.sealed  # a replay
        item.state, item.deadline = State.SEALED, 0
    batch.sealed = True
    return batch


def keep_claims(model: Model, name: str, epoch: int, now: int, timeout: int) -> None:
    now = model.advance(now)
    for batch in fenced(model, name, epoch).batches.values():
        if not batch.sealed:
            keep(model, batch, now + timeout)


def keep(model: Model, batch: ClaimedBatch, deadline: int) -> None:
    for item in model.of_lease(batch.lease):
        item.deadline = deadline


def ack_claims(model: Model, name: str, epoch: int, through: int, now: int) -> int:
    model.advance(now)
    consumer = fenced(model, name, epoch)
    acked = 0
    for number in [number for number in consumer.batches if number <= through]:
        for item in model.of_lease(consumer.batches.pop(number).lease):
            model.land(item)
            model.remove(item)
            acked += 1
    model.totals["acked"] += acked
    consumer.acked_through = max(consumer.acked_through, through)
    return acked


def release(model: Model, name: str, now: int, dead_letter: bool) -> int:
    model.advance(now)
    released = 0
    consumer = model.consumers.get(name)
    for batch in consumer.batches.values() if consumer is not None else ():
        for item in model.of_lease(batch.lease):
            released += 1
            if dead_letter:
                mark_doomed(model, item, "released by an operator")
            else:
                come_back(model, item)
        batch.lease = 0
    return released


def forget_claims(model: Model, name: str, now: int) -> None:
    if name in model.consumers:
        release(model, name, now, dead_letter=False)
        del model.consumers[name]


def fenced(model: Model, name: str, epoch: int) -> Consumer:
    consumer = model.consumers.get(name)
    if consumer is None or consumer.epoch != epoch:
        raise Fenced("another driver")
    return consumer
