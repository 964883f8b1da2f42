"""What survives.

Lives here: the journal port; the journals in memory, on SQLite, in PostgreSQL; the verifier.
May import: machine (only the verifier, to fold records) and vocabulary; apsw, psycopg.
Never: decides anything about messages, or knows about consumers.
Enter at: `port.Journal` (the page to implement), `sqlite.SqliteJournal` (the one in use).
Tests: `tests/journal/`.
"""
