"""What a consumer holds, found by message id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.engine.peek import held_by
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, numbered
from tests.engine.virtual_time import run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from nexo.engine.engine import Engine


def on_an_engine(test: Callable[[Engine], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        rig = Rig()
        await test(await rig.start())
        await rig.stop()

    run(main())


def test_only_what_this_consumer_holds() -> None:
    async def test(engine: Engine) -> None:
        queue = await engine.create_queue("q")
        await queue.push(numbered(10))
        mine = await queue.pop(4, consumer="me", one_ack=True)
        yours = await queue.pop(4, consumer="you", one_ack=True)
        ids = [message_id(queue.queue.incarnation, seq) for seq in range(12)]
        strange = [message_id(queue.queue.incarnation + 1, 1), "nonsense", ids[2].upper()]
        assert held_by(queue, "me", ids + strange) == {
            ids[seq]: (mine.lease, seq) for seq in range(4)
        }
        assert held_by(queue, "you", [ids[5], ids[0], ids[9]]) == {ids[5]: (yours.lease, 5)}
        assert held_by(queue, "nobody", ids) == {}
        await queue.ack(mine.lease, 1, 3)
        assert held_by(queue, "me", ids) == {
            ids[0]: (mine.lease, 0),
            ids[3]: (mine.lease, 3),
        }

    on_an_engine(test)


def test_a_message_that_moved_has_the_id_that_it_had() -> None:
    async def test(engine: Engine) -> None:
        queue = await engine.create_queue("q", QueueSettings(max_attempts=1))
        await queue.push(numbered(3))
        first = await queue.pop(1, one_ack=True)
        await queue.nack(first.lease, 0, 1)
        await (await engine.redrive("q_dlq")).finished
        delivery = await queue.pop(10, consumer="me", one_ack=True)
        ids = [message.id for message in queue.messages(delivery)]
        incarnation = queue.queue.incarnation
        assert set(ids) == {message_id(incarnation, seq) for seq in range(3)}
        held = held_by(queue, "me", ids)
        assert set(held) == set(ids)
        # Its number is another now, and what that number would stand for is nobody's id.
        lease, seq = held[message_id(incarnation, 0)]
        assert seq == 3
        assert held_by(queue, "me", [message_id(incarnation, 3)]) == {}
        assert await queue.ack(lease, seq, seq + 1) == [seq, seq + 1]

    on_an_engine(test)
