"""The Python client: `Client` and `AsyncClient`, twins on one protocol half.

Lives here: the session (what a connection is about, without sockets), and the two that do I/O. The
    blocking one is generated from the asyncio one where they are alike: `scripts/twins.py`.
May import: `aio` and `blocking` (in `connect` and `sql`), query (for SQL), wire, vocabulary;
    msgspec and the standard library. It ships without the broker.
Never: imports the broker, or keeps a rule of it; asyncio only in `aio`, threads in `blocking`,
    both in `worker`.
Enter at: `nexo.connect` and `nexo.connect_async`; `session.Session` for what they share.
Tests: `tests/client/`, every scenario on both twins.

A push passes, in this order: `queue`, `requests`, `bodies`, `pushes`, `handle`, `connection`,
`session`, `operation`; of a blocking client also `sockets`, `threads`.
"""
