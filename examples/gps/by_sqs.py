"""Through the SQS API, as any program for AWS would, with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

from examples.gps.names import POSITIONS
from examples.gps.position import encode

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from examples.gps.position import Position

BATCH_MAX = 10  # SQS takes no more at once
TIMEOUT_S = 5.0
PAUSE_S = 0.2


class SqsSender:
    path = "sqs"

    def __init__(self, host: str, port: int, over: threading.Event) -> None:
        self._url = f"http://{host}:{port}/000000000000/{POSITIONS}"
        self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        self._over = over

    def send(self, positions: Sequence[Position]) -> list[str]:
        """Returns those that have a MessageId. Until then they are sent again: the queue knows
        them by their content, so that one that had arrived is not doubled."""
        confirmed: list[str] = []
        for start in range(0, len(positions), BATCH_MAX):
            left = {str(n): each for n, each in enumerate(positions[start : start + BATCH_MAX])}
            while left:
                confirmed += [left.pop(entry).id for entry in self._try(left)]
                if left and self._over.wait(PAUSE_S):
                    return confirmed
        return confirmed

    def close(self) -> None:
        self._connection.close()

    def _try(self, left: dict[str, Position]) -> list[str]:
        entries = [
            {"Id": entry, "MessageBody": encode(position).decode()}
            for entry, position in left.items()
        ]
        try:
            answer = self._ask("SendMessageBatch", QueueUrl=self._url, Entries=entries)
        except (OSError, http.client.HTTPException):
            self._connection.close()  # the next request opens it again
            return []
        return [each["Id"] for each in answer.get("Successful", ()) if each["MessageId"]]

    def _ask(self, action: str, **wanted: Any) -> dict[str, Any]:
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"AmazonSQS.{action}",
        }
        self._connection.request("POST", "/", json.dumps(wanted), headers)
        response = self._connection.getresponse()
        content = response.read()
        answer: dict[str, Any] = json.loads(content) if response.status == 200 else {}
        return answer
