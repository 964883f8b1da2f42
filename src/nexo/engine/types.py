"""The values of the machine and the journal that the engine hands out, for those who may not look
into these."""

from nexo.journal.port import Usage
from nexo.machine.peek import Info
from nexo.machine.pop import Delivery, Part
from nexo.machine.push import Accepted

__all__ = ["Accepted", "Delivery", "Info", "Part", "Usage"]
