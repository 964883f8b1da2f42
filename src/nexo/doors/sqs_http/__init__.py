"""The SQS door: Amazon's queue protocol over HTTP, JSON and query form alike.

Lives here: an ASGI app, its two protocols, one short file a group of actions, digests, receipts.
May import: engine, access, telemetry, vocabulary.
Never: decides anything about messages, or answers otherwise than AWS does.
Enter at: `app.SqsApp`.
Tests: `tests/sqs/` (shapes, digests, parsers, abuse), `tests/compliance/` (real clients).
"""
