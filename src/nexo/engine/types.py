"""The values of the machine and the journal that the engine hands out, for those who may not look
into these."""

from nexo.journal.port import Usage
from nexo.machine.accepted import Accepted
from nexo.machine.pop import Delivery, Part

__all__ = ["Accepted", "Delivery", "Part", "Usage"]
