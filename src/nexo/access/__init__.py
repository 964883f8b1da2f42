"""Who is asking, and whether they may.

Lives here: tokens and what they allow, the guard, AWS signatures (SigV4), TLS, the audit log.
May import: vocabulary.
Never: knows a protocol, reads a clock, or keeps a secret longer than a bounded cache does.
Enter at: `guard.Guard`; `sigv4.verify`, and `sigv4.scope_of` where nobody is verified.
Tests: `tests/unit/access/`; through the doors in `tests/access/` and `tests/compliance/`.
"""
