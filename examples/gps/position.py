"""A position: what a vehicle reports."""

from __future__ import annotations

import msgspec


class Position(msgspec.Struct, frozen=True):
    """`id` is never used twice: by it a position is found again at the end."""

    id: str
    vehicle: str
    path: str  # the way it is sent: udp, sqs or native
    at: int  # milliseconds since 1970, by the clock of the vehicle
    lat: float
    lon: float


encode = msgspec.json.Encoder().encode
