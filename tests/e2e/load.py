"""A broker under load in a process of its own, which tells what was confirmed until it is killed.

    python -m tests.e2e.load PLACE LIFE SEED NEXT

Each line on its standard output is a fact, written after (or, for `acking`, before) it became one.
The body of a message follows from its key, so whoever reads it can tell if it is intact.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from nexo.engine.desk import AdaptiveRunner
from nexo.engine.engine import Engine
from nexo.journal.sqlite import SqliteJournal
from nexo.server.broker import is_postgresql, journal_of
from nexo.vocabulary import limits
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import StaleReceipt
from nexo.vocabulary.settings import QueueSettings, TopicSettings

if TYPE_CHECKING:
    from nexo.engine.queue_actor import QueueActor
    from nexo.vocabulary.message import Message

WORK = QueueSettings(max_attempts=2, visibility_timeout_ms=300)
COPY = QueueSettings(max_attempts=None, visibility_timeout_ms=300)
BACKLOG_MAX = 2_000  # producers pause beyond this, so that the end comes soon
MEMORY_LIMIT_BYTES = 150_000
RESERVE_BYTES = 1024 * 1024


def body_of(key: str) -> bytes:
    """The key, and bytes that follow from it: mostly few, sometimes many."""
    random = Random(key)
    size = random.choice([0, 10, 100, 100, 1_000, 20_000])
    return key.encode() + b"|" + random.randbytes(size)


def key_of(body: bytes) -> str:
    """The key of an intact body; what is not intact is shown."""
    key = body.split(b"|", 1)[0].decode(errors="replace")
    return key if body == body_of(key) else f"BROKEN:{body[:40].hex()}:{len(body)}"


def tell(kind: str, *keys: str) -> None:
    os.write(1, "".join(f"{kind} {key}\n" for key in keys).encode())


class Load:
    def __init__(self, engine: Engine, life: int, random: Random, next_number: int) -> None:
        self._engine = engine
        self._life = life
        self._random = random
        self._next_number = next_number

    async def run(self) -> None:
        work = await self._engine.create_queue("work", WORK)
        copy = await self._engine.create_queue("copy", COPY)
        await self._engine.create_topic("news", TopicSettings())
        await self._engine.bind("news", "copy")
        tell("ready", str(self._life))
        await asyncio.gather(
            *[self._produce(work, f"{self._life}.{number}") for number in range(4)],
            self._produce_numbered(work),
            *[self._publish(f"{self._life}.t{number}") for number in range(2)],
            *[self._consume(work) for _ in range(4)],
            *[self._consume(copy) for _ in range(2)],
        )

    async def _produce(self, queue: QueueActor, name: str) -> None:
        number = 0
        while True:
            count = self._random.choice([1, 1, 1, 5, 40, 100])
            keys = [f"{name}.{number + each}" for each in range(count)]
            number += count
            if count == 1 and self._random.random() < 0.5:
                await queue.push_one(body_of(keys[0]))
            else:
                await queue.push(batch_of([body_of(key) for key in keys]))
            tell("pushed", *keys)
            await self._rest(queue)

    async def _produce_numbered(self, queue: QueueActor) -> None:
        """A client that says again, after a crash, what was not confirmed to it."""
        number = self._next_number
        while True:
            key = f"numbered.{number}"
            await queue.push(batch_of([body_of(key)]), "client", number)
            tell("pushed", key)
            number += 1
            await self._rest(queue)

    async def _publish(self, name: str) -> None:
        topic, copy = self._engine.topic("news"), self._engine.queue("copy")
        number = 0
        while True:
            count = self._random.choice([1, 3, 50])
            keys = [f"{name}.{number + each}" for each in range(count)]
            number += count
            await topic.publish(batch_of([body_of(key) for key in keys]))
            tell("published", *keys)
            await self._rest(copy)

    async def _rest(self, queue: QueueActor) -> None:
        await asyncio.sleep(self._random.choice([0, 0, 0.001, 0.01]))
        while queue.info().depth > BACKLOG_MAX:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # nobody tells when a backlog is gone

    async def _consume(self, queue: QueueActor) -> None:
        while True:
            count = self._random.choice([1, 1, 10, 100])
            delivery = await queue.pop(count, wait_ms=1_000, one_ack=True)
            messages = queue.messages(delivery)
            tell(f"got-{queue.name}", *[key_of(message.body) for message in messages])
            if messages and self._random.random() < 0.1:
                continue  # a consumer that dies: its messages come back by themselves
            await asyncio.sleep(self._random.choice([0, 0, 0.005]))
            await self._settle(queue, messages)

    async def _settle(self, queue: QueueActor, messages: list[Message]) -> None:
        """Some are refused, which is the end of them after the second time; the rest is acked."""
        verdicts = []
        acked = []
        for message in messages:
            lease, seq = message.lease, message.seq
            with suppress(StaleReceipt):  # on a busy machine its time may be over by now
                if self._random.random() < 0.15:
                    verdicts.append(queue.nack(lease, seq, seq + 1, reason="refused"))
                    continue
                key = key_of(message.body)
                tell(f"acking-{queue.name}", key)
                verdicts.append(queue.ack(lease, seq, seq + 1))
                acked.append(key)
        await asyncio.gather(*verdicts)
        tell(f"acked-{queue.name}", *acked)


async def main(place: str, life: int, seed: int, next_number: int) -> None:
    limits.UNFOLDED_BYTES_MAX = 20_000
    random = Random(f"{seed}/{life}")
    if is_postgresql(place):
        journal, runner = journal_of(place, place), AdaptiveRunner(inline_ms=0)
    else:
        journal, runner = SqliteJournal(place, reserve_bytes=RESERVE_BYTES), AdaptiveRunner()
    engine = Engine(
        journal,
        runner=runner,
        memory_limit_bytes=MEMORY_LIMIT_BYTES,
        new_incarnation=lambda: random.getrandbits(64),
    )
    await engine.open()
    await Load(engine, life, random, next_number).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
