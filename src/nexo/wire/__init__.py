"""The RPC protocol as bytes, without sockets.

Lives here: frames, the greeting, commands and replies, the named calls with what they ask and
answer, columnar batches and deliveries as bytes.
May import: vocabulary.
Never: performs I/O, awaits, reads a clock, or knows whether it serves a broker or a client.
Enter at: `frame.FrameReader`, `calls.CALLS`; `docs/reference/rpc-protocol.md` is the manual.
Tests: `tests/unit/wire/`, fuzzed in `tests/property/`.
"""
