"""What survives.

Lives here: the journal port, the memory journal, the embedded journal on SQLite, the verifier.
May import: machine (only the verifier, to fold records) and vocabulary; apsw.
Never: decides anything about messages, knows about consumers, or runs on the event loop by itself.
Enter at: `port.Journal` (the page to implement), `sqlite.SqliteJournal` (the one in use).
Tests: `tests/journal/`.
"""
