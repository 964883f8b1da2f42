"""What clients of a cluster asked for and were told, and what may therefore be."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from nexo.simulation.history import Violation

if TYPE_CHECKING:
    from nexo.simulation.history import History


def dead_letters_of(queue: str) -> str:
    """Mostly they live in another shard."""
    return f"dead{queue}"


class Known(enum.Enum):
    NO = "no"
    UNKNOWN = "unknown"  # it was asked for, and the answer is lost or still to come
    YES = "yes"


class Letter:
    """One message that a producer wants to be there once."""

    __slots__ = ("acked_at", "body", "doubts", "ids", "pushed", "queue", "seen")

    def __init__(self, queue: str, body: str) -> None:
        self.queue, self.body = queue, body
        self.pushed = Known.NO
        self.acked_at = 0  # the line of history that first confirms it
        self.doubts = 0  # acks that are under way, or whose outcome nobody knows
        self.ids: dict[str, str] = {}  # by queue
        self.seen = 0


class Ledger:
    def __init__(self, history: History) -> None:
        self.history = history
        self.letters: dict[str, Letter] = {}

    def letter(self, queue: str) -> Letter:
        made = Letter(queue, f"m{len(self.letters)}")
        self.letters[made.body] = made
        return made

    def delivered(self, queue: str, body: str, message_id: str, asked_at: int) -> Letter:
        """A message has come to who asked for it at that line of history."""
        letter = self.letters.get(body)
        homes = () if letter is None else (letter.queue, dead_letters_of(letter.queue))
        if letter is None or letter.pushed is Known.NO or queue not in homes:
            raise Violation("nothing comes that was not pushed", f"{body} in {queue}", body)
        if letter.ids.setdefault(queue, message_id) != message_id:
            raise Violation(
                "a push that is sent again is one message",
                f"{body} in {queue} is {letter.ids[queue]} and {message_id}",
                body,
            )
        if 0 < letter.acked_at < asked_at:
            raise Violation("nothing comes back after a confirmed ack", f"{body} ({queue})", body)
        letter.seen += 1
        return letter

    def check_all(self) -> None:
        """Everything was drained: what is not acked is lost."""
        for letter in self.letters.values():
            if letter.pushed is Known.YES and not (letter.acked_at or letter.doubts):
                raise Violation(
                    "nothing confirmed is lost",
                    f"{letter.body} of {letter.queue} was seen {letter.seen} times, and is nowhere",
                    letter.body,
                )
