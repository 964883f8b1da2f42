"""Dead letters of a queue, once there are as many as a test waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.client.eventually import eventually

if TYPE_CHECKING:
    import nexo


def reasons(client: nexo.Client, count: int, queue: str = "q") -> dict[str, str]:
    """Why messages are dead letters, by their bodies."""
    eventually(lambda: client.queue(queue).info().dead_lettered == count, 30)
    letters = client.queue(f"{queue}_dlq")
    eventually(lambda: len(letters.peek(count)) == count)
    found = letters.peek(count)
    return {each.text: each.dead_letter.reason for each in found if each.dead_letter}
