"""A condition in SQL on the messages of a queue, evaluated by DuckDB a page at a time.

It sees the columns of Spark, and `text` (the body as UTF-8), `reason` (of a dead letter) and
`state`. It reads nothing but the messages: no file and no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.query.extra import duckdb_or_refusal
from nexo.query.rows import DEAD_LETTER_PREFIX, queue_rows
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.states import State
from nexo.wire.columns import raw_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

STATES = {int(state): state.name.lower() for state in State}
REASON = f"attributes['{DEAD_LETTER_PREFIX}reason']"


def with_text(rows: pa.RecordBatch) -> pa.Table:
    """The rows with the body as text (null if it is none) and the reason of dead letters."""
    import pyarrow as pa

    table = pa.Table.from_batches([rows])
    body = rows.column("body")
    # The same bytes, checked; a cast would do, and would import much more.
    text = pa.Array.from_buffers(pa.string(), len(body), body.buffers(), offset=body.offset)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        text = pa.array([_text(each) for each in body.to_pylist()], pa.string())
    reason = _reasons(rows.column("attributes"))
    return table.append_column("text", text).append_column("reason", reason)


def _reasons(attributes: pa.MapArray) -> pa.Array:
    import pyarrow as pa

    if attributes.null_count == len(attributes):  # as of most queues
        return pa.nulls(len(attributes), pa.string())
    import pyarrow.compute as pc  # a tenth of a second, which not every command has to pay

    found = pc.map_lookup(attributes, f"{DEAD_LETTER_PREFIX}reason", "first")
    return found.cast(pa.string())


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


class Row:
    """A message that a condition holds for: its number, id and reason."""

    __slots__ = ("id", "reason", "seq")

    def __init__(self, seq: int, id_text: str, reason: str | None) -> None:
        self.seq = seq
        self.id = id_text
        self.reason = reason or ""


class Condition:
    def __init__(self, where: str) -> None:
        self._duckdb = duckdb_or_refusal()
        self._where = where
        self._connection = self._duckdb.connect(config={"enable_external_access": "false"})
        self._connection.execute("SET TimeZone='UTC'")

    def matching(
        self, body: memoryview, states: Sequence[int], queue: str, incarnation: int
    ) -> list[Row]:
        """Of a page of a view, those that the condition holds for, in order."""
        parts = raw_parts(body)
        if not parts:
            return []
        named = [STATES[state] for state in states]
        table = with_text(queue_rows(parts, queue, incarnation, named))
        self._connection.register("messages", table)
        # The condition is the user's own, on the user's machine, and reads nothing else.
        statement = f'SELECT "offset", id, reason FROM messages WHERE ({self._where}\n)'  # noqa: S608
        try:
            found = self._connection.execute(statement).fetchall()
        except self._duckdb.Error as error:
            told = str(error).strip().splitlines()[0]
            raise InvalidArgument(
                f"the SQL condition is not valid: {told}",
                "columns: id, body, text, priority, attempts, created_at, attributes, group_id, "
                "source, offset, state, reason",
            ) from None
        return sorted((Row(*each) for each in found), key=lambda row: row.seq)

    def close(self) -> None:
        self._connection.close()
