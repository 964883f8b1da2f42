"""The queues and topics of the fleet, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nexo import Client

POSITIONS = "gps.positions"  # what comes through the SQS API and from native clients
POSITIONS_KEPT = f"nexo.archive.{POSITIONS}"
BY_UDP = "gps.udp"  # datagrams are published: this is a topic
ALERTS = "gps.alerts"
DEAD_ALERTS = f"{ALERTS}_dlq"

ATTEMPTS_MAX = 3
RETRY_S = 0.5


def create(client: Client) -> None:
    """All of them; those that are there stay as they are."""
    # Whoever is not sure that a send arrived sends it again, and the broker takes it once. The
    # archive lets a second query read what the first one takes.
    client.create_queue(POSITIONS, deduplication="content", archive=True)
    # A topic that is first named by a datagram would keep the last 100 messages.
    client.create_topic(BY_UDP)
    client.create_queue(DEAD_ALERTS)
    client.create_queue(
        ALERTS,
        max_attempts=ATTEMPTS_MAX,
        dead_letter=DEAD_ALERTS,
        backoff={"initial": RETRY_S, "factor": 2.0, "max": 10.0, "jitter": 0.2},
    )
