"""Speed and stops as plain Python computes them: another way to the same figures."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from examples.gps.position import Position

EARTH_M = 6_371_008.8
WINDOW_MS = 10_000


class Move(NamedTuple):
    positions: int
    metres: float
    speed_kmh: float | None
    stopped_s: float
    jumps: int


def distance_m(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """By the angle between two directions from the centre of the earth."""
    one, other = _direction(lat, lon), _direction(other_lat, other_lon)
    across = math.dist(one, other)
    return 2 * EARTH_M * math.asin(min(1.0, across / 2))


def moves(positions: Iterable[Position]) -> dict[tuple[str, int], Move]:
    """By vehicle and start of the window in milliseconds; faulty positions are left out."""
    windows: defaultdict[tuple[str, int], list[Position]] = defaultdict(list)
    for each in positions:
        if -90 <= each.lat <= 90 and -180 <= each.lon <= 180 and (each.lat, each.lon) != (0, 0):
            windows[each.vehicle, each.at // WINDOW_MS * WINDOW_MS].append(each)
    return {key: _move(sorted(some, key=lambda each: each.at)) for key, some in windows.items()}


def _move(positions: list[Position]) -> Move:
    last, metres, seconds, stopped_s, jumps = positions[0], 0.0, 0.0, 0.0, 0
    is_away = False
    for each in positions[1:]:
        took_s = (each.at - last.at) / 1000
        if took_s <= 0:
            continue
        way_m = distance_m(last.lat, last.lon, each.lat, each.lon)
        if way_m / took_s > 100:
            jumps += 1
            if is_away:
                last = each
            is_away = not is_away
            continue
        is_away = False
        last = each
        metres += way_m
        seconds += took_s
        stopped_s += took_s if way_m / took_s < 1 else 0.0
    speed_kmh = 3.6 * metres / seconds if seconds else None
    return Move(len(positions), metres, speed_kmh, stopped_s, jumps)


def _direction(lat: float, lon: float) -> tuple[float, float, float]:
    up, round_ = math.radians(lat), math.radians(lon)
    return math.cos(up) * math.cos(round_), math.cos(up) * math.sin(round_), math.sin(up)
