"""The cast: all actors of a world. They outlive the broker, as clients do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.simulation.workload.consumers import Consumer
from nexo.simulation.workload.drivers import Driver
from nexo.simulation.workload.operators import Operator
from nexo.simulation.workload.producers import Producer, Publisher, Reader
from nexo.vocabulary.names import archive_name

if TYPE_CHECKING:
    from nexo.simulation.plan import Plan
    from nexo.simulation.workload.stage import Actor, Stage


class Cast:
    def __init__(self, stage: Stage, plan: Plan) -> None:
        names = list(plan.queues)
        self._stage = stage
        producers = [
            Producer(stage, stage.random.choice(names), number) for number in range(plan.producers)
        ]
        self.consumers = [
            Consumer(stage, stage.random.choice(names), number) for number in range(plan.consumers)
        ]
        self.drivers = [Driver(stage, name, number) for number, name in enumerate(plan.drivers)]
        self._operator = Operator(stage)
        topics = list(plan.topics)
        publishers = [Publisher(stage, name, number) for number, name in enumerate(topics)]
        archives = [archive_name(name) for name in names if plan.queues[name].archive]
        readers = [Reader(stage, name) for name in topics + archives if stage.chance(0.7)]
        self.actors: list[Actor] = [
            *producers,
            *self.consumers,
            *self.drivers,
            self._operator,
            *publishers,
            *readers,
        ]

    def end_moves(self) -> None:
        """Stop the redrives that are still under way."""
        for move in self._operator.moves:
            move.cancel()
        self._operator.moves.clear()
