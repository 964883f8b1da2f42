"""Protocols: each door speaks one, and holds no state of messages.

Lives here: one folder a protocol.
May import: engine, access, telemetry, wire, vocabulary.
Never: imports machine or journal, or another door.
Enter at: `rpc_tcp.door.RpcDoor`.
Tests: `tests/e2e/`.
"""
