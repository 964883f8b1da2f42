"""Errors that should never be: one queue or topic raises, and all others go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nexo.simulation.large.shape import Shape, expect
from nexo.simulation.loop import VirtualLoop
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from nexo.machine.pop import Delivery
    from nexo.simulation.large.shape import Site

_APART_S = 61.0  # an actor that fails more often than this is taken out of service
_ANSWER_S = 5.0  # by then whoever waits has been told


class Upset(Exception):
    """It comes from nowhere, as a defect does."""


class Upsets(Shape):
    """In each round something of one queue raises. Whoever waits for it is told, the others are
    confirmed, and what was confirmed is there."""

    messages = 12  # rounds
    names = ("left", "middle", "right")

    async def fill(self, site: Site) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.planned = Upset
        for name in self.names:
            await site.queue(name, QueueSettings(archive=name == "right"))
        for number in range(self.size):
            victim = self.names[number % 2]
            await self._round(site, victim, site.random.choice(["collect", "settle", "_tick"]))
            await asyncio.sleep(_APART_S)
        for name in self.names:
            await site.drain(name)

    async def work(self, site: Site) -> None:
        for name in self.names:
            await site.singles(name, 3)
            await site.drain(name)

    async def _round(self, site: Site, victim: str, what: str) -> None:
        actor = site.engine.queue(victim)
        self._arm(actor, what)
        if what == "_tick":
            actor._timer.at(actor.now_ms())
        pushes: dict[str, asyncio.Future[Any]] = {}
        for name in self.names:
            bodies = site.account.new(name, 3)
            try:
                pushes[name] = asyncio.ensure_future(site.push(name, bodies))
            except NexoError as error:
                site.account.left[name].difference_update(bodies)
                self._check(name, victim, error)
                continue
            pushes[name].add_done_callback(_forgotten)
        _, waiting = await asyncio.wait(pushes.values(), timeout=_ANSWER_S)
        expect(not waiting, "whoever waits is told", f"{len(waiting)} were not after {_ANSWER_S} s")
        for name, push in pushes.items():
            failure = push.exception()
            if failure is not None:
                self._check(name, victim, failure)
                await self._look(site, name)
        vars(actor).pop(what, None)

    def _arm(self, actor: Any, what: str) -> None:
        """The next call raises; the one after it is as ever."""

        def upset(*_: Any) -> None:
            vars(actor).pop(what, None)
            raise Upset(f"{what} of {actor.name}")

        setattr(actor, what, upset)

    def _check(self, name: str, victim: str, error: BaseException) -> None:
        expect(
            name == victim and isinstance(error, NexoError),
            "what fails in one queue fails there alone",
            f"{victim} failed, and {name} was told {error!r}",
        )

    async def _look(self, site: Site, name: str) -> None:
        """What was not confirmed may be there or not, but not half of it."""
        await asyncio.sleep(1)
        actor, left = site.engine.queue(name), site.account.left[name]
        newest = sorted(left, key=lambda body: int(body.split(b"/")[1]))[-3:]
        depth = actor.info().depth
        expect(
            depth in (len(left), len(left) - 3),
            "a push is stored whole or not at all",
            f"{name} holds {depth} of {len(left)}",
        )
        if depth < len(left):
            left.difference_update(newest)


def _forgotten(push: asyncio.Future[Any]) -> None:
    push.cancelled() or push.exception()


class BadConsumer(Shape):
    """A subscriber that cannot take what it is given leaves; the others get it."""

    messages = 40

    async def fill(self, site: Site) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.planned = Upset
        queue = await site.queue("shared")
        got: list[int] = []

        def refuse(delivery: Delivery) -> None:
            raise Upset("the connection has gone in a way that nobody thought of")

        def take(delivery: Delivery) -> None:
            got.append(delivery.count)

        queue.subscribe(5, refuse, lambda error: None, one_ack=True)
        queue.subscribe(self.size, take, lambda error: None, one_ack=True)
        await site.singles("shared", self.size)
        await asyncio.sleep(_ANSWER_S)
        expect(
            sum(got) == self.size,
            "what one consumer cannot take goes to another",
            f"{sum(got)} of {self.size} came",
        )

    async def work(self, site: Site) -> None:
        await asyncio.sleep(_APART_S)
        await site.drain("shared")


UPSETS = [Upsets, BadConsumer]
