"""Chosen messages of a queue: found by id, by reason and by text, counted by reason, and acted on.

A queue may hold millions: it is looked through in steps, and others have their turn in between.
What is found is acted on in steps too, each of which is one commit. So a task that is cancelled, or
ends with the broker, has done a part; begun again, it does the rest.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec

from nexo.engine.moves import Ending, Progress
from nexo.engine.peek import Glimpse, glimpse_of
from nexo.machine import peek as rules
from nexo.vocabulary import limits
from nexo.vocabulary.errors import DataCorrupt, InvalidArgument, MessageNotFound
from nexo.vocabulary.identity import message_id, parse_message_id
from nexo.vocabulary.message import Message
from nexo.vocabulary.reasons import folded
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.chunk import Content
    from nexo.machine.peek import Glance
    from nexo.machine.queue import Queue
    from nexo.vocabulary.batch import DeadLetter, Origin

    Act = Callable[[list[int]], Awaitable[tuple[int, int]]]  # how many were done, and skipped

_NUMBER_TYPE = "q"
_REASONS_REMEMBERED = 10_000  # folded ones; then they are forgotten


class Choice(msgspec.Struct, frozen=True):
    """Which messages are meant: those for which all holds that is said. A reason is compared
    without its numbers and ids (`vocabulary.reasons`); the text is looked for in the body, the
    attributes and the reason, and is also found if it is the id."""

    ids: tuple[str, ...] | None = None
    reason: str | None = None
    text: str = ""
    source: str | None = None  # the queue that a dead letter came from

    @property
    def is_all(self) -> bool:
        return self == Choice()


class Search(msgspec.Struct, frozen=True):
    """What was found in the part of a queue that was looked at. `next` is the number to go on
    behind; None if that was all of it."""

    messages: list[Message]
    matched: int
    looked_at: int
    next: int | None


class ReasonGroup(msgspec.Struct, frozen=True):
    """Dead letters that died of the same. `example` has the beginning of the body of one."""

    reason: str
    count: int
    first_ms: int
    last_ms: int
    consumer: str  # who had the last of them
    sources: tuple[str, ...]
    example: Message
    example_bytes: int


class Reasons(msgspec.Struct, frozen=True):
    groups: list[ReasonGroup]
    looked_at: int
    next: int | None


# -- Looking ----------------------------------------------------------------------------------


class Sweep:
    """A walk through a queue in the order of its numbers, a bounded step at a time."""

    def __init__(self, actor: QueueActor, after: int | None = None) -> None:
        self._actor = actor
        self.after = after
        self.looked_at = 0
        self.is_done = False

    async def steps(self) -> AsyncIterator[list[Glance]]:
        """Runs of messages whose contents are in memory, until whoever walks waits for anything."""
        while not self.is_done:
            self._actor.check_in_service()
            shown, missing = self._step()
            if shown:
                yield shown
            if missing is not None:
                await self._read_back(missing)
            await asyncio.sleep(0)

    def _step(self) -> tuple[list[Glance], Glance | None]:
        messages, left_bytes = limits.SEARCH_STEP_MESSAGES, limits.SEARCH_STEP_BYTES
        shown: list[Glance] = []
        for each in rules.everything(self._actor.queue, self.after):
            chunk = each.chunk
            if chunk.content is None:
                return shown, each
            size = max(1, chunk.payload_bytes // max(1, chunk.end - chunk.first))
            fits = min(messages, max(1, left_bytes // size))
            end = min(each.end, each.first + fits)
            shown.append(msgspec.structs.replace(each, end=end))
            taken = end - each.first
            self.after = end - 1
            self.looked_at += taken
            messages -= taken
            left_bytes -= taken * size
            if messages <= 0 or left_bytes <= 0 or len(shown) >= limits.SEARCH_STEP_RUNS:
                return shown, None
        self.is_done = True
        return shown, None

    async def _read_back(self, missing: Glance) -> None:
        try:
            await self._actor.contents.read_back(missing.chunk)
        except DataCorrupt:  # in flight, and the disk cannot give it: go past it
            self.after = missing.end - 1


class Matcher:
    """Says which messages of a run are meant."""

    def __init__(self, choice: Choice, incarnation: int) -> None:
        self._source = choice.source
        self._reason = None if choice.reason is None else folded(choice.reason)
        self._needle = choice.text.encode()
        self._text = choice.text
        self._ids = None if choice.ids is None else frozenset(choice.ids)
        self._own = None if choice.ids is None else _own(choice.ids, incarnation)
        self._own_of_text = _own([choice.text], incarnation) if choice.text else {}
        self._folded: dict[str, str] = {}

    def matching(self, seen: Glance) -> list[int]:
        """The numbers of those that are meant, in order."""
        content = seen.chunk.content
        assert content is not None
        start = seen.chunk.index(seen.first)
        found: list[int] = list(range(seen.first, seen.end))
        origins = content.origins[start : start + len(found)] if content.origins else None
        if self._ids is not None:
            found = self._of_ids(seen, origins)
        if found and (self._reason is not None or self._source is not None):
            found = [seq for seq in found if self._is_dead(_origin(origins, seen, seq))]
        if found and self._needle:
            told = self._told(content, seen, start)
            found = [seq for seq in found if seq in told or seq in self._own_of_text]
        return found

    def _of_ids(self, seen: Glance, origins: list[Origin | None] | None) -> list[int]:
        own, ids = self._own or {}, self._ids or frozenset()
        if origins is None:
            near = own if len(own) < seen.end - seen.first else range(seen.first, seen.end)
            return sorted(seq for seq in near if seen.first <= seq < seen.end and seq in own)
        return [
            seq
            for seq, origin in enumerate(origins, seen.first)
            if (seq in own if origin is None else origin.id in ids)
        ]

    def _is_dead(self, letter: DeadLetter | None) -> bool:
        reason = letter.reason if letter is not None else ""
        if self._source is not None and (letter is None or letter.source != self._source):
            return False
        return self._reason is None or self.fold(reason) == self._reason

    def fold(self, reason: str) -> str:
        found = self._folded.get(reason)
        if found is None:
            if len(self._folded) >= _REASONS_REMEMBERED:
                self._folded.clear()
            found = self._folded[reason] = folded(reason)
        return found

    def _told(self, content: Content, seen: Glance, start: int) -> set[int]:
        """Those that say the text in their body, their attributes or their reason. Bodies lie end
        to end: they are looked through together."""
        needle, offsets, payload = self._needle, content.offsets, content.payload
        count = seen.end - seen.first
        low, high = offsets[start], offsets[start + count]
        found: set[int] = set()
        while (at := payload.find(needle, low, high)) >= 0:
            index = bisect_right(offsets, at, start, start + count) - 1
            if at + len(needle) <= offsets[index + 1]:
                found.add(seen.first + index - start)
                low = offsets[index + 1]
            else:
                low = at + 1
        attributes = content.attributes
        if isinstance(attributes, list):
            for index in range(count):
                encoded = attributes[start + index]
                if encoded and needle in encoded:
                    found.add(seen.first + index)
        elif attributes and needle in attributes:
            found.update(range(seen.first, seen.end))
        origins = content.origins[start : start + count] if content.origins else ()
        for index, origin in enumerate(origins):
            letter = origin.dead_letter if origin else None
            if origin and (origin.id == self._text or (letter and self._text in letter.reason)):
                found.add(seen.first + index)
        return found


def _own(ids: Sequence[str], incarnation: int) -> dict[int, str]:
    """The numbers that ids of this queue stand for."""
    own = {}
    for each in ids:
        try:
            drawn, seq = parse_message_id(each)
        except InvalidArgument:
            continue
        if drawn == incarnation and message_id(drawn, seq) == each:
            own[seq] = each
    return own


def _origin(origins: list[Origin | None] | None, seen: Glance, seq: int) -> DeadLetter | None:
    origin = origins[seq - seen.first] if origins else None
    return origin.dead_letter if origin else None


async def find(actor: QueueActor, message: str) -> int:
    """The number of the message with this id. One that began here is found at once."""
    parse_message_id(message)
    matcher = Matcher(Choice(ids=(message,)), actor.incarnation)
    for seq in _own([message], actor.incarnation):
        seen = rules.find(actor.queue, seq)
        if seen is not None and seen.chunk.content is None:
            await actor.contents.read_back(seen.chunk)
            seen = rules.find(actor.queue, seq)
        one = None if seen is None else msgspec.structs.replace(seen, first=seq, end=seq + 1)
        if one is not None and one.chunk.content is not None and matcher.matching(one):
            return seq
    async for seen_now in Sweep(actor).steps():
        for each in seen_now:
            for seq in matcher.matching(each):
                return seq
    raise MessageNotFound(
        f"there is no message {message!r:.80} in queue {actor.name!r}",
        "it was acked, moved, discarded or has expired",
    )


async def search(
    actor: QueueActor, choice: Choice, limit: int, after: int | None = None, whole: bool = False
) -> Search:
    """Up to `limit` messages that are meant, of those behind number `after`. It ends when it has
    these, or goes on counting with `whole`; and at the latest when it has looked at very many, so
    that whoever asks gets an answer in time and asks for the rest."""
    matcher, sweep = Matcher(choice, actor.incarnation), Sweep(actor, after)
    found: list[Message] = []
    matched, left_bytes = 0, limits.SEARCH_ANSWER_BYTES
    behind = after  # numbers of different priorities do not follow one another
    async for step in sweep.steps():
        for each in step:
            for seq in matcher.matching(each):
                if len(found) < limit and left_bytes > 0:
                    found += _shown(actor.queue, each, seq)
                    left_bytes -= len(found[-1].body)
                elif not whole and found:
                    going_on = seq - 1 if seq > each.first else behind
                    return Search(found, matched, sweep.looked_at, going_on)
                matched += 1
            behind = each.end - 1
        if sweep.looked_at >= limits.SEARCH_CALL_MESSAGES:
            break
    return Search(found, matched, sweep.looked_at, None if sweep.is_done else behind)


def _shown(queue: Queue, seen: Glance, seq: int) -> list[Message]:
    return rules.show(queue, [msgspec.structs.replace(seen, first=seq, end=seq + 1)])


# -- Counting by reason -----------------------------------------------------------------------


class _Counted:
    """A group in the making."""

    __slots__ = ("consumer", "count", "example", "first_ms", "last_ms", "sources")

    def __init__(self, letter: DeadLetter, example: Glimpse) -> None:
        self.example = example
        self.count = 0
        self.first_ms, self.last_ms = letter.last_failed_ms, letter.last_failed_ms
        self.consumer = letter.consumer
        self.sources: set[str] = set()

    def add(self, letter: DeadLetter) -> None:
        self.count += 1
        self.sources.add(letter.source)
        if letter.last_failed_ms >= self.last_ms:
            self.last_ms, self.consumer = letter.last_failed_ms, letter.consumer
        elif letter.last_failed_ms < self.first_ms:
            self.first_ms = letter.last_failed_ms


async def reasons(
    actor: QueueActor, choice: Choice, after: int | None = None, looked_max: int | None = None
) -> Reasons:
    """The dead letters of a queue by their reason, the most frequent first. `looked_max` is how
    many messages are looked at, about."""
    most = limits.SEARCH_CALL_MESSAGES if looked_max is None else looked_max
    matcher, sweep = Matcher(choice, actor.incarnation), Sweep(actor, after)
    groups: dict[str, _Counted] = {}
    async for step in sweep.steps():
        for each in step:
            _count(actor.queue, groups, matcher, each)
        if sweep.looked_at >= most:
            break
    told = [
        ReasonGroup(
            reason,
            group.count,
            group.first_ms,
            group.last_ms,
            group.consumer,
            tuple(sorted(group.sources)),
            group.example.message,
            group.example.size,
        )
        for reason, group in groups.items()
    ]
    told.sort(key=lambda group: (-group.count, group.reason))
    return Reasons(told, sweep.looked_at, None if sweep.is_done else sweep.after)


def _count(queue: Queue, groups: dict[str, _Counted], matcher: Matcher, seen: Glance) -> None:
    content = seen.chunk.content
    assert content is not None
    if not content.origins:
        return
    start = seen.chunk.index(seen.first) - seen.first
    for seq in matcher.matching(seen):
        origin = content.origins[start + seq]
        letter = origin.dead_letter if origin else None
        if letter is None:
            continue
        reason = matcher.fold(letter.reason)
        group = groups.get(reason)
        if group is None:
            if len(groups) >= limits.REASON_GROUPS_MAX:
                reason = OTHER_REASONS
                group = groups.get(reason)
            if group is None:
                group = groups[reason] = _Counted(letter, glimpse_of(queue, seen, seq))
        group.add(letter)


OTHER_REASONS = "(other reasons)"  # of which there are too many to tell them apart


# -- Acting -----------------------------------------------------------------------------------


class ChosenTask(Ending):
    """A redrive or a discard of chosen messages, under way: a task like `moves.MoveTask`. First it
    looks for them, then it acts on those that were there. `seqs` are those that somebody else has
    looked for."""

    def __init__(
        self,
        source: QueueActor,
        chosen: Choice | list[int],
        act: Act,
        *,
        verb: str,
        to: str | None = None,
        rate: float | None = None,
    ) -> None:
        if rate is not None and not 0 < rate <= limits.RECEIVE_RATE_MAX:
            raise InvalidArgument("rate must be a number of messages per second above 0")
        self.source = source
        self.verb = verb
        self.to = to
        self.rate = rate
        self.started_ms = source.now_ms()
        self._chosen = chosen
        self._act = act
        self._total = 0
        self._done = 0
        self._skipped = 0
        self._cancelled = False
        self.finished: asyncio.Task[int] = asyncio.get_running_loop().create_task(self._run())
        # Why it ended is asked for later, or never.
        self.finished.add_done_callback(lambda task: task.cancelled() or task.exception())

    def progress(self) -> Progress:
        return Progress(self._done, self._total, self._skipped, self.finished.done())

    async def _run(self) -> int:
        if isinstance(self._chosen, list):
            seqs: Sequence[int] = self._chosen
            self._total = len(seqs)
        else:
            # What came in with the commit under way counts, and is not seen before it.
            await self.source.changed(None)
            seqs = await self._look(self._chosen)
        for step in _steps(seqs, self._step_messages()):
            if self._cancelled:
                break
            done, skipped = await self._act(step)
            self._done += done
            self._skipped += skipped
            if self.rate is not None:
                await asyncio.sleep(done / self.rate)
            await asyncio.sleep(0)
        return self._done

    async def _look(self, choice: Choice) -> Sequence[int]:
        seqs = array(_NUMBER_TYPE)
        matcher = Matcher(choice, self.source.incarnation)
        is_redrive = self.verb == REDRIVE  # it takes what is in line alone
        async for step in Sweep(self.source).steps():
            for each in step:
                if not is_redrive or each.state is State.READY:
                    seqs.extend(matcher.matching(each))
            self._total = len(seqs)
            if self._cancelled:
                break
        return seqs

    def _step_messages(self) -> int:
        if self.rate is None:
            return limits.MOVE_MESSAGES
        return max(1, min(limits.MOVE_MESSAGES, int(self.rate * limits.REDRIVE_BURST_MS / 1000)))


REDRIVE, DISCARD = "redrive", "discard"


def _steps(seqs: Sequence[int], most: int) -> Iterator[list[int]]:
    """Numbers as they are acted on together: so many, in so many runs. By priority the highest were
    found first; a step has them in order."""
    step: list[int] = []
    runs = 0
    for seq in seqs:
        is_next = bool(step) and seq == step[-1] + 1
        if step and (len(step) >= most or (not is_next and runs >= limits.MOVE_RUNS)):
            yield sorted(step)
            step, runs = [], 0
            is_next = False
        runs += not is_next
        step.append(seq)
    if step:
        yield sorted(step)
