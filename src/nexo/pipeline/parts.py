"""A table of the lake in Spark, without a jar: its files are chosen here and read by tasks.

The table's log says of each file which offsets and times are in it, so files that hold nothing of
what is asked for are not opened, and of the others only the parts that do.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.pandas.types import from_arrow_schema

from nexo.pipeline.delta import (
    EVENTS_TABLE,
    MESSAGES_TABLE,
    is_readable_by_files,
    open_table,
    store_errors,
)
from nexo.pipeline.lake import EVENTS, MESSAGES, Lake
from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from nexo.pipeline.delta import Kind

_PARTS_EACH = 2  # tasks for each core: files are not alike


class Part(msgspec.Struct, frozen=True):
    """A file of a table. `lowest` and `highest` are what is in it, by column; a column that is
    not there may hold anything."""

    path: str
    partition: dict[str, str | None]
    lowest: dict[str, Any]
    highest: dict[str, Any]


class Bounds(msgspec.Struct, frozen=True):
    """What is asked for of a column: `low` and more, less than `end`. None is no bound."""

    low: int | datetime | None = None
    end: int | datetime | None = None

    def may_be_in(self, part: Part, column: str) -> bool:
        lowest, highest = part.lowest.get(column), part.highest.get(column)
        is_below = self.low is not None and highest is not None and highest < self.low
        is_above = self.end is not None and lowest is not None and lowest >= self.end
        return not is_below and not is_above

    def chosen(self, column: str) -> ds.Expression | None:
        chosen = None
        if self.low is not None:
            chosen = ds.field(column) >= self.low
        if self.end is not None:
            below = ds.field(column) < self.end
            chosen = below if chosen is None else chosen & below
        return chosen


def parts_of(table: DeltaTable, kind: Kind) -> list[Part]:
    """The files of a table, by its log alone."""
    is_readable_by_files(table)
    adds = pa.table(table.get_add_actions(flatten=True))
    there = set(adds.column_names)
    rows = adds.to_pylist()

    def told(row: dict[str, Any], which: str) -> dict[str, Any]:
        found = {
            name: row[f"{which}.{name}"] for name in kind.skipped_by if f"{which}.{name}" in there
        }
        return {name: _utc(value) for name, value in found.items() if value is not None}

    return [
        Part(
            unquote(row["path"]),
            {name: _text(row[f"partition.{name}"]) for name in kind.partitions},
            told(row, "min"),
            told(row, "max"),
        )
        for row in rows
    ]


def read_table(
    spark: SparkSession, lake: Lake | str, name: str = MESSAGES, **partition: str
) -> DataFrame:
    """`messages` or `events` of a lake; of some partition alone, such as source="orders"."""
    place = Lake(lake) if isinstance(lake, str) else lake
    kinds = {MESSAGES: MESSAGES_TABLE, EVENTS: EVENTS_TABLE}
    if name not in kinds or not partition.keys() <= set(kinds[name].partitions):
        told = "; ".join(f"{key} by {', '.join(each.partitions)}" for key, each in kinds.items())
        raise InvalidArgument(f"{name!r:.40} cannot be read by {partition}", f"there are: {told}")
    parts = parts_of(open_table(place, kinds[name]), kinds[name])
    chosen = [part for part in parts if partition.items() <= part.partition.items()]
    return rows_of(spark, place, kinds[name], chosen, {})


def columns_of(kind: Kind) -> StructType:
    """The columns of a table as Spark has them."""
    return from_arrow_schema(kind.schema)


def rows_of(
    spark: SparkSession, lake: Lake, kind: Kind, parts: list[Part], bounds: dict[str, Bounds]
) -> DataFrame:
    """The rows of these files that lie within the bounds."""
    files = [(msgspec.json.encode({"path": p.path, "partition": p.partition}),) for p in parts]
    tasks = max(1, min(len(files), _PARTS_EACH * spark.sparkContext.defaultParallelism))
    listed = spark.createDataFrame(files, "file binary").repartition(tasks)
    return listed.mapInArrow(_reader(lake, kind, bounds), columns_of(kind))


def _reader(
    lake: Lake, kind: Kind, bounds: dict[str, Bounds]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs on an executor."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = lake.files() if lake.folder is None else None
        plain = [field for field in kind.schema if field.name not in kind.partitions]
        for batch in batches:
            for content in batch["file"].to_pylist():
                told = msgspec.json.decode(content)
                path = f"{kind.name}/{told['path']}"
                if lake.folder is not None:
                    path = str(lake.folder / path)
                with store_errors(path):
                    found = ds.dataset(
                        path, schema=pa.schema(plain), format="parquet", filesystem=files
                    )
                    for rows in found.to_batches(filter=_filter(bounds)):
                        yield _whole(rows, kind, told["partition"])

    return read


def _filter(bounds: dict[str, Bounds]) -> ds.Expression | None:
    all_of = None
    for name, each in bounds.items():
        one = each.chosen(name)
        if one is not None:
            all_of = one if all_of is None else all_of & one
    return all_of


def _whole(rows: pa.RecordBatch, kind: Kind, partition: dict[str, str | None]) -> pa.RecordBatch:
    """Rows of a file with the columns of their partition, which are not in it."""
    columns = []
    for field in kind.schema:
        if field.name in kind.partitions:
            value: Any = partition[field.name]
            if pa.types.is_date32(field.type) and value is not None:
                value = date.fromisoformat(value)
            columns.append(pa.repeat(pa.scalar(value, field.type), rows.num_rows))
        else:
            columns.append(rows[field.name].cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=kind.schema)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
