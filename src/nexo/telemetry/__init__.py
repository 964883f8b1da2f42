"""What the broker measures of itself, and how Prometheus reads it.

Lives here: the meters that the engine feeds, every metric's name, the text format.
May import: vocabulary.
Never: asks an actor, opens a socket, or costs more than a few additions a commit.
Enter at: `meters.Meters`; `families` is the page with every metric.
Tests: `tests/unit/telemetry/`, and `tests/metrics/` against a running broker.
"""
