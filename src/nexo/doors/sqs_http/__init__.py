"""The SQS door: Amazon's queue protocol over HTTP, JSON and query form alike.

Lives here: the app, its two protocols, and a file for each noun that its actions are about.
May import: engine, access, telemetry, vocabulary, `doors.http`.
Never: decides anything about messages, or answers otherwise than AWS does.
Enter at: `app.SqsApp`; `actions` lists what it does.
Tests: `tests/sqs/` (shapes, digests, parsers, abuse), `tests/compliance/` (real clients).
"""
