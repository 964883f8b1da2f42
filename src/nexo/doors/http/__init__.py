"""The HTTP front: one port, on which several apps are served by the beginning of the path.

Lives here: the server and its limits, the front that routes and guards, `/health`, how bodies and
forms are read, and what the services of AWS share of the query protocol.
May import: engine, access, telemetry, vocabulary.
Never: knows what a service does, or lets a client hold a connection for nothing.
Enter at: `server.HttpDoor`.
Tests: `tests/sqs/`.
"""
