"""The end of a world: silence, then everything is drained and accounted for, and what the broker
told in `nexo.events` adds up to what its queues count."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from nexo.simulation.history import Violation
from nexo.simulation.plan import End
from nexo.simulation.records import Acked, Status
from nexo.simulation.topics import has_retention
from nexo.vocabulary.events import decode_event
from nexo.vocabulary.names import EVENTS_TOPIC, archive_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor
    from nexo.simulation.plan import Plan
    from nexo.simulation.records import Copy, Letter
    from nexo.simulation.workload.stage import Stage
    from nexo.simulation.world import Cast
    from nexo.vocabulary.events import Event

_RECOVERY_S = 30  # by then a healed disk must be in use again
_SILENCE_S = 6  # longer than every timeout, delay and backoff of a plan
_DRAIN_MS = 600_000  # enough for any rate limit of a plan
_PEEK_MESSAGES = 1_000
_VISIBILITY_MS = 3_600_000
_COUNTED = ("pushed", "delivered", "acked", "nacked", "timed_out", "expired", "dead_lettered")
_GONE = ("acked", "expired", "dead_lettered", "redriven", "purged")


class Accounting:
    def __init__(self, stage: Stage, cast: Cast, plan: Plan) -> None:
        self._stage = stage
        self._plan = plan
        self._cast = cast
        self._witness = stage.witness
        self._ledger = stage.witness.ledger
        self._history = stage.history

    async def run(self) -> None:
        await self._recover()
        for actor in self._witness.engine.queues.values():
            self._ledger.book_of(actor.queue)
        await self._fall_silent()
        await self._look()
        await self._let_go()
        for actor in list(self._witness.engine.queues.values()):
            await self._drain(actor)
        await self._read_topics()
        await self._check_events()
        for copy in list(self._ledger.copies.values()):
            self._account_for(copy)
        for letter in self._ledger.letters.values():
            self._account_for_letter(letter)

    # -- Coming to rest -----------------------------------------------------------------------

    async def _recover(self) -> None:
        for _ in range(_RECOVERY_S):
            if self._witness.engine.refusal is None:
                return
            await asyncio.sleep(1)
        raise Violation("the broker recovers by itself", str(self._witness.engine.refusal))

    async def _fall_silent(self) -> None:
        """With nobody there, time alone must bring everything back that is overdue."""
        for consumer in self._cast.consumers:
            consumer.leave()
        for driver in self._cast.drivers:
            driver.keep()
        await asyncio.sleep(_SILENCE_S)
        for actor in self._witness.engine.queues.values():
            info = actor.info()
            self._history.add("-- silence", actor.name, info)
            if info.scheduled or info.in_flight != sum(info.claimed.values()):
                raise Violation(
                    "what is overdue comes back by itself",
                    f"queue {actor.name} has {info.scheduled} scheduled and {info.in_flight} in "
                    f"flight after {_SILENCE_S} s of silence",
                    actor.name,
                )

    async def _look(self) -> None:
        """The figures agree with what is there, and every message is there once."""
        seen: dict[str, str] = {}
        for actor in self._witness.engine.queues.values():
            found = await actor.peek(_PEEK_MESSAGES)
            for each in self._witness.engine.memory.unreadable():
                raise Violation("what is stored can be read", f"{each.name}: {each.error}")
            info = actor.info()
            if len(found) != min(info.depth, _PEEK_MESSAGES):
                raise Violation(
                    "counts are right", f"{actor.name} shows {len(found)} of {info.depth} messages"
                )
            for message in found:
                copy = self._ledger.identify(actor.queue, message)
                if message.id in seen:
                    raise Violation(
                        "a message is in one queue",
                        f"{copy.label} is in {seen[message.id]} and in {actor.name}",
                        copy.label,
                    )
                seen[message.id] = actor.name

    async def _let_go(self) -> None:
        """Nothing holds a message back any more."""
        for driver in self._cast.drivers:
            if driver.queue in self._witness.engine.queues:
                await driver.replay()
                await driver.claims.release(dead_letter=False)
        for actor in self._witness.engine.queues.values():
            for consumer in actor.queue.claims:
                await actor.claims.release(consumer)
            await actor.set_paused(False)

    # -- Draining -----------------------------------------------------------------------------

    async def _drain(self, actor: QueueActor) -> None:
        until_ms = self._witness.now_ms() + _DRAIN_MS
        before = (-256, 0)
        in_order = actor.queue.busy is None
        while actor.info().depth:
            taken = await self._witness.pop(
                actor.name, 50, one_ack=True, wait_ms=1_000, visibility_ms=_VISIBILITY_MS
            )
            if taken is None:
                if self._witness.now_ms() > until_ms:
                    raise Violation(
                        "everything can be delivered",
                        f"queue {actor.name} keeps {actor.info()}",
                        actor.name,
                    )
                continue
            for seq in taken.seqs:
                place = (-(seq >> 48), seq)
                if in_order and place < before:
                    raise Violation(
                        "the highest priority goes first, and then the oldest",
                        f"{seq} of {actor.name} comes after {before[1]}",
                        f"seq={seq}",
                    )
                before = place
            seqs = sorted(taken.seqs)
            await self._witness.ack(taken, seqs[0], seqs[-1] + 1)

    async def _read_topics(self) -> None:
        for name, actor in self._witness.engine.topics.items():
            if name == EVENTS_TOPIC:
                continue
            _check_kept(actor)
            offset = actor.topic.start
            while offset < actor.topic.log.settled:
                following = await self._stage.topics.read(name, offset, 100)
                if following is None:
                    raise Violation(
                        "what a topic keeps can be read: every row is there",
                        f"{name} cannot be read from offset {offset} on",
                    )
                offset = following

    async def _check_events(self) -> None:
        """Of queues that were there from the first: one that comes and goes counts anew."""
        deleted = {book.name for book in self._ledger.books.values() if book.cleared}
        names = [name for name in self._witness.engine.queues if name not in deleted]
        boots, pause_ms = self._plan.boots, self._plan.limits["EVENTS_PAUSE_MS"]
        is_sound = not any(boot.failures or boot.full_at is not None for boot in boots)
        is_exact = is_sound and (pause_ms == 0 or all(boot.end is End.CLOSE for boot in boots))
        await check_events(self._witness.engine, names, is_exact)

    # -- Accounting ---------------------------------------------------------------------------

    def _account_for(self, copy: Copy) -> None:
        if copy.acked is Acked.NO and not self._ledger.may_be_gone(copy):
            raise Violation(
                "nothing confirmed is lost",
                f"{copy.label} ({copy.id}) was last in {copy.book.name}, and is nowhere",
                copy.label,
            )

    def _account_for_letter(self, letter: Letter) -> None:
        if letter.is_published:
            self._account_for_publication(letter)
        else:
            self._account_for_archive(letter, letter.home)

    def _account_for_archive(self, letter: Letter, queue: str) -> None:
        settings = self._stage.queues.get(queue)
        if settings is None or not settings.archive:
            return
        archive = self._stage.topics.offsets.get(archive_name(queue), {})
        archived = sum(each is letter for each in archive.values())
        stored = any(self._ledger.books[each].name == queue for each in letter.copies)
        fed = any(queue in book.feeds for book in self._ledger.books.values())
        if (stored and archived == 0) or (archived > 1 and not fed):
            raise Violation(
                "an archive shows what came into its queue",
                f"{letter.label} is {archived} times in the archive of {queue}",
                letter.label,
            )
        if archived and not stored and not self._is_excused(letter, queue):
            raise Violation(
                "what is in the archive was in the queue",
                f"{letter.label} was never seen in {queue}",
                letter.label,
            )

    def _account_for_publication(self, letter: Letter) -> None:
        """All bound queues have it, or none."""
        born = {self._ledger.books[incarnation].name for incarnation in letter.copies}
        happened = letter.offset is not None or bool(born)
        for name in sorted(born):
            self._account_for_archive(letter, name)
            if letter.expected.get(name, False) is False:
                raise Violation(
                    "only bound queues get what is published",
                    f"{letter.label} is in {name}",
                    letter.label,
                )
        for name, expected in letter.expected.items():
            if happened and expected and name not in born and not self._is_excused(letter, name):
                raise Violation(
                    "every bound queue gets what is published",
                    f"{letter.label} never came to {name}",
                    letter.label,
                )
        if letter.offset is None and born and letter.status is not Status.CONFIRMED:
            settings = self._stage.topic_settings[letter.home]
            if not has_retention(settings):
                raise Violation(
                    "a topic has what its queues got",
                    f"{letter.label} is in {sorted(born)} and not in {letter.home}",
                    letter.label,
                )

    def _is_excused(self, letter: Letter, queue: str) -> bool:
        """Whether the queue may have lost it unseen, as queues do when they are told to."""
        return any(
            self._ledger.latest_ms - letter.earliest_ms >= book.retention_ms
            or any(line > letter.called_index for line in book.cleared)
            for book in self._ledger.books.values()
            if book.name == queue
        )


def _check_kept(actor: TopicActor) -> None:
    """After a silence a topic keeps what its retention says, the newest in any case."""
    topic, settings = actor.topic, actor.topic.settings
    start, end = topic.start, topic.log.settled
    expected: int | None = None
    if settings.retention_ms is not None and settings.retention_ms < _SILENCE_S * 1000:
        expected = end
    elif settings.retention_bytes is None and settings.retention_ms is None:
        expected = max(0, end - settings.retention_messages) if settings.retention_messages else 0
    if expected is not None and start != expected:
        raise Violation(
            "a topic keeps what it says", f"{actor.name} begins at {start} of {end}, not {expected}"
        )
    if settings.retention_bytes is not None and settings.retention_ms is None:
        sizes = [chunk.payload_bytes for chunk in topic.log.chunks.values()]
        if (end and start == end) or sum(sizes[1:]) > settings.retention_bytes:
            raise Violation(
                "byte retention keeps the newest",
                f"{actor.name} keeps {start} to {end} in {sizes} bytes",
            )


async def check_events(engine: Engine, queues: Iterable[str], is_exact: bool) -> None:
    """`is_exact` unless events may have waited when the broker crashed: those are lost, so then
    there may be fewer. There are never more."""
    await engine.drain()
    counts = Counter[tuple[str, str]]()
    for event in await _read_all(engine):
        counts[event.queue, event.kind] += event.count
    for name in queues:
        info = engine.queue(name).info()
        for kind in _COUNTED:
            told, figure = counts[name, kind], getattr(info, kind)
            if told > figure or (is_exact and told < figure):
                raise Violation(
                    "events add up to the totals", f"{told} {kind} in {name} are told, not {figure}"
                )
        left = counts[name, "pushed"] - sum(counts[name, kind] for kind in _GONE)
        if is_exact and left != info.depth:
            raise Violation("events add up to the depth", f"{left} are left in {name}: {info}")


async def _read_all(engine: Engine) -> list[Event]:
    topic, events, offset = engine.topic(EVENTS_TOPIC), [], 0
    while offset < topic.info().end:
        reading = await topic.read(offset, 1_000)
        if reading.parts and reading.parts[0].first != offset:
            raise Violation("events are kept", f"{reading.parts[0].first} follows {offset}")
        for part in reading.parts:
            events += [decode_event(body) for body in part.batch().bodies()]
        offset = reading.next
    return events
