"""Over UDP: a datagram for each position, and no second one.

A datagram may get lost, and so may its confirmation; the next position is due in a second, so
nothing is sent again. What was not confirmed may or may not be in the topic.
"""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING

from examples.gps.names import BY_UDP
from examples.gps.position import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.gps.position import Position

CONFIRM_S = 2.0
_HEAD = f'{{"action": "publish", "topic": "{BY_UDP}", "ref": '.encode()


class UdpSender:
    path = "udp"

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect((host, port))

    def send(self, positions: Sequence[Position]) -> list[str]:
        """Returns those that were confirmed in time."""
        waiting = {position.id for position in positions}
        confirmed: list[str] = []
        try:
            for position in positions:
                name = json.dumps(position.id).encode()
                self._socket.send(_HEAD + name + b', "payload": ' + encode(position) + b"}")
            until = time.monotonic() + CONFIRM_S
            while waiting and (left := until - time.monotonic()) > 0:
                self._socket.settimeout(left)
                reply = json.loads(self._socket.recv(65_536))
                # What comes late is one of an earlier call: it was given up, and is not counted.
                if reply.get("ref") in waiting and reply["status"] == "success":
                    waiting.remove(reply["ref"])
                    confirmed.append(reply["ref"])
        except (TimeoutError, ConnectionError):
            pass  # nobody listens, while the broker starts again
        return confirmed

    def close(self) -> None:
        self._socket.close()
