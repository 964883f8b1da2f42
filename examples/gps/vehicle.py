"""A vehicle: it drives about a city, waits at lights, and its receiver errs at times."""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

from examples.gps.position import Position

CENTRE_LAT, CENTRE_LON = 45.4642, 9.1900
RADIUS_M = 12_000.0  # further out it turns back
METRES_PER_DEGREE = 111_195.0
NOISE_M = 0.1

HASTY_SHARE, WEARY_SHARE = 1 / 12, 1 / 20
# How often a report is wrong, and in which way.
NO_FIX_SHARE, NONSENSE_SHARE, JUMP_SHARE = 0.01, 0.005, 0.005


class Habits(NamedTuple):
    """How fast it likes to go in km/h, how often it stops, and for how many seconds."""

    speed_min: float
    speed_max: float
    stops_per_second: float
    stop_s_min: float
    stop_s_max: float


CALM = Habits(30, 70, 1 / 40, 2, 5)
HASTY = Habits(95, 150, 1 / 200, 1, 2)
WEARY = Habits(30, 50, 1 / 20, 20, 60)


class Vehicle:
    """Drawn from a seed, so that the same fleet drives the same ways."""

    def __init__(self, number: int, path: str, seed: int) -> None:
        self.name = f"v{number:03}"
        self._path = path
        self._chance = Random(f"{seed}/{number}")  # noqa: S311  a simulation, not a secret
        drawn = self._chance.random()
        self.habits = CALM
        if drawn < HASTY_SHARE + WEARY_SHARE:
            self.habits = HASTY if drawn < HASTY_SHARE else WEARY
        self._east_m = self._chance.uniform(-0.5, 0.5) * RADIUS_M
        self._north_m = self._chance.uniform(-0.5, 0.5) * RADIUS_M
        self._heading = self._chance.uniform(0, 2 * math.pi)
        self._wanted_kmh = self._chance.uniform(self.habits.speed_min, self.habits.speed_max)
        self._kmh = self._wanted_kmh
        self._stands_s = 0.0
        self._reports = 0

    def report(self, at_ms: int, after_s: float) -> Position:
        """Drive on for a while, then say where it is."""
        self._drive(after_s)
        self._reports += 1
        lat, lon = self._measured()
        name = f"{self._path}-{self.name}-{self._reports:06}"
        return Position(name, self.name, self._path, at_ms, lat, lon)

    def _drive(self, seconds: float) -> None:
        habits, chance = self.habits, self._chance
        if self._stands_s > 0:
            self._stands_s -= seconds
            return
        if chance.random() < habits.stops_per_second * seconds:
            self._stands_s = chance.uniform(habits.stop_s_min, habits.stop_s_max)
            self._kmh = 0.0
            return
        if chance.random() < 0.05:
            self._wanted_kmh = chance.uniform(habits.speed_min, habits.speed_max)
        self._kmh += (self._wanted_kmh - self._kmh) * min(1.0, seconds / 3)
        self._heading += chance.gauss(0, 0.08)
        if math.hypot(self._east_m, self._north_m) > RADIUS_M:
            self._heading = math.atan2(-self._north_m, -self._east_m)
        metres = self._kmh / 3.6 * seconds
        self._east_m += metres * math.cos(self._heading)
        self._north_m += metres * math.sin(self._heading)

    def _measured(self) -> tuple[float, float]:
        """Where its receiver says that it is."""
        drawn = self._chance.random()
        if drawn < NO_FIX_SHARE:
            return 0.0, 0.0
        if drawn < NO_FIX_SHARE + NONSENSE_SHARE:
            return 99.9, 361.0
        jump_m = 20_000.0 if drawn < NO_FIX_SHARE + NONSENSE_SHARE + JUMP_SHARE else 0.0
        north_m = self._north_m + self._chance.gauss(0, NOISE_M) + jump_m
        east_m = self._east_m + self._chance.gauss(0, NOISE_M)
        lat = CENTRE_LAT + north_m / METRES_PER_DEGREE
        lon = CENTRE_LON + east_m / (METRES_PER_DEGREE * math.cos(math.radians(CENTRE_LAT)))
        return round(lat, 7), round(lon, 7)
