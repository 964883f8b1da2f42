"""The server of the original protocol as a model: everything in memory, every message kept until a
hundred newer ones came. What it answers is what the broker must answer, but for the code that an
error has beside its text, and the time of a message."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from typing import Any

KEPT = 100


class OriginalServer:
    def __init__(self) -> None:
        self._topics: defaultdict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._subscriptions: defaultdict[int, set[str]] = defaultdict(set)

    def reply(self, data: bytes, client: int) -> bytes:
        """What is sent back, with 0 for every time."""
        try:
            message = json.loads(data.decode())
        except ValueError:
            return _error("Formato messaggio non valido")
        action, topic = message.get("action"), message.get("topic")
        if action not in ("publish", "subscribe", "get"):
            return _error(f"Azione non supportata: {action}")
        if not topic:
            return _error("Topic mancante")
        response = {"status": "success", "action": action, "topic": topic}
        if action == "publish":
            if message.get("payload") is None:
                return _error("Payload mancante")
            self._topics[topic].append({"payload": message["payload"], "timestamp": 0})
        elif action == "subscribe":
            self._subscriptions[client].add(topic)
        else:
            known = topic in self._topics and topic in self._subscriptions[client]
            response["messages"] = list(self._topics[topic]) if known else []
        return json.dumps(response).encode()


def _error(text: str) -> bytes:
    return json.dumps({"status": "error", "error": text}).encode()
