"""The RPC protocol as bytes, without sockets.

Lives here: frames, the greeting, commands and replies, columnar batches and deliveries as bytes.
May import: vocabulary.
Never: performs I/O, awaits, reads a clock, or knows whether it serves a broker or a client.
Enter at: `frame.FrameReader` and `frame.frame`; `docs/reference/rpc-protocol.md` is its manual.
Tests: `tests/unit/wire/`, fuzzed in `tests/property/`.
"""
