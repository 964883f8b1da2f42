"""Deduplication: a message that repeats one of the last minutes is accepted and not stored.

By id: the deduplication id that the producer gave. By content: that id if there is one, else a
digest of the body. The window counts from the first message, and holds after it was deleted.
"""

from __future__ import annotations

from hashlib import sha256
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, cast

from nexo.machine.events import add_deduplicated
from nexo.vocabulary import limits
from nexo.vocabulary.changes import Remembered
from nexo.vocabulary.errors import RateLimited
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.machine.queue import Queue
    from nexo.machine.topic import Topic
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.settings import TopicSettings


_DIGEST_CHARS = 32  # 128 bits of a digest: no two bodies of a window share them
_SEQ_BITS = limits.SEQUENCE_BITS + 8  # the counter of a lane, and its priority
_SEQ_MASK = (1 << _SEQ_BITS) - 1
_TURN_BITS = 7  # keys are dropped together that are over within 128 ms


class Recent:
    """The keys of the window and the messages that they stand for. Whether a key is over is asked
    of the key; when it is dropped is another matter, so that no step has to drop very many."""

    __slots__ = ("_entries", "_keys_by_turn", "_turns")

    def __init__(self) -> None:
        # By key until when it counts, and below that the number of its message. There may be
        # millions of them, and one number takes half of what a pair does.
        self._entries: dict[str, int] = {}
        # What to drop when: keys by the turn in which the last of them is over, and a heap of the
        # turns. The window may be made shorter: then keys that come later are over before others.
        self._keys_by_turn: dict[int, list[str]] = {}
        self._turns: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def seq(self, key: str) -> int:
        """The message that a key stands for."""
        return self._entries[key] & _SEQ_MASK

    def entry(self, key: str) -> tuple[int, int] | None:
        """Until when a key counts and its message, if it is known."""
        entry = self._entries.get(key)
        return None if entry is None else (entry >> _SEQ_BITS, entry & _SEQ_MASK)

    def entries(self) -> dict[str, tuple[int, int]]:
        """All keys, each with the time until which it counts and its message."""
        return {
            key: (entry >> _SEQ_BITS, entry & _SEQ_MASK) for key, entry in self._entries.items()
        }

    def clear(self) -> list[Any]:
        """See `Row.clear`."""
        held = [self._entries, self._keys_by_turn]
        self._entries, self._keys_by_turn, self._turns = {}, {}, []
        return held

    def check_room(self, count: int, owner: str) -> None:
        """A key that is forgotten too early would let a message through twice: rather none comes
        in. Memory for keys that are over is made by time alone."""
        if len(self._entries) + count > limits.DEDUPLICATION_KEYS_MAX:
            raise RateLimited(
                f"{owner!r} remembers {len(self._entries)} deduplication ids, the most that one "
                "queue or topic may",
                "try again after the deduplication window, or make the window shorter",
            )

    def forget(self, now_ms: int, keys_max: int = limits.DEDUPLICATION_KEYS_FORGOTTEN) -> None:
        """Drop keys whose window has passed, up to so many."""
        turns = self._turns
        while turns and turns[0] <= now_ms >> _TURN_BITS and keys_max > 0:
            keys = self._keys_by_turn[turns[0]]
            taken = keys[-keys_max:]
            del keys[-keys_max:]
            keys_max -= len(taken)
            if not keys:
                del self._keys_by_turn[heappop(turns)]
            for key in taken:
                entry = self._entries.get(key)
                if entry is not None and entry >> _SEQ_BITS <= now_ms:
                    del self._entries[key]

    def turns(self) -> list[int]:
        """When keys are to be dropped, in order: `keys_of` has those of each turn."""
        return sorted(self._turns)

    def keys_of(self, turn: int, start: int, count: int) -> list[str]:
        """Some of the keys of a turn. They come and go at the end, so what is before stays."""
        return self._keys_by_turn.get(turn, [])[start : start + count]

    def sift(self, keys: list[str | None], now_ms: int) -> tuple[Sequence[int], list[int]]:
        """The indexes of the messages that are new, and of those that repeat another."""
        distinct = set(keys)
        distinct.discard(None)
        is_new = len(distinct) == len(keys) - keys.count(None)
        if is_new and self._entries.keys().isdisjoint(distinct):
            return range(len(keys)), []  # as most often, without a look at each by itself
        fresh, repeated, seen = [], [], set()
        for index, key in enumerate(keys):
            until_ms = self._entries.get(key, 0) >> _SEQ_BITS if key is not None else 0
            if key is not None and (until_ms > now_ms or key in seen):
                repeated.append(index)
            else:
                fresh.append(index)
                if key is not None:
                    seen.add(key)
        return fresh, repeated

    def add(self, until_ms: int, keys: list[str], seqs: list[int]) -> None:
        until = until_ms << _SEQ_BITS
        self._entries.update(zip(keys, map(until.__or__, seqs), strict=True))
        turn = (until_ms >> _TURN_BITS) + 1
        known = self._keys_by_turn.get(turn)
        if known is None:
            self._keys_by_turn[turn] = list(keys)
            heappush(self._turns, turn)
        else:
            known += keys


