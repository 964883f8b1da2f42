"""The values that the engine hands out, for those who may not look into the machine."""

from nexo.engine.waiting import Waiter
from nexo.machine.accepted import Accepted
from nexo.machine.claims import Claim
from nexo.machine.peek import Info
from nexo.machine.pop import Delivery, Part
from nexo.machine.topic import Reading

__all__ = ["Accepted", "Claim", "Delivery", "Info", "Part", "Reading", "Waiter"]
