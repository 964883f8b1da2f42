"""Producers: single messages and batches, priorities, delays, groups, keys, numbered pushes; and
the publishers and readers of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.simulation.plan import COLOURS
from nexo.vocabulary.attributes import encode_attributes

if TYPE_CHECKING:
    from nexo.simulation.records import Letter
    from nexo.simulation.workload.stage import Stage

_SAFE_WINDOW_MS = 60_000  # with a deduplication window beyond this a retry is recognised


class Producer:
    def __init__(self, stage: Stage, queue: str, number: int) -> None:
        random = stage.random
        self.stage = stage
        self.queue = queue
        self.pace_ms = random.choice([20, 60, 150])
        self._name = f"producer-{number}" if random.random() < 0.5 else ""
        self._number = 0
        self._unanswered: list[Letter] = []
        self._batch_max = random.choice([1, 1, 3, 12])
        self._groups = [f"g{each}" for each in range(random.choice([1, 2, 5]))]
        self._uses_groups = random.random() < 0.4
        self._delays = random.random() < 0.3

    async def act(self) -> None:
        stage = self.stage
        letters = self._unanswered
        if letters and not self._name and self._is_forgotten(letters[0]):
            letters = []
        if not letters:
            letters = [self._letter() for _ in range(stage.random.randint(1, self._batch_max))]
            self._number += 1
            if any(letter.delay_ms is not None for letter in letters):
                for letter in letters:  # a column has a value for each
                    letter.delay_ms = letter.delay_ms or 0
        settings = stage.queues[self.queue]
        keyed = (
            settings.deduplication != "off" and settings.deduplication_window_ms > _SAFE_WINDOW_MS
        )
        repeats = bool(self._name) or (keyed and all(letter.key for letter in letters))
        if repeats:
            self._unanswered = letters  # a crash in the middle leaves them to be sent again
        if stage.chance(0.1):
            await stage.witness.engine.committer.room()
            if not self._name and self._is_forgotten(letters[0]):
                return
        answer = await stage.witness.push(self.queue, letters, self._name, self._number)
        if answer is not None and not (repeats and stage.chance(0.15)):  # else the answer is lost
            self._unanswered = []

    def _is_forgotten(self, letter: Letter) -> bool:
        """Beyond the window a retry would not be recognised, nor after a purge."""
        witness = self.stage.witness
        if not letter.called_index or self.queue not in witness.engine.queues:
            return False
        book = witness.ledger.book_of(witness.queue(self.queue).queue)
        if any(line > letter.called_index for line in book.cleared):
            return True
        window_ms = self.stage.queues[self.queue].deduplication_window_ms
        return witness.now_ms() - letter.called_ms > window_ms - _SAFE_WINDOW_MS

    def _letter(self) -> Letter:
        stage, settings = self.stage, self.stage.queues[self.queue]
        letter = stage.letter(self.queue)
        if settings.fifo or self._uses_groups:
            letter.group = stage.random.choice(self._groups)
        if not settings.fifo and stage.chance(0.3):
            letter.priority = stage.random.choice([0, 1, 7])
        if self._delays and stage.chance(0.4):
            letter.delay_ms = stage.random.choice([0, 50, 700])
        if settings.deduplication != "off" and stage.chance(0.7):
            letter.key = f"k{stage.random.randrange(30)}"
        if stage.chance(0.2):
            letter.attributes = encode_attributes({"colour": stage.random.choice(COLOURS)})
        return letter


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
