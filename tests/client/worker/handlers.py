"""Handlers that processes can import."""

from __future__ import annotations

import os
import time
from typing import Any


def note(event: dict[str, Any], context: Any) -> None:
    """Write the bodies and this process to the file that the first attribute names."""
    for record in event["Records"]:
        path = record["messageAttributes"]["file"]["stringValue"]
        with open(path, "a") as file:  # noqa: PTH123
            file.write(f"{os.getpid()} {record['body']} {context.function_name}\n")


async def note_async(event: dict[str, Any], context: Any) -> None:
    note(event, context)


def hang_once(event: dict[str, Any], context: Any) -> None:
    if event["Records"][0]["attributes"]["ApproximateReceiveCount"] == "1":
        time.sleep(60)
    note(event, context)


def die_once(event: dict[str, Any], context: Any) -> None:
    if event["Records"][0]["attributes"]["ApproximateReceiveCount"] == "1":
        os._exit(7)
    note(event, context)


def fail(event: dict[str, Any], context: Any) -> None:
    raise ValueError("from a process")
