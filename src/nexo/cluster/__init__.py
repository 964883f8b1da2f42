"""Several brokers as one: nodes over a journal in PostgreSQL.

Lives here: placement of names and shards, the life of a node, its shards, passing calls on,
forwarding what goes from one shard to another; and `whole`, what all nodes have as one.
May import: doors, engine, journal, access, telemetry, wire, vocabulary; asyncio.
Never: is imported by a broker that is alone, or writes past a shard's fence.
Enter at: `node.Node`; `placement` has the rules.
Tests: `tests/cluster/`.
"""
