"""The SNS door: Amazon's notification service over HTTP, for fan-out from topics to queues.

Lives here: the actions of SNS on the topics of the broker, and on queues bound to them.
May import: engine, access, vocabulary, `doors.http`.
Never: decides anything about messages, reads a request from the wire, or answers otherwise than
AWS does.
Enter at: `app.SnsApi`, which the front of the SQS API hands its requests; it lists what there is.
Tests: `tests/sns/`.
"""
