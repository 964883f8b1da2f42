"""The values that the engine hands out, for those who may not look into the machine."""

from nexo.engine.moves import Chosen, MoveTask
from nexo.engine.snapshots import Wanted
from nexo.engine.waiting import Waiter
from nexo.journal.port import Usage
from nexo.machine.claims import Claim
from nexo.machine.peek import Info
from nexo.machine.pop import Delivery, Part
from nexo.machine.push import Accepted
from nexo.machine.topic import Reading

__all__ = [
    "Accepted",
    "Chosen",
    "Claim",
    "Delivery",
    "Info",
    "MoveTask",
    "Part",
    "Reading",
    "Usage",
    "Waiter",
    "Wanted",
]
