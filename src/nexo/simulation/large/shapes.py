"""All shapes: a seed has the shape of its turn in this list."""

from __future__ import annotations

from nexo.simulation.large.chunks import CHUNKS
from nexo.simulation.large.leases import LEASES
from nexo.simulation.large.lines import LINES
from nexo.simulation.large.quotas import QUOTAS
from nexo.simulation.large.upsets import UPSETS

SHAPES = [*CHUNKS, *LEASES, *LINES, *QUOTAS, *UPSETS]
