"""The two waits that AWS imposes, off unless they are wanted: a queue is purged at most once a
minute, and a name is free again a minute after its queue was deleted."""

from __future__ import annotations

from nexo.doors.sqs_http.errors import SqsError

_MINUTE_MS = 60_000


class Pauses:
    def __init__(self, is_on: bool = False) -> None:
        self._is_on = is_on
        self._purged: dict[str, int] = {}
        self._deleted: dict[str, int] = {}

    def purge(self, name: str, now_ms: int) -> None:
        if self._is_on:
            if _recent(self._purged, name, now_ms):
                plain = name.rpartition("/")[2]
                raise SqsError(
                    "PurgeQueueInProgress",
                    f"Only one PurgeQueue operation on {plain} is allowed every 60 seconds.",
                )
            self._purged[name] = now_ms

    def delete(self, name: str, now_ms: int) -> None:
        if self._is_on:
            self._deleted[name] = now_ms

    def create(self, name: str, now_ms: int) -> None:
        if self._is_on and _recent(self._deleted, name, now_ms):
            raise SqsError(
                "QueueDeletedRecently",
                "You must wait 60 seconds after deleting a queue before you can create another "
                "with the same name.",
            )


def _recent(times: dict[str, int], name: str, now_ms: int) -> bool:
    for old in [each for each, at_ms in times.items() if at_ms <= now_ms - _MINUTE_MS]:
        del times[old]
    return name in times
