"""The metrics door: `/metrics` for Prometheus.

Lives here: the app, and how the engine's figures become samples.
May import: engine, telemetry, access, vocabulary.
Never: changes anything, or keeps the event loop from its work for more than a few milliseconds.
Enter at: `app.MetricsApp`.
Tests: `tests/metrics/`.
"""
