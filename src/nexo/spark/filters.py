"""Conditions that Spark hands down: to the broker by ranges, and to the rows of an Arrow batch.

Only comparisons with plain values of four columns are taken; Spark keeps the rest to itself. What
the broker leaves out it leaves out by whole runs, so the rows are looked at all the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from nexo.wire.calls import Ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter

_COMPARED = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_TYPES = {
    "priority": pa.int32(),
    "attempts": pa.int32(),
    "created_at": pa.timestamp("us", tz="UTC"),
    "group_id": pa.string(),
}
_WANTED_NAMES = {"priority": "priority", "attempts": "attempts", "created_at": "created_ms"}
_LOWEST, _HIGHEST = -(2**62), 2**62


def takes(condition: Filter) -> bool:
    """Whether this is a condition that is applied here."""
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(path) != 1 or path[0] not in _TYPES:
        return False
    name = path[0]
    if isinstance(condition, (IsNull, IsNotNull)):
        return True
    if isinstance(condition, In):
        return all(_fits(name, value) for value in condition.value)
    compared: Any = condition
    return type(condition) in (*_COMPARED, EqualNullSafe) and _fits(name, compared.value)


def ranges(conditions: Iterable[Filter]) -> Ranges:
    """What the broker is asked for: the lowest and the highest value of some columns."""
    wanted: dict[str, tuple[int, int]] = {}
    for condition in conditions:
        name = _WANTED_NAMES.get(condition.attribute[0])  # type: ignore[attr-defined]
        bounds = _bounds(condition)
        if name is not None and bounds is not None:
            low, high = wanted.get(name, (_LOWEST, _HIGHEST))
            wanted[name] = (max(low, bounds[0]), min(high, bounds[1]))
    return Ranges(**wanted)


def chosen(rows: pa.RecordBatch, conditions: Iterable[Filter]) -> pa.RecordBatch:
    """The rows that meet all conditions."""
    for condition in conditions:
        column = rows.column(condition.attribute[0])  # type: ignore[attr-defined]
        rows = rows.filter(_mask(column, condition))
    return rows


def _mask(column: pa.Array, condition: Any) -> pa.Array:
    if isinstance(condition, IsNull):
        return pc.is_null(column)
    if isinstance(condition, IsNotNull):
        return pc.is_valid(column)
    if isinstance(condition, In):
        values = [_comparable(value) for value in condition.value if value is not None]
        return pc.is_in(column, value_set=pa.array(values, column.type))
    if condition.value is None:
        return pc.is_null(column) if isinstance(condition, EqualNullSafe) else _none(column)
    compare = _COMPARED.get(type(condition), pc.equal)
    return compare(column, pa.scalar(_comparable(condition.value), column.type))


def _none(column: pa.Array) -> pa.Array:
    """What is compared with nothing is neither true nor false."""
    return pa.array([False] * len(column))


def _bounds(condition: Any) -> tuple[int, int] | None:
    if isinstance(condition, (EqualTo, EqualNullSafe)) and condition.value is not None:
        value = _number(condition.value)
        return value, value
    if isinstance(condition, In):
        values = [_number(value) for value in condition.value if value is not None]
        return (min(values), max(values)) if values else None
    if isinstance(condition, (GreaterThan, GreaterThanOrEqual)) and condition.value is not None:
        return _number(condition.value), _HIGHEST
    if isinstance(condition, (LessThan, LessThanOrEqual)) and condition.value is not None:
        return _LOWEST, _number(condition.value) + 1
    return None


def _number(value: Any) -> int:
    """A value as the broker counts: times in milliseconds. Bounds may be wide, never narrow."""
    if isinstance(value, datetime):
        return int(_comparable(value).timestamp() * 1000)
    return int(value) if isinstance(value, int) else 0


def _fits(name: str, value: Any) -> bool:
    if value is None:
        return True
    if name == "created_at":
        return isinstance(value, datetime) and value.tzinfo is not None
    return isinstance(value, str if name == "group_id" else int)


def _comparable(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
