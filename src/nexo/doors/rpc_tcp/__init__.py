"""The RPC door: the native protocol over TCP.

Lives here: the listener, its connections, the handlers of each kind of frame and of named calls.
May import: engine, access, telemetry, wire, vocabulary.
Never: decides anything about messages, or lets a client grow the broker's memory.
Enter at: `door.RpcDoor`.
Tests: `tests/e2e/`, and the codec in `tests/unit/wire/`.
"""
