"""Topics by a pattern, over all shards: `FOLLOW`, and where to begin (`starts`).

The shards of this node are read here, and those of other nodes by them. A connection asks each
other node over a connection of its own. What was asked there and has no answer yet stays asked:
when the client asks again it is from the same offsets, because that node had nothing for it so
far. So a client that gets messages of one node all the time costs the others nothing.

An answer tells of one node at a time; the next ones have what the others found meanwhile.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.cluster.legs import NodeLeg
from nexo.cluster.placement import NodeState, shard_of
from nexo.doors.rpc_tcp.handlers import encode_followed
from nexo.engine.followers import Waiting, payload_bytes
from nexo.vocabulary.errors import InvalidArgument, NexoError, NotReady
from nexo.vocabulary.limits import CLUSTER_FOLLOW_WAIT_MS, CLUSTER_FOLLOWED_MAX
from nexo.vocabulary.names import ARCHIVE_PREFIX, EVENTS_TOPIC, RESERVED_PREFIX
from nexo.vocabulary.patterns import compiled, is_pattern
from nexo.wire import calls, commands
from nexo.wire.frame import Frame, FrameReader, Kind, frame, frame_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.cluster.rpc import Switch
    from nexo.engine.followers import Found

    MayRead = Callable[[str], bool] | None

STARTS = "starts"
_AGAIN_S = 0.05


class _Pattern(msgspec.Struct, frozen=True, array_like=True):
    """What a FOLLOW is about; the offsets behind it may be many."""

    pattern: str


class _StartsOf(calls.Starts, frozen=True):
    """As one node asks another: of these shards, all of which must be there."""

    shards: list[int] | None = None


def shard_meant(pattern: str, shards: int) -> int | None:
    """The one shard that all topics of a pattern live in; None: they may be in any."""
    if not is_pattern(pattern):
        return None if pattern == EVENTS_TOPIC else shard_of(pattern, shards)
    rest = pattern.removeprefix(ARCHIVE_PREFIX)
    first = rest.partition(".")[0]
    if first in ("*", ">") or rest.startswith(RESERVED_PREFIX):
        return None
    return shard_of(first, shards)


class AskingLeg(NodeLeg):
    """A connection to another node for what this one asks by itself."""

    def __init__(self, switch: Switch) -> None:
        super().__init__(switch)
        self._frames = FrameReader()
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Frame]] = {}

    def ask(self, kind: Kind, head: bytes, body: list[bytes | memoryview]) -> asyncio.Future[Frame]:
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self.write(frame_parts(kind, number, head, body))
        return answer

    def data_received(self, data: bytes) -> None:
        for received in self._frames.feed(data):
            answer = self._asked.pop(received.correlation, None)
            if answer is not None and not answer.done():
                answer.set_result(received)

    def connection_lost(self, error: Exception | None) -> None:
        for answer in self._asked.values():
            answer.cancel()
        self._asked.clear()
        super().connection_lost(error)


class _Standing(msgspec.Struct, eq=False):
    """What another node was asked, and has not told yet or nobody has taken yet."""

    node: str
    pattern: str
    offsets: dict[str, int]
    answer: asyncio.Future[Frame]


class Follower:
    """All that one connection follows."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._node = switch.node
        self._standing: list[_Standing] = []
        self._changed = asyncio.Event()
        self._turn = 0

    def shard(self, received: Frame) -> int | None:
        """The shard of a FOLLOW; None: it is for `follow`."""
        asked: _Pattern = msgspec.msgpack.decode(received.head, type=_Pattern)
        return shard_meant(asked.pattern, self._node.shards)

    def look_again(self) -> None:
        """Shards have come, gone or moved."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # -- FOLLOW -------------------------------------------------------------------------------

    async def follow(self, received: Frame) -> None:
        switch, correlation = self._switch, received.correlation
        try:
            wanted = self._checked(commands.unpack(received.head, commands.Follow))
            answer = await (self._now(wanted) if wanted.wait_ms <= 0 else self._later(wanted))
        except NexoError as error:
            switch.refuse(correlation, error)
            return
        if answer is None:
            head = commands.pack(commands.Followed([]))
            switch.forward([frame(Kind.OK, correlation, head)])
            return
        switch.forward(frame_parts(answer.kind, correlation, answer.head, [answer.body]))

    def _checked(self, wanted: commands.Follow) -> commands.Follow:
        if wanted.count < 1 or wanted.bytes_max < 1:
            raise InvalidArgument("a read takes at least one message")
        compiled(wanted.pattern)
        return msgspec.structs.replace(wanted, pattern=_meant(wanted.pattern))

    async def _now(self, wanted: commands.Follow) -> Frame | None:
        """What there is, wherever; None: nothing."""
        asked = [] if self._switch.is_passed else [*map(self._way, self._switch.other_nodes())]
        head = commands.pack(wanted)
        answers = [way.ask(Kind.FOLLOW, head, []) for way in asked]
        found = await self._here(wanted, 0)
        for answer in answers:
            told = await answer
            if found is None and _has_any(told):
                found = told
        return found

    async def _later(self, wanted: commands.Follow) -> Frame | None:
        """The same, as soon as there is anything."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + wanted.wait_ms / 1000
        while True:
            changed = self._changed
            others = [] if self._switch.is_passed else self._switch.other_nodes()
            standing = [self._ask(node, wanted) for node in others]
            taken = self._take(standing)
            if taken is not None:
                return taken
            left_s = ends - loop.time()
            if left_s <= 0:
                return None
            here = loop.create_task(self._here(wanted, left_s))
            again = loop.create_task(changed.wait())
            try:
                answers: list[asyncio.Future[Any]] = [each.answer for each in standing]
                await asyncio.wait(
                    [here, again, *answers], return_when=asyncio.FIRST_COMPLETED, timeout=left_s + 1
                )
                if here.done() and (found := await _result(here)) is not None:
                    return found
            finally:
                here.cancel()
                again.cancel()

    def _ask(self, node: NodeState, wanted: commands.Follow) -> _Standing:
        """What a node is asked already, or is asked now."""
        owners, shard_of_name = self._node.state.owners, self._node.shard_of
        offsets = {
            name: offset
            for name, offset in wanted.offsets.items()
            if owners.get(shard_of_name(name)) == node.name
        }
        for each in self._standing:
            is_same = (each.node, each.pattern) == (node.name, wanted.pattern)
            if is_same and each.offsets == offsets and not each.answer.cancelled():
                return each
        asked = msgspec.structs.replace(wanted, offsets=offsets, wait_ms=CLUSTER_FOLLOW_WAIT_MS)
        answer = self._way(node).ask(Kind.FOLLOW, commands.pack(asked), [])
        standing = _Standing(node.name, wanted.pattern, offsets, answer)
        self._standing.append(standing)
        del self._standing[:-CLUSTER_FOLLOWED_MAX]  # nobody seems to ask for those any more
        return standing

    def _take(self, standing: list[_Standing]) -> Frame | None:
        """The answer of a node that has found something, or has refused."""
        for each in standing:
            if each.answer.done():
                if each in self._standing:
                    self._standing.remove(each)
                if not each.answer.cancelled() and _has_any(each.answer.result()):
                    return each.answer.result()
        return None

    async def _here(self, wanted: commands.Follow, wait_s: float) -> Frame | None:
        """What the shards of this node have, waiting for it if need be."""
        node = self._node
        engines = {each: node.engines[each] for each in node.engines if node.is_held}
        ends = asyncio.get_running_loop().time() + wait_s
        looked = sorted(engines)
        self._turn += 1  # another shard is the first each time, so that none keeps others waiting
        at = self._turn % max(1, len(looked))
        looked = looked[at:] + looked[:at]
        waiting = Waiting()
        with ExitStack() as registered:
            for engine in engines.values():
                registered.enter_context(engine.followed(wanted.pattern, waiting))
            while True:
                found = await self._read(wanted, looked)
                if found:
                    head, pieces = encode_followed(found)
                    return Frame(Kind.OK, 0, head, memoryview(b"".join(pieces)))
                try:
                    async with asyncio.timeout_at(ends):
                        news = await waiting.news()
                except TimeoutError:
                    return None
                looked = [each for each in {*map(node.shard_of, news)} if each in engines]

    async def _read(self, wanted: commands.Follow, shards: list[int]) -> list[Found]:
        caller = self._switch.caller
        assert caller is not None
        caller.check_live()
        may_read: MayRead = caller.may_read if caller.is_bound else None
        found: list[Found] = []
        left, bytes_left = wanted.count, wanted.bytes_max
        for shard in shards:
            engine = self._node.engines.get(shard)
            if engine is None or not engine.topics or left < 1 or bytes_left < 1:
                continue
            some = await engine.follow(
                wanted.pattern, wanted.offsets, left, bytes_left, 0, may_read
            )
            for each in some:
                left -= sum(part.count for part in each.reading.parts)
                bytes_left -= sum(map(payload_bytes, each.reading.parts))
            found += some
        return found

    def _way(self, node: NodeState) -> AskingLeg:
        return self._switch.asking(node)

    # -- Where to begin -----------------------------------------------------------------------

    def starts_shard(self, params: msgspec.Raw) -> int | None:
        """The shard of such a call; None: it is for `starts`."""
        wanted = _decoded(params)
        if wanted.shards is not None and self._switch.is_passed:
            return None
        return shard_meant(wanted.pattern, self._node.shards)

    async def starts(self, received: Frame, params: msgspec.Raw) -> None:
        """Complete or not at all: a topic that is left out would be read from its beginning. If
        shards move meanwhile the connection ends, and the client asks again."""
        switch = self._switch
        try:
            wanted = _decoded(params)
            compiled(wanted.pattern)
            assert switch.caller is not None
            switch.caller.check_live()
            found = await self._starts(wanted)
        except NotReady as error:
            if switch.is_passed:
                switch.refuse(received.correlation, error)
            else:
                switch.end()
            return
        except NexoError as error:
            switch.refuse(received.correlation, error)
            return
        switch.forward(frame_parts(Kind.OK, received.correlation, b"", [commands.pack(found)]))

    async def _starts(self, wanted: _StartsOf) -> dict[str, int]:
        node, switch = self._node, self._switch
        pattern, others = _meant(wanted.pattern), []
        if wanted.shards is not None and switch.is_passed:
            mine = wanted.shards
        else:
            await node.settled()
            owners = dict(node.state.owners)
            mine = [shard for shard, owner in owners.items() if owner == node.name]
            for each in switch.other_nodes():
                theirs = [shard for shard, owner in owners.items() if owner == each.name]
                asked = commands.pack(_StartsOf(wanted.pattern, wanted.start, theirs))
                called = commands.pack(commands.Called(STARTS, msgspec.Raw(asked)))
                others.append(self._way(each).ask(Kind.CALL, b"", [called]))
        caller = switch.caller
        assert caller is not None
        found: dict[str, int] = {}
        for shard in mine:
            engine = await node.local(shard)
            some = await engine.starts(pattern, wanted.start)
            found.update({name: at for name, at in some.items() if caller.may_read(name)})
        for answer in others:
            found.update(_starts_told(await answer))
        return found


def _meant(pattern: str) -> str:
    """In a cluster `nexo.events` stands for the events of all shards."""
    return f"{EVENTS_TOPIC}.*" if pattern == EVENTS_TOPIC else pattern


def _decoded(params: msgspec.Raw) -> _StartsOf:
    try:
        return msgspec.msgpack.decode(params, type=_StartsOf)
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"{STARTS}: {error}") from None


def _starts_told(answer: Frame) -> dict[str, int]:
    if answer.kind is not Kind.OK:
        refusal: commands.Refusal = commands.unpack(answer.head, commands.Refusal)
        raise NotReady(refusal.message, refusal.hint)
    return msgspec.msgpack.decode(answer.body, type=dict[str, int])


def _has_any(answer: Frame) -> bool:
    return answer.kind is not Kind.OK or len(answer.body) > 0


async def _result(task: asyncio.Task[Frame | None]) -> Frame | None:
    """Nothing of a shard that was closed or lost meanwhile; it will be looked for in a moment."""
    try:
        return task.result()
    except NotReady:
        await asyncio.sleep(_AGAIN_S)
        return None
