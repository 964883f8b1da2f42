"""What every actor is given: chance, time, the witnesses, and the names of things."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Protocol

from nexo.simulation.records import Letter
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from random import Random

    from nexo.simulation.topics import TopicWitness
    from nexo.simulation.witness import Witness
    from nexo.vocabulary.settings import QueueSettings, TopicSettings


class Stage:
    def __init__(self, random: Random, witness: Witness, topics: TopicWitness) -> None:
        self.random = random
        self.witness = witness
        self.topics = topics
        self.history = witness.history
        self.queues: dict[str, QueueSettings] = {}
        self.topic_settings: dict[str, TopicSettings] = {}
        self.late_bindings: list[tuple[str, str, dict[str, str] | None]] = []
        self.is_open = True  # actors work while it is
        self.large_share = 0.1  # of letters that are larger than small
        self._numbers = count(1)

    def letter(self, home: str) -> Letter:
        """A letter whose body is like no other."""
        number = next(self._numbers)
        large = self.random.random() < self.large_share
        size = self.random.randrange(200, 2_000) if large else self.random.randrange(30)
        return Letter(number, home, b"%d:" % number + b"." * size)

    async def nap(self, mean_ms: float) -> None:
        await asyncio.sleep(self.random.expovariate(1 / mean_ms) / 1000)

    def chance(self, share: float) -> bool:
        return self.random.random() < share


class Actor(Protocol):
    stage: Stage
    pace_ms: int  # between two acts, on average

    async def act(self) -> None:
        """One thing, drawn by chance."""


async def live(actor: Actor) -> None:
    """Act until the stage closes. What is refused is part of life."""
    stage = actor.stage
    while stage.is_open:
        await stage.nap(actor.pace_ms)
        if not stage.is_open:
            return
        try:
            await actor.act()
        except NexoError as error:
            stage.history.add("failed", type(actor).__name__, error.code, error.message[:60])
