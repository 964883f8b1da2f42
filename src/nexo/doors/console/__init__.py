"""The console: `/console` for the people who run queues, rendered on the server and live by SSE.

Lives here: a file for each page, the samples behind its lines, templates and what they load.
May import: engine, access, telemetry, vocabulary, `doors.http`.
Never: loads anything from elsewhere, trusts a body, or shows a number of its own making.
Enter at: `routes.ROUTES`, then `app.ConsoleApp`.
Tests: `tests/console/`.
"""
