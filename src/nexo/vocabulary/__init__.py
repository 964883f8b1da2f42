"""The words that every room speaks.

Lives here: names, identities, batches, messages, settings, changes, events, errors, limits, units.
May import: msgspec and the standard library; no other room.
Never: performs I/O, reads a clock, draws chance, or keeps state.
Enter at: `batch.Batch` (what is pushed) and `changes.Change` (what a rule did).
Tests: `tests/unit/vocabulary/`.
"""
