"""Producers: a push that is sent again after a broken connection is not stored again.

A producer numbers its pushes. The last answers of each producer are kept, so a number that comes
again gets its first answer. A number below everything kept was accepted long ago: the client
never has more than that many unconfirmed. Spark's sink is a producer too: its numbers grow with
the micro-batch, so a replayed batch adds nothing.
"""

from __future__ import annotations

from nexo.vocabulary.limits import PRODUCER_IDLE_MS, PRODUCER_RESULTS_KEPT, PRODUCERS_MAX


class Producer:
    __slots__ = ("answers", "seen_ms")

    def __init__(self) -> None:
        self.answers: dict[int, list[int]] = {}  # push number → flat ranges, oldest first
        self.seen_ms = 0


class Producers:
    """Those of one queue or topic, the longest silent first."""

    __slots__ = ("by_name",)

    def __init__(self) -> None:
        self.by_name: dict[str, Producer] = {}

    def answer(self, name: str, number: int) -> list[int] | None:
        """The answer that this push got before; None if it is new."""
        producer = self.by_name.get(name)
        if producer is None:
            return None
        answer = producer.answers.get(number)
        full = len(producer.answers) >= PRODUCER_RESULTS_KEPT
        if answer is None and full and number < min(producer.answers):
            return []
        return answer

    def remember(self, name: str, number: int, now_ms: int, ranges: list[int]) -> None:
        producer = self.by_name.pop(name, None) or Producer()
        self.by_name[name] = producer
        producer.seen_ms = now_ms
        producer.answers[number] = ranges
        if len(producer.answers) > PRODUCER_RESULTS_KEPT:
            del producer.answers[min(producer.answers)]
        oldest = next(iter(self.by_name))
        if (
            len(self.by_name) > PRODUCERS_MAX
            or self.by_name[oldest].seen_ms <= now_ms - PRODUCER_IDLE_MS
        ):
            del self.by_name[oldest]
