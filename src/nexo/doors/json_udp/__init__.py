"""The UDP door: topics as JSON datagrams.

Lives here: the socket, datagrams as commands, replies, subscriptions, and the rules against abuse.
May import: engine, access, telemetry, vocabulary.
Never: answers a publish before it is on disk, or lets an address grow memory or traffic.
Enter at: `door.UdpDoor`; `datagram.decode` for what a datagram may say.
Tests: `tests/udp/`.
"""
