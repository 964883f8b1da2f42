"""The answer of a statement, for people, for programs, and as a file."""

from __future__ import annotations

import base64
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nexo.query.statements import Statement

PARQUET, CSV = ".parquet", ".csv"


def rows_of(statement: Statement) -> Iterator[dict[str, Any]]:
    """Row by row, as JSON has it: moments in RFC 3339, bytes that are no text as base64, maps as
    objects."""
    for batch in statement.batches():
        for row in batch.to_pylist():
            yield {name: plain(value) for name, value in row.items()}


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
            return {str(key): plain(each) for key, each in value}  # a map of Arrow
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


def write(statement: Statement, path: Path) -> int:
    """The answer as a file of Parquet or CSV, batch by batch; how many rows it has."""
    import pyarrow as pa

    if path.suffix not in (PARQUET, CSV):
        raise InvalidArgument(
            f"--out: {path.name} is neither Parquet nor CSV", "name it with .parquet or .csv"
        )
    reader = statement.run()
    count = 0
    try:
        with _writer(path, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
                count += batch.num_rows
    except OSError as error:
        raise InvalidArgument(f"--out: {path} cannot be written: {error.strerror}") from None
    except pa.ArrowException as error:
        raise statement.refusal(error) from None
    return count


def _writer(path: Path, schema: Any) -> Any:
    if path.suffix == CSV:
        from pyarrow.csv import CSVWriter

        return CSVWriter(path, schema)
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(path, schema)
