"""What systemd is told of the broker, where it asked for it: a line to the socket it named."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Tell `READY=1`, `STOPPING=1` or `STATUS=…`; nothing happens without systemd."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name that is not in the file system
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
        try:
            told.sendto(state.encode(), address)
        except OSError:  # nobody listens any more: the broker goes on
            return
