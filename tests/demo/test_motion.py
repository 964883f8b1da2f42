"""What Spark computes of positions, against plain Python."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from examples.gps.motion import alerts, cleaned, distance_m, windows
from examples.gps.position import Position, encode
from examples.gps.vehicle import Vehicle
from tests.demo import plain_motion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGAN_MS = 1_763_251_200_000  # a multiple of the window
MESSAGE = "id string, body binary, created_at timestamp, source string, offset long"
MOVE = "window_start timestamp, vehicle string, speed_kmh double, stopped_s double, positions int"


def messages(spark: SparkSession, bodies: list[bytes]) -> DataFrame:
    at = datetime.fromtimestamp(BEGAN_MS / 1000, UTC)
    rows = [(f"m{n}", bytearray(body), at, "gps.udp", n) for n, body in enumerate(bodies)]
    return spark.createDataFrame(rows, MESSAGE)


def reports(vehicles: int, seconds: int, seed: int = 7) -> list[Position]:
    fleet = [Vehicle(number, "udp", seed) for number in range(vehicles)]
    return [
        each.report(BEGAN_MS + 1_000 * second, 1.0) for second in range(seconds) for each in fleet
    ]


def test_what_is_wrong_with_a_position_is_said(spark: SparkSession) -> None:
    good: dict[str, Any] = {"id": "a", "vehicle": "v", "path": "udp", "at": BEGAN_MS}
    bodies = {
        "good": {**good, "lat": 45.0, "lon": 9.0},
        "equator": {**good, "lat": 0.0, "lon": 9.0},
        "null island": {**good, "lat": 0.0, "lon": 0.0},
        "no place": good,
        "beyond the pole": {**good, "lat": 91.0, "lon": 9.0},
        "beyond the date line": {**good, "lat": 45.0, "lon": 181.0},
        "no vehicle": {"id": "b", "at": 1, "lat": 45.0, "lon": 9.0},
        "ahead": {**good, "at": BEGAN_MS + 61_000, "lat": 45.0, "lon": 9.0},
        "a little ahead": {**good, "at": BEGAN_MS + 59_000, "lat": 45.0, "lon": 9.0},
    }
    given = [json.dumps(body).encode() for body in bodies.values()]
    rows = cleaned(messages(spark, [*given, b"\xff{", b"[1]"])).orderBy("offset").collect()
    assert [row.fault for row in rows] == [
        None,
        None,
        "no fix",
        "no fix",
        "out of range",
        "out of range",
        "unreadable",
        "from the future",
        None,
        "unreadable",
        "unreadable",
    ]
    assert [row.id for row in rows[-2:]] == ["m9", "m10"], (
        "what cannot be read has the message's id"
    )
    assert rows[0].at.timestamp() * 1000 == BEGAN_MS


def test_a_distance(spark: SparkSession) -> None:
    places = [(45.4642, 9.19, 45.4781, 9.2270), (0.0, 0.0, 0.0, 180.0), (10.0, 10.0, 10.0, 10.0)]
    places += [(89.9, 0.0, 89.9, 179.0), (-33.86, 151.2, 51.5, -0.12)]
    frame = spark.createDataFrame(places, "a double, b double, c double, d double")
    columns = (f.col(name) for name in "abcd")
    found = [row[0] for row in frame.select(distance_m(*columns)).collect()]
    assert found == pytest.approx([plain_motion.distance_m(*place) for place in places], abs=0.01)
    assert found[1] == pytest.approx(3.14159265 * plain_motion.EARTH_M)


def test_speed_and_stops_are_those_of_plain_python(spark: SparkSession) -> None:
    positions = reports(vehicles=60, seconds=60)
    rows = windows(cleaned(messages(spark, [encode(each) for each in positions]))).collect()
    found = {
        (row.vehicle, round(row.window_start.timestamp() * 1000)): plain_motion.Move(
            row.positions, row.metres, row.speed_kmh, row.stopped_s, row.jumps
        )
        for row in rows
    }
    wanted = plain_motion.moves(positions)
    assert found.keys() == wanted.keys()
    assert len(found) == 60 * 6
    for key, move in wanted.items():
        assert found[key] == pytest.approx(move, abs=0.06), key
    assert sum(move.jumps for move in wanted.values()) > 5, "receivers erred"
    assert sum(move.stopped_s > 0 for move in wanted.values()) > 20, "vehicles stopped"


def test_a_jump_at_the_start_does_not_spoil_the_window(spark: SparkSession) -> None:
    """The first place is wrong, so the second seems to be; from the third on all is well."""
    lats = [48.0, 45.0, 45.0001, 45.0002, 45.0003]
    positions = [
        Position(f"p{n}", "v", "udp", BEGAN_MS + 1_000 * n, lat, 9.0) for n, lat in enumerate(lats)
    ]
    (row,) = windows(cleaned(messages(spark, [encode(each) for each in positions]))).collect()
    assert row.jumps == 2
    assert row.metres == pytest.approx(22.2, abs=0.1)


def test_alerts_and_their_priority(spark: SparkSession) -> None:
    at = datetime.fromtimestamp(BEGAN_MS / 1000, UTC)
    kinds = {
        "calm": (50.0, 2.0),
        "fast": (90.0, 0.0),
        "mad": (120.0, 0.0),
        "weary": (3.0, 8.0),
        "alone": (None, 0.0),  # a single position has no speed
    }
    rows = [(at, name, speed, stopped, 9) for name, (speed, stopped) in kinds.items()]
    found = alerts(spark.createDataFrame(rows, MOVE)).collect()
    told = {row.attributes["vehicle"]: (row.attributes["kind"], row.priority) for row in found}
    assert told == {"fast": ("speeding", 5), "mad": ("reckless", 9), "weary": ("stopped", 1)}
    bodies = [json.loads(row.body) for row in found]
    assert len({body["id"] for body in bodies}) == 3
    assert bodies[0]["id"] == f"speeding-fast-{BEGAN_MS // 1000}"