def recent_of(owner: Queue | Topic) -> Recent:
    if owner.recent is None:
        owner.recent = Recent()
    return owner.recent


def keys_of(
    settings: QueueSettings | TopicSettings, batch: Batch, now_ms: int
) -> list[str | None] | None:
    """What each message is recognised by; None where nothing is deduplicated."""
    ids = batch.deduplication_ids
    if settings.deduplication == "off" or (settings.deduplication == "id" and ids is None):
        return None
    keys = ids
    if settings.deduplication == "content" or keys is None:
        keys = [
            (ids[index] if ids else None) or sha256(batch.body(index)).hexdigest()[:_DIGEST_CHARS]
            for index in range(batch.count)
        ]
    groups = batch.groups
    if groups is None or not in_groups(settings, now_ms):
        return keys
    of = groups if isinstance(groups, list) else [groups] * batch.count
    return [
        key if key is None or group is None else f"{group}\n{key}"
        for key, group in zip(keys, of, strict=True)
    ]


def in_groups(settings: QueueSettings | TopicSettings, now_ms: int) -> bool:
    """Whether messages repeat each other only inside their group. A queue's scope that was changed
    counts from its time on; there are two of them, so it was the other one before."""
    is_group = settings.deduplication_scope == "group"
    if not isinstance(settings, QueueSettings):
        return is_group
    return is_group if now_ms >= settings.deduplication_scope_since_ms else not is_group


def remember(
    queue: Queue, keys: list[str | None], repeated: list[int], seqs: list[int], now_ms: int
) -> list[int]:
    """Note the keys of what was pushed, and got the numbers `seqs`. Returns the numbers of all
    messages in the order of the batch: that of a repeated one is the number of the first."""
    recent = recent_of(queue)
    until_ms = now_ms + queue.settings.deduplication_window_ms
    if not repeated and None not in keys:
        noted = cast("list[str]", keys)
        recent.add(until_ms, noted, seqs)
        queue.changes.append(Remembered(until_ms, noted, seqs))
        return seqs
    fresh_seqs = iter(seqs)
    skipped = set(repeated)
    fresh_keys, noted_seqs, by_index = [], [], {}
    for index, key in enumerate(keys):
        if index in skipped:
            continue
        by_index[index] = seq = next(fresh_seqs)
        if key is not None:
            fresh_keys.append(key)
            noted_seqs.append(seq)
    if fresh_keys:
        recent.add(until_ms, fresh_keys, noted_seqs)
        queue.changes.append(Remembered(until_ms, fresh_keys, noted_seqs))
    for index in repeated:
        key = keys[index]
        assert key is not None
        by_index[index] = seq = recent.seq(key)
        if queue.events is not None:
            add_deduplicated(queue, seq, now_ms)
    return [by_index[index] for index in range(len(keys))]
