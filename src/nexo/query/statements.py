"""SQL statements over queues, topics and the lake, run by DuckDB.

A queue is a table under its name (`FROM orders_dlq`, in double quotes where the name is not plain),
a topic is `topic('news')`, a table of the lake `lake('messages')`. Messages come in batches from
whoever has a connection, and DuckDB takes them as it goes: a huge queue is never held whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from nexo.query.conditions import with_text
from nexo.query.extra import INSTALL, duckdb_or_refusal
from nexo.query.rows import QUEUE_SCHEMA, TOPIC_SCHEMA
from nexo.vocabulary.errors import InvalidArgument, NexoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    Batches = Iterable[pa.RecordBatch]
    Source = Callable[[str], Batches]  # by the name of a queue or topic

_TABLES = ("messages", "events", "insights/queue_minutes", "insights/dead_letters")
# topic('news') and lake("messages"), outside of texts and comments.
_CALL = re.compile(
    r"""(?P<skip>'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/)"""
    r"""|\b(?P<kind>topic|lake)\s*\(\s*'(?P<name>(?:[^']|'')*)'\s*\)""",
    re.IGNORECASE | re.DOTALL,
)
_WORD = re.compile(r'"((?:[^"]|"")*)"|([A-Za-z_][A-Za-z0-9_]*)')
_UNKNOWN = re.compile(r"Table with name (?P<name>\S+) does not exist")
_ROWS_AT_ONCE = 10_000
_CHANGES = frozenset({"DELETE", "UPDATE", "INSERT", "DROP", "ALTER", "MERGE_INTO"})


class Statement:
    """`queues` and `topics` give the messages of a name; `lake` is where the lake is."""

    def __init__(
        self,
        text: str,
        queue_names: Iterable[str],
        queues: Source,
        topics: Source,
        lake: str | None = None,
    ) -> None:
        self._duckdb = duckdb_or_refusal()
        self._lake = lake
        self._topics = topics
        self._failures: list[NexoError] = []
        self._connection = self._duckdb.connect()
        self._connection.execute("SET TimeZone='UTC'")
        self._registered = 0
        self._text = _CALL.sub(self._replaced, text)
        named = {quoted.replace('""', '"') or plain for quoted, plain in _WORD.findall(self._text)}
        for name in named.intersection(queue_names):
            self._connection.register(name, _Messages(QUEUE_SCHEMA, queues, name, self._failures))

    def run(self) -> pa.RecordBatchReader:
        """The answer as it comes, in record batches."""
        try:
            self._check_reads()
            relation = self._connection.sql(self._text)
            if relation is None:
                raise InvalidArgument("the statement returns no rows", "write a SELECT")
            return relation.to_arrow_reader(_ROWS_AT_ONCE)
        except self._duckdb.Error as error:
            raise self.refusal(error) from None

    def _check_reads(self) -> None:
        """DuckDB would refuse a change too, with words about views that nobody made."""
        kinds = {each.type.name for each in self._connection.extract_statements(self._text)}
        if kinds & _CHANGES:
            raise InvalidArgument(
                "SQL reads messages and cannot change them",
                "use nexo queue discard, resend, redrive or purge",
            )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The same, with errors in our words."""
        reader = self.run()
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (self._duckdb.Error, OSError, ValueError) as error:  # Arrow's are of these kinds
                raise self.refusal(error) from None
            yield batch

    def table(self) -> pa.Table:
        """The whole answer."""
        import pyarrow as pa

        reader = self.run()
        try:
            return reader.read_all()
        except (self._duckdb.Error, pa.ArrowException) as error:
            raise self.refusal(error) from None

    def close(self) -> None:
        self._connection.close()

    def refusal(self, error: Exception) -> NexoError:
        """What went wrong: the broker's word, if it was that, or the first line of DuckDB's."""
        if self._failures:
            return self._failures[0]
        unknown = _UNKNOWN.search(str(error))
        if unknown is not None:
            return InvalidArgument(
                f"there is no queue {unknown['name']}",
                "put names with dots or dashes in double quotes; "
                "a topic is topic('name'), the lake is lake('messages')",
            )
        told = str(error).strip().splitlines()
        return InvalidArgument(told[0] if told else "the statement failed")

    def _replaced(self, found: re.Match[str]) -> str:
        if found["skip"] is not None:
            return found["skip"]
        name = found["name"].replace("''", "'")
        is_topic = found["kind"].lower() == "topic"
        self._registered += 1
        table = f"nexo_source_{self._registered}"
        source: Any
        if is_topic:
            source = _Messages(TOPIC_SCHEMA, self._topics, name, self._failures)
        else:
            source = _lake_table(self._lake, name)
        self._connection.register(table, source)
        return table


class _Messages:
    """The messages of a queue or topic as DuckDB takes them: as often as a statement reads them."""

    def __init__(
        self, schema: pa.Schema, source: Source, name: str, failures: list[NexoError]
    ) -> None:
        import pyarrow as pa

        # Not from_pylist, which imports pandas where there is one.
        nothing = [pa.nulls(0, field.type) for field in schema]
        empty = pa.RecordBatch.from_arrays(nothing, schema=schema)
        self._schema = with_text(empty).schema
        self._source = source
        self._name = name
        self._failures = failures

    def __arrow_c_schema__(self) -> object:
        capsule: object = self._schema.__arrow_c_schema__()
        return capsule

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        capsule: object = reader.__arrow_c_stream__(requested_schema)
        return capsule

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for rows in self._source(self._name):
                yield from with_text(rows).to_batches()
        except NexoError as error:  # Arrow would tell of it in its own words
            self._failures.append(error)
            raise


def _lake_table(lake: str | None, name: str) -> Any:
    if lake is None:
        raise InvalidArgument("no lake was given", "add --lake DIR, or set NEXO_LAKE")
    if name not in _TABLES:
        raise InvalidArgument(
            f"the lake has no table {name!r:.60}", f"its tables are {', '.join(_TABLES)}"
        )
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError:
        raise InvalidArgument("the lake needs the package deltalake", INSTALL) from None
    try:
        return DeltaTable(f"{lake.rstrip('/')}/{name}").to_pyarrow_dataset()
    except TableNotFoundError:
        raise InvalidArgument(
            f"the lake {lake} has no table {name}",
            f"check the location of the lake; nexo pipeline run {_job_of(name)} writes the table",
        ) from None
    except (DeltaError, OSError) as error:
        raise InvalidArgument(
            f"the table {name} of the lake {lake} cannot be read: {str(error)[:200]}",
            f"nexo pipeline run {_job_of(name)} writes it",
        ) from None


def _job_of(table: str) -> str:
    return "insights" if table.startswith("insights/") else "archive"
