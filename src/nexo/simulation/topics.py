"""The witness of topics: an offset shows the same message for ever, and every bound queue gets
what was published, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.simulation.history import Violation
from nexo.simulation.records import Letter, Status
from nexo.simulation.witness import batch_from
from nexo.vocabulary.attributes import matches
from nexo.vocabulary.errors import NexoError, OffsetExpired, ReadOnly
from nexo.vocabulary.names import ARCHIVE_PREFIX
from nexo.vocabulary.start import LATEST

if TYPE_CHECKING:
    from nexo.machine.topic import Reading
    from nexo.simulation.witness import Witness
    from nexo.vocabulary.start import Start


class Binding:
    """`is_bound` None: nobody knows."""

    def __init__(self) -> None:
        self.is_bound: bool | None = False
        self.where: dict[str, str] | None = None


class TopicWitness:
    """All topics of a world. Answers are as those of `Witness`."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._ledger = witness.ledger
        self._history = witness.history
        self._bindings: dict[tuple[str, str], Binding] = {}
        self._letters: dict[str, list[Letter]] = {}  # by topic
        self.offsets: dict[str, dict[int, Letter]] = {}  # by topic

    # -- Publishing ---------------------------------------------------------------------------

    async def publish(
        self, name: str, letters: list[Letter], producer: str = "", number: int = 0
    ) -> bool | None:
        ledger, labels = self._ledger, [letter.label for letter in letters]
        index = self._history.add("publish", name, *labels, producer, number or "")
        try:
            actor = self._witness.engine.topic(name)
            future = actor.publish(batch_from(letters), producer, number)
        except NexoError as error:
            ledger.refused(letters)
            self._history.add("refused", name, *labels, error.code)
            return False
        ledger.sent(letters, index, self._witness.now_ms())
        self._expect(name, letters)
        try:
            first, end = await future
        except ReadOnly as error:
            self._history.add("unknown", name, *labels, error.code)
            return None
        except NexoError as error:  # it had to wait for the disk, and was refused then
            self._history.add("refused", name, *labels, error.code)
            ledger.taken_back(letters, index)
            return False
        ledger.confirmed(index)
        self._history.add("published", name, *labels, f"{first}..{end}")
        if end - first != len(letters):
            raise Violation(
                "an answer names every message", f"{first}..{end} for {labels}", *labels
            )
        for offset, letter in enumerate(letters, first):
            letter.status = Status.CONFIRMED
            self._place(name, offset, letter)
        return True

    def _expect(self, topic: str, letters: list[Letter]) -> None:
        """Which queues must get these. What is sent again keeps only what holds both times."""
        for (bound_topic, queue), binding in self._bindings.items():
            if bound_topic != topic:
                continue
            for letter in letters:
                expected = binding.is_bound
                if expected and binding.where is not None:
                    expected = matches(binding.where, letter.attributes)
                if letter.expected.setdefault(queue, expected) is not expected:
                    letter.expected[queue] = None
        known = self._letters.setdefault(topic, [])
        for letter in letters:
            if letter not in known:
                known.append(letter)

    def _place(self, topic: str, offset: int, letter: Letter) -> None:
        """A message was seen, or confirmed, at an offset."""
        placed = self.offsets.setdefault(topic, {})
        other = placed.setdefault(offset, letter)
        if other is not letter:
            raise Violation(
                "an offset shows the same message for ever",
                f"offset {offset} of {topic} is {other.label} and {letter.label}",
                other.label,
                letter.label,
            )
        if topic.startswith(ARCHIVE_PREFIX):
            return
        if letter.offset is not None and letter.offset != offset:
            raise Violation(
                "a message is published once",
                f"{letter.label} is at {letter.offset} and {offset} of {topic}",
                letter.label,
            )
        letter.offset = offset

    # -- Binding ------------------------------------------------------------------------------

    async def bind(
        self, topic: str, queue: str, where: dict[str, str] | None, start: Start = LATEST
    ) -> bool | None:
        """With a start in the past, what was confirmed before must be in the queue if it lies
        behind that start, and only then; what comes at the same time may be."""
        is_first = (topic, queue) not in self._bindings
        self._doubt(topic, queue)
        sent = self._letters.get(topic, []) if start != LATEST else []
        confirmed = [letter for letter in sent if letter.status is Status.CONFIRMED]
        for letter in sent:
            letter.expected[queue] = None
        engine = self._witness.engine
        index = self._history.add("bind", topic, queue, where, start.offset)
        answer = engine.bind(topic, queue, where, start)
        is_bound = await self._bound(topic, queue, answer, index, where)
        if is_bound and is_first and not has_retention(engine.topic(topic).topic.settings):
            for letter in confirmed:
                is_wanted = where is None or matches(where, letter.attributes)
                is_behind = (letter.offset or 0) >= (start.offset or 0)
                letter.expected[queue] = is_wanted and is_behind
        return is_bound

    def was_bound(self, topic: str, queue: str) -> bool:
        """Whether somebody has tried to bind it, with whatever outcome."""
        return (topic, queue) in self._bindings

    async def unbind(self, topic: str, queue: str) -> bool | None:
        self._doubt(topic, queue)
        index = self._history.add("unbind", topic, queue)
        return await self._bound(
            topic, queue, self._witness.engine.unbind(topic, queue), index, None, False
        )

    async def _bound(
        self,
        topic: str,
        queue: str,
        answer: Any,
        index: int,
        where: dict[str, str] | None,
        is_bound: bool = True,
    ) -> bool | None:
        try:
            await answer
        except NexoError as error:
            self._history.add("unknown", topic, queue, error.code)
            return None
        self._ledger.confirmed(index)
        self._history.add("bound" if is_bound else "unbound", topic, queue)
        binding = self._bindings[topic, queue]
        binding.is_bound, binding.where = is_bound, where
        return True

    def _doubt(self, topic: str, queue: str) -> None:
        """A change of the binding is under way: what is in flight may come before or after."""
        binding = self._bindings.setdefault((topic, queue), Binding())
        binding.is_bound = None
        for letter in self._letters.get(topic, ()):
            if letter.status is Status.UNKNOWN:
                letter.expected[queue] = None
            else:
                letter.expected.setdefault(queue, False)

    def dropped(self, queue: str) -> None:
        """The queue is being deleted, and whoever has its name later is not bound."""
        for (topic, bound), binding in self._bindings.items():
            if bound == queue:
                self._doubt(topic, queue)
                binding.is_bound = None

    # -- Reading ------------------------------------------------------------------------------

    async def read(self, name: str, offset: int, count: int, **options: Any) -> int | None:
        """Read and compare; returns where to go on."""
        actor = self._witness.engine.topic(name)
        try:
            reading = await actor.read(offset, count, **options)
        except OffsetExpired:
            if not has_retention(actor.topic.settings):
                raise Violation("a topic keeps what was published", f"{offset} of {name}") from None
            return None
        except NexoError as error:
            self._history.add("unread", name, offset, error.code)
            return None
        self._seen(name, offset, reading, has_retention(actor.topic.settings))
        return reading.next

    def _seen(self, name: str, offset: int, reading: Reading, may_skip: bool) -> None:
        labels, at = [], offset
        for part in reading.parts:
            if part.first != at and not (may_skip and at == offset and part.first > at):
                raise Violation("offsets are dense", f"{name}: {part.first} follows {at}")
            for step in range(part.count):
                low, high = part.content.offsets[part.index + step : part.index + step + 2]
                body = bytes(part.content.payload[low:high])
                letter = self._ledger.letters.get(body)
                if letter is None:
                    raise Violation("bodies are unchanged", f"{name}: {body!r:.60} was never sent")
                if letter.status in (Status.REFUSED, Status.DUPLICATE):
                    raise Violation(
                        "what was refused or repeated never appears",
                        f"{letter.label} is in {name} and was {letter.status.name}",
                        letter.label,
                    )
                self._place(name, part.first + step, letter)
                labels.append(letter.label)
            at = part.first + part.count
        self._history.add("read", name, offset, *labels)

    def is_unknown(self, topic: str, queue: str) -> bool:
        """Whether the binding has to be made, for all that is known."""
        binding = self._bindings.get((topic, queue))
        return binding is None or binding.is_bound is None


def has_retention(settings: Any) -> bool:
    limits = (settings.retention_messages, settings.retention_ms, settings.retention_bytes)
    return any(limit is not None for limit in limits)
