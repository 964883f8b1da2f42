"""Who is asking, and whether they may.

Lives here: tokens, what they allow and what operations need, the guard, AWS signatures, TLS, the
audit log.
May import: vocabulary.
Never: knows a protocol, reads a clock, or keeps a secret longer than a bounded cache does.
Enter at: `guard.Guard`; `operations.OPERATIONS` for who may do what; `sigv4.verify`.
Tests: `tests/unit/access/`; through the doors in `tests/access/` and `tests/compliance/`.
"""
