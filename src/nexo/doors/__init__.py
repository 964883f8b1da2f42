"""Protocols: each door speaks one, and holds no state of messages.

Lives here: one folder a protocol.
May import: engine, access, telemetry, wire, vocabulary.
Never: imports machine or journal, or another door.
Enter at: `rpc_tcp.door.RpcDoor`, `json_udp.door.UdpDoor`, `http.server.HttpDoor` and the apps
    that it serves: `sqs_http`, `admin_http`, `metrics_http`.
Tests: `tests/e2e/`, `tests/sqs/`, `tests/compliance/`; each folder says where its own are.
"""
