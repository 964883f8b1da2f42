"""What Airflow loads when it starts: which provider this package is."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    return {
        "package-name": "nexo-broker",
        "name": "Nexo",
        "description": "A DAG starts when a message comes to a queue of Nexo.",
        "queues": ["nexo.integrations.airflow.NexoMessageQueueProvider"],
    }
