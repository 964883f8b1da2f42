"""SQL on messages: as Arrow tables, by DuckDB.

Lives here: parts of the wire as Arrow record batches, conditions on them, statements over queues,
    topics and the lake.
May import: wire, vocabulary; pyarrow, numpy and duckdb where they are used (extra `sql`).
Never: asks the broker: whoever has a connection hands the messages in.
Enter at: `rows.queue_rows`, `conditions.Condition`; `nexo.sql()` for users.
Tests: `tests/query/`; the rows also in `tests/spark/`.
"""
