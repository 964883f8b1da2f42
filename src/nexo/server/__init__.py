"""The broker as a process: engine and doors put together.

Lives here: the composition of a broker, its configuration, its start and stop in order.
May import: cluster (for a node), doors, pipeline, engine, journal, access, telemetry, vocabulary.
Never: knows a protocol or a rule.
Enter at: `broker.Broker`; `service.serve` runs one until a signal comes.
Tests: `tests/cli/`, and through its doors `tests/e2e/`.
"""
