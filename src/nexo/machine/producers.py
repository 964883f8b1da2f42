"""Producers: a push that is sent again after a broken connection is not stored again.

A producer numbers its pushes. The last answers of each producer are kept, so a number that comes
again gets its first answer. A number below everything kept was accepted long ago: the client
never has more than that many unconfirmed. Spark's sink is a producer too: its numbers grow with
the micro-batch, so a replayed batch adds nothing.

A producer whose numbers come from names that people choose may use one again for something else,
which would then be dropped without a word. So it may send a checksum of the messages along: under
a number that was accepted with another one, a push is refused.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict

from nexo.vocabulary.errors import InvalidArgument, NumberReused
from nexo.vocabulary.limits import (
    PRODUCER_IDLE_MS,
    PRODUCER_NUMBER_MAX,
    PRODUCER_RESULTS_KEPT,
    PRODUCERS_FORGOTTEN,
    PRODUCERS_MAX,
    PRODUCERS_PASSED_OVER,
)
from nexo.vocabulary.names import TRANSFER_PREFIX

_UINT64 = "Q"
_INT64 = "q"
_NOT_ONE = -1  # where a range would begin: the answer is not just one


class Producer:
    """The last answers of one producer, by push number. Nearly all of them are one range, and a
    broker has many producers: 24 bytes for each, not an object."""

    __slots__ = ("_checksums", "_kept", "_numbers", "_others", "_ranges", "seen_ms")

    def __init__(self, name: str) -> None:
        self.seen_ms = 0
        # Of a transfer only the highest number is asked for.
        self._kept = 1 if name.startswith(TRANSFER_PREFIX) else PRODUCER_RESULTS_KEPT
        self._numbers = array(_UINT64)  # in order
        self._ranges = array(_INT64)  # two for each of them
        self._others: dict[int, list[int]] | None = None  # the answers that are not one range
        self._checksums: dict[int, int] | None = None  # of the pushes that had one: few producers

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def lowest(self) -> int:
        return self._numbers[0]

    @property
    def highest(self) -> int:
        return self._numbers[-1]

    def answer(self, number: int) -> list[int] | None:
        """Flat ranges; None if it has none."""
        numbers = self._numbers
        at = bisect_left(numbers, number)
        if at == len(numbers) or numbers[at] != number:
            return None
        if self._others and number in self._others:
            return self._others[number]
        return self._ranges[2 * at : 2 * at + 2].tolist()

    def checksum(self, number: int) -> int:
        """Of the messages of this push; 0 if nobody has said it."""
        return self._checksums.get(number, 0) if self._checksums else 0

    def checksums(self) -> dict[int, int]:
        """All of them."""
        return dict(self._checksums or {})

    def remember(self, number: int, ranges: list[int], checksum: int = 0) -> None:
        first, end = ranges if len(ranges) == 2 else (_NOT_ONE, _NOT_ONE)
        numbers = self._numbers
        at = bisect_left(numbers, number)
        if at < len(numbers) and numbers[at] == number:
            self._forget(at)
        numbers.insert(at, number)
        self._ranges[2 * at : 2 * at] = array(_INT64, (first, end))
        if first == _NOT_ONE:
            if self._others is None:
                self._others = {}
            self._others[number] = ranges
        if checksum:
            if self._checksums is None:
                self._checksums = {}
            self._checksums[number] = checksum
        if len(numbers) > self._kept:
            self._forget(0)

    def answers(self) -> dict[int, list[int]]:
        """All of them."""
        pairs = zip(self._ranges[::2], self._ranges[1::2], strict=True)
        found = dict(zip(self._numbers, map(list, pairs), strict=True))
        found.update(self._others or {})
        return found

    def _forget(self, at: int) -> None:
        for kept in (self._others, self._checksums):
            if kept:
                kept.pop(self._numbers[at], None)
        del self._numbers[at]
        del self._ranges[2 * at : 2 * at + 2]


class Producers:
    """Those of one queue or topic, the longest silent first."""

    __slots__ = ("_clients_max", "by_name")

    def __init__(self) -> None:
        # Unlike that of a dict, its first entry is found at once however many have moved on.
        self.by_name: OrderedDict[str, Producer] = OrderedDict()
        self._clients_max = PRODUCERS_MAX  # with those that are not counted

    def answer(self, name: str, number: int, checksum: int = 0) -> list[int] | None:
        """The answer that this push got before; None if it is new."""
        producer = self.by_name.get(name)
        if producer is None:
            return None
        answer = producer.answer(number)
        known = producer.checksum(number) if checksum else 0
        if known and known != checksum:
            raise NumberReused(
                f"push {number} of producer {name!r:.100} was accepted before with other messages",
                "nothing was added: use another number or producer name",
            )
        if answer is None and len(producer) >= PRODUCER_RESULTS_KEPT and number < producer.lowest:
            return []
        return answer

    def highest(self, name: str) -> int:
        """The highest number of a producer; 0 if it is not known."""
        producer = self.by_name.get(name)
        return 0 if producer is None else producer.highest

    def has(self, prefix: str) -> bool:
        """Whether there is one whose name begins so."""
        return any(name.startswith(prefix) for name in self.by_name)

    def remember(
        self, name: str, number: int, now_ms: int, ranges: list[int], checksum: int = 0
    ) -> None:
        by_name = self.by_name
        producer = by_name.get(name)
        if producer is None:
            producer = self._new(name)
        else:
            by_name.move_to_end(name)
        producer.seen_ms = now_ms
        producer.remember(number, ranges, checksum)
        oldest = next(iter(by_name))
        if len(by_name) > self._clients_max or by_name[oldest].seen_ms <= now_ms - PRODUCER_IDLE_MS:
            self._forget_oldest(now_ms)

    def _new(self, name: str) -> Producer:
        if name.startswith(TRANSFER_PREFIX) and name not in self.by_name:
            self._clients_max += 1
        producer = self.by_name[name] = Producer(name)
        return producer

    def _forget_oldest(self, now_ms: int) -> None:
        """Of clients. A transfer may be repeated as long as it waits, and that has no end: its
        producer is known as long as the queue is there, and goes to the end unseen."""
        by_name, since_ms, left = self.by_name, now_ms - PRODUCER_IDLE_MS, PRODUCERS_FORGOTTEN
        for _ in range(PRODUCERS_PASSED_OVER):
            oldest = next(iter(by_name), "")
            if oldest.startswith(TRANSFER_PREFIX):
                by_name.move_to_end(oldest)
                continue
            is_full = len(by_name) > self._clients_max
            if not left or not oldest or not (is_full or by_name[oldest].seen_ms <= since_ms):
                return
            del by_name[oldest]
            left -= 1

    def recall(
        self,
        name: str,
        seen_ms: int,
        answers: dict[int, list[int]],
        checksums: dict[int, int] | None = None,
    ) -> None:
        """What a producer was known for before a restart."""
        producer = self._new(name)
        producer.seen_ms = seen_ms
        for number in sorted(answers):
            if 0 <= number <= PRODUCER_NUMBER_MAX:  # none else is taken any more
                producer.remember(number, answers[number], (checksums or {}).get(number, 0))


def check_number(number: int) -> None:
    """Refuse a push number that no client of ours would draw."""
    if not 0 <= number <= PRODUCER_NUMBER_MAX:
        raise InvalidArgument(
            f"push number {number} is not between 0 and {PRODUCER_NUMBER_MAX}",
            "number the pushes of a producer from 1 on",
        )


def check_producer(name: str) -> None:
    """Refuse the name of a client that would never be forgotten."""
    if name.startswith(TRANSFER_PREFIX):
        raise InvalidArgument(
            f"{name!r:.100} is reserved: producers of that name are for the broker",
            "choose another name",
        )
