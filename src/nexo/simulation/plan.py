"""What a seed draws: the queues and topics, who uses them, how big things are, and what fails."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

from nexo.simulation import squeeze
from nexo.vocabulary.settings import Backoff, QueueSettings, TopicSettings

if TYPE_CHECKING:
    from random import Random


COLOURS = ("red", "blue")  # an attribute of messages, for bindings to choose by


class End(enum.Enum):
    """How a process ends."""

    POWER_AT_OPERATION = "power lost at an operation of the disk"
    POWER_AT_TIME = "power lost"
    KILL = "killed"
    CLOSE = "closed"


class Boot(msgspec.Struct, frozen=True):
    """One life of the broker."""

    end: End
    work_ms: int  # how long the actors work, unless it ends before
    operation: int  # at which the power goes
    failures: list[int]  # operations, or commits in memory, that fail
    full_at: int | None  # operation from which the disk is full …
    full_ms: int  # … for so long
    is_slow: bool
    down_ms: int  # before it starts
    wall_jump_s: int  # while it is down


class Plan(msgspec.Struct, frozen=True):
    limits: dict[str, int]
    memory_limit_bytes: int
    on_disk: bool
    reserve_bytes: int
    queues: dict[str, QueueSettings]
    topics: dict[str, TopicSettings]
    bindings: list[tuple[str, str, dict[str, str] | None]]
    late_bindings: list[tuple[str, str, dict[str, str] | None]]  # made while there are messages
    drivers: list[str]  # queues that Spark reads
    producers: int
    consumers: int
    boots: list[Boot]
    ends_restarted: bool  # the last drain begins with a restart
    checks_each_step: bool


def draw(random: Random, steps: float) -> Plan:
    queues = _queues(random)
    topics = {
        f"topic-{number}": TopicSettings(
            retention_messages=random.choice([None, None, 20]),
            retention_ms=random.choice([None, None, 2_000]),
            retention_bytes=random.choice([None, None, 150, 2_000]),
        )
        for number in range(random.choice([0, 0, 1, 2]))
    }
    bindings = [
        (topic, queue, random.choice([None, None, {"colour": COLOURS[0]}]))
        for topic in topics
        for queue in queues
        if random.random() < 0.6
    ]
    late_bindings = [
        (topic, queue, random.choice([None, None, {"colour": COLOURS[0]}]))
        for topic in topics
        for queue in queues
        if (topic, queue) not in {bound[:2] for bound in bindings}
    ]
    boots = random.choice([1, 2, 2, 3])
    return Plan(
        limits=squeeze.draw(random),
        memory_limit_bytes=random.choice([200, 3_000, 1 << 30]),
        on_disk=random.random() < 0.7,
        reserve_bytes=random.choice([0, 16 * 1024]),
        queues=queues,
        topics=topics,
        bindings=bindings,
        late_bindings=late_bindings,
        drivers=[name for name in queues if random.random() < 0.25],
        producers=random.randint(1, 3),
        consumers=random.randint(1, 4),
        boots=[_boot(random, number, steps) for number in range(boots)],
        ends_restarted=random.random() < 0.5,
        checks_each_step=random.random() < 0.1,
    )


def _boot(random: Random, number: int, steps: float) -> Boot:
    reach = 400 if number else 800  # operations; the first ones make the file
    return Boot(
        end=random.choice(list(End)),
        work_ms=int(random.choice([100, 300, 300, 900]) * steps),
        operation=random.choice([random.randint(1, 30), random.randint(30, reach)]),
        failures=[random.randint(20, reach) for _ in range(random.choice([0, 0, 0, 1, 3]))],
        full_at=random.randint(20, reach) if random.random() < 0.2 else None,
        full_ms=random.choice([300, 2_500]),
        is_slow=random.random() < 0.4,
        down_ms=random.choice([0, 100, 5_000]) if number else 0,
        wall_jump_s=random.choice([0, 0, 0, 2, -2, 60, -3_600, 3_600]),
    )


def _queues(random: Random) -> dict[str, QueueSettings]:
    queues = {}
    for number in range(random.randint(1, 3)):
        fifo = random.random() < 0.3
        name = f"queue-{number}" + (".fifo" if fifo else "")
        queues[name] = QueueSettings(
            visibility_timeout_ms=random.choice([150, 600, 2_000]),
            retransmit_timeout_ms=random.choice([50, 300, 1_000]),
            max_attempts=random.choice([None, 1, 2, 3, 5]),
            delay_ms=random.choice([0, 0, 0, 200]),
            retention_ms=4_000 if random.random() < 0.08 else 4 * 24 * 3_600_000,
            deduplication=random.choice(["off", "off", "off", "id", "content"]),
            deduplication_window_ms=random.choice([1_000, 300_000]),
            max_receive_rate=random.choice([None, None, None, None, 40.0]),
            backoff=random.choice(
                [None, None, Backoff(initial_ms=50, factor=2.0, max_ms=800, jitter=0.5)]
            ),
            fifo=fifo,
            max_depth=random.choice([None, None, None, 40]),
            archive=random.random() < 0.25,
        )
    return queues
