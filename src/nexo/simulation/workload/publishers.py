"""Publishers and readers of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.simulation.plan import COLOURS
from nexo.vocabulary.attributes import encode_attributes

if TYPE_CHECKING:
    from nexo.simulation.letter import Letter
    from nexo.simulation.workload.stage import Stage


class Publisher:
    def __init__(self, stage: Stage, topic: str, number: int) -> None:
        self.stage = stage
        self.topic = topic
        self.pace_ms = stage.random.choice([40, 120])
        self._name = f"publisher-{number}" if stage.chance(0.5) else ""
        self._number = 0
        self._batch_max = stage.random.choice([1, 3, 12])
        self._unanswered: list[Letter] = []

    async def act(self) -> None:
        stage, letters = self.stage, self._unanswered
        if not letters:
            letters = [self._letter() for _ in range(stage.random.randint(1, self._batch_max))]
            self._number += 1
        if self._name:
            self._unanswered = letters
        answer = await stage.topics.publish(self.topic, letters, self._name, self._number)
        if answer is not None and not (self._name and stage.chance(0.15)):
            self._unanswered = []

    def _letter(self) -> Letter:
        letter = self.stage.letter(self.topic)
        letter.is_published = True
        if self.stage.chance(0.7):
            letter.attributes = encode_attributes({"colour": self.stage.random.choice(COLOURS)})
        if self.stage.chance(0.2):
            letter.group = "g0"
        return letter


class Reader:
    """Reads a topic by offset, and now and then begins anew somewhere else."""

    def __init__(self, stage: Stage, topic: str) -> None:
        self.stage = stage
        self.topic = topic
        self.pace_ms = stage.random.choice([50, 200])
        self._offset = 0

    async def act(self) -> None:
        stage, random = self.stage, self.stage.random
        if stage.chance(0.1):
            self._offset = random.randrange(self._offset + 1)
        following = await stage.topics.read(
            self.topic,
            self._offset,
            random.choice([1, 5, 50]),
            bytes_max=random.choice([1, 200, 1 << 20]),
            strict=stage.chance(0.2),
            wait_ms=random.choice([0, 0, 200]),
        )
        if following is not None:
            self._offset = following
