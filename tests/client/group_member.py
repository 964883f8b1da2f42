"""A member of a consumer group as a process: writes what it has got to a file, then acks it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nexo


def main(url: str, group: str, file: str) -> None:
    descriptor = os.open(Path(file), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with nexo.connect(url, timeout=40) as client:
        subscription = client.topic("news").subscribe(group=group, start="earliest", prefetch=20)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for event in subscription:
            os.write(descriptor, event.body + b"\n")
            try:
                event.ack()
            except nexo.StaleReceipt:
                continue  # the broker was killed: it comes again


if __name__ == "__main__":
    main(*sys.argv[1:])
