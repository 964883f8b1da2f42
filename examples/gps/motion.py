"""What the pipeline computes: clean positions, speed and stops in windows, alerts.

DataFrames in, DataFrames out, streaming or not: nothing here knows where they come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW_S = 10
LATE_S = 5  # a position that is later than this misses its window; the lake has it all the same
EARTH_M = 6_371_008.8
JUMP_MPS = 100.0  # nobody drives 360 km/h: such a position is a mistake of the receiver
STOP_MPS = 1.0
FUTURE_S = 60  # a clock may be so much ahead

SPEEDING_KMH, RECKLESS_KMH = 90.0, 120.0
STOPPED_S = 8.0
RECKLESS_PRIORITY, SPEEDING_PRIORITY, STOPPED_PRIORITY = 9, 5, 1

_POSITION = "id string, vehicle string, path string, at long, lat double, lon double"


def cleaned(messages: DataFrame) -> DataFrame:
    """A row for every message: the position in it, and what is wrong with it, if anything is."""
    parsed = messages.withColumn("position", f.from_json(f.col("body").cast("string"), _POSITION))
    sent_at = f.timestamp_millis("position.at")
    lat, lon = f.col("position.lat"), f.col("position.lon")
    unreadable = f.expr("position.id IS NULL OR position.vehicle IS NULL OR position.at IS NULL")
    latest = f.col("created_at") + f.expr(f"INTERVAL {FUTURE_S} SECONDS")
    fault = (
        f.when(unreadable, "unreadable")
        .when(lat.isNull() | lon.isNull() | ((lat == 0) & (lon == 0)), "no fix")
        .when(~lat.between(-90, 90) | ~lon.between(-180, 180), "out of range")
        .when(sent_at > latest, "from the future")
    )
    return parsed.select(
        f.coalesce("position.id", "id").alias("id"),
        "position.vehicle",
        "position.path",
        sent_at.alias("at"),
        "position.lat",
        "position.lon",
        fault.alias("fault"),
        "source",
        "offset",
        f.col("created_at").alias("received_at"),
        f.to_date("created_at").alias("date"),
    )


def windows(positions: DataFrame) -> DataFrame:
    """How each vehicle moved in each window: a row when the window is over."""
    point = f.struct(f.unix_millis("at").alias("at"), "lat", "lon")
    grouped = (
        positions.where("fault IS NULL")
        .select("at", "vehicle", point.alias("point"))
        .withWatermark("at", f"{LATE_S} seconds")
        .groupBy(f.window("at", f"{WINDOW_S} seconds"), "vehicle")
        .agg(f.collect_list("point").alias("points"))
    )
    way = f.aggregate(f.array_sort("points"), f.expr(_START), _step)
    return grouped.select("window", "vehicle", "points", way.alias("way")).select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        "vehicle",
        f.size("points").alias("positions"),
        f.round("way.metres", 1).alias("metres"),
        f.round(3.6 * f.try_divide("way.metres", "way.seconds"), 1).alias("speed_kmh"),
        f.round("way.stopped_s", 1).alias("stopped_s"),
        f.col("way.jumps").alias("jumps"),
    )


def alerts(moves: DataFrame) -> DataFrame:
    """What somebody should look at, as messages: the dangerous ones go first."""
    speed, stopped_s = f.col("speed_kmh"), f.col("stopped_s")
    kind = (
        f.when(speed >= RECKLESS_KMH, "reckless")
        .when(speed >= SPEEDING_KMH, "speeding")
        .when(stopped_s >= STOPPED_S, "stopped")
    )
    priority = (
        f.when(kind == "reckless", RECKLESS_PRIORITY)
        .when(kind == "speeding", SPEEDING_PRIORITY)
        .otherwise(STOPPED_PRIORITY)
    )
    found = moves.withColumn("kind", kind).where("kind IS NOT NULL")
    name = f.concat_ws("-", "kind", "vehicle", f.unix_seconds("window_start"))
    body = f.struct(name.alias("id"), "kind", "vehicle", "speed_kmh", "stopped_s", "window_start")
    return found.select(
        f.to_json(body).alias("body"),
        priority.alias("priority"),
        f.create_map(f.lit("kind"), "kind", f.lit("vehicle"), "vehicle").alias("attributes"),
    )


def distance_m(lat: Column, lon: Column, other_lat: Column, other_lon: Column) -> Column:
    """Along the surface of the earth (haversine)."""
    north = f.radians(other_lat - lat) / 2
    east = f.radians(other_lon - lon) / 2
    square = f.pow(f.sin(north), 2)
    square += f.cos(f.radians(lat)) * f.cos(f.radians(other_lat)) * f.pow(f.sin(east), 2)
    return 2 * EARTH_M * f.asin(f.sqrt(f.least(f.lit(1.0), square)))


_START = (
    "named_struct('at', CAST(NULL AS BIGINT), 'lat', CAST(NULL AS DOUBLE), "
    "'lon', CAST(NULL AS DOUBLE), 'metres', 0D, 'seconds', 0D, 'stopped_s', 0D, "
    "'jumps', 0, 'is_away', false)"
)


def _step(way: Column, point: Column) -> Column:
    """The way so far, and one position more."""
    metres = distance_m(way["lat"], way["lon"], point["lat"], point["lon"])
    seconds = (point["at"] - way["at"]) / 1000.0
    step = f.struct(metres.alias("metres"), seconds.alias("seconds"))
    # Computed once for all its uses: SQL has no other word for "let".
    return f.transform(f.array(step), lambda step: _on(way, point, step))[0]


def _on(way: Column, point: Column, step: Column) -> Column:
    """A position that is out of reach is left out; when the next one is out of reach too, it was
    the place before that was wrong, and the way goes on here."""
    metres, seconds = step["metres"], step["seconds"]
    is_jump = metres > JUMP_MPS * seconds
    stood_s = f.when(metres < STOP_MPS * seconds, seconds).otherwise(f.lit(0.0))
    more = {
        "metres": way["metres"] + metres,
        "seconds": way["seconds"] + seconds,
        "stopped_s": way["stopped_s"] + stood_s,
    }
    jumps, away = way["jumps"] + f.lit(1), f.lit(True)
    return (
        f.when(way["at"].isNull(), _way(way, point))
        .when(seconds <= 0, way)
        .when(is_jump & ~way["is_away"], way.withField("jumps", jumps).withField("is_away", away))
        .when(is_jump, _way(way, point, jumps=jumps))
        .otherwise(_way(way, point, **more))
    )


def _way(way: Column, point: Column, **changed: Column) -> Column:
    """The way with this as its last position."""
    kept = ("metres", "seconds", "stopped_s", "jumps")
    fields = [point[name].alias(name) for name in ("at", "lat", "lon")]
    fields += [changed.get(name, way[name]).alias(name) for name in kept]
    return f.struct(*fields, f.lit(False).alias("is_away"))
