"""The blocking client: the calling thread writes and reads the socket itself.

Lives here: `Client`, its queues, topics, messages and subscriptions, and the connection below them.
    What says so in its first line is generated from `aio`; the rest is what the twins do otherwise.
May import: the rest of client, wire, vocabulary; threads, never asyncio.
Never: hands a call over to another thread; the keeper only does what nobody else is there for.
Enter at: `client.Client`; `connection.Connection` for who reads when.
Tests: `tests/client/`.
"""
