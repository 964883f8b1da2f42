"""Where the rules meet time, the disk and waiting consumers.

Lives here: the actors of queues, topics and the catalog; committer, waiting room, timers, moves.
May import: machine, journal, access, telemetry, vocabulary; asyncio.
Never: parses a protocol, or decides what the rules decide.
Enter at: `engine.Engine`.
Tests: `tests/engine/`, and the simulation drives all of it.
"""
