"""The admin API: `/api/v1` in JSON, with an OpenAPI document made from the types that decode it.

Lives here: a file for each group of operations, the table of all, and how a request is read.
May import: engine, access, vocabulary, `doors.http`.
Never: does anything that has no row in the table, or takes a field that it does not know.
Enter at: `app.OPERATIONS`, then `app.AdminApp`.
Tests: `tests/admin/`.
"""
