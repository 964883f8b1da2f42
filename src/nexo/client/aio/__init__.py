"""The asyncio client: the twin of the blocking one, with the same names, awaited.

Lives here: `AsyncClient`, its queues, topics, messages and subscriptions, and their connection.
    `client`, `message`, `queue` and `topic` are the source of the blocking ones.
May import: the rest of client, wire, vocabulary; asyncio, never threads.
Never: blocks the event loop, or needs more of it than asyncio offers (uvloop works as well).
Enter at: `client.AsyncClient`; `connection.Connection` for what happens in one turn of the loop.
Tests: `tests/client/`.
"""
