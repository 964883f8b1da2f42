"""All shapes: a seed has the shape of its turn in this list.

A shape whose bound does not hold yet is in `OPEN`, with what breaks it. It is run as well, so that
it is noticed when it holds.
"""

from __future__ import annotations

from nexo.simulation.large.chunks import CHUNKS
from nexo.simulation.large.leases import LEASES
from nexo.simulation.large.lines import LINES, RevivedPriorities
from nexo.simulation.large.quotas import QUOTAS
from nexo.simulation.large.upsets import UPSETS

SHAPES = [*CHUNKS, *LEASES, *LINES, *QUOTAS, *UPSETS]

OPEN = {
    RevivedPriorities: "a commit looks at every priority until the contents at their heads are "
    "in memory again, to know when the oldest message expires",
}
