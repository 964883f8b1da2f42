"""All connections of the HTTP door: for whom we wait, for how long, and who goes when it is full.

A connection that has not sent a whole request, or does not read its answer, stands in a table with
the time since when; each table is in the order of these times, so that only those who are late are
looked at. Nobody has a timer of their own. A request that is being answered stands in no table: how
long that takes is for its app to say.

    head      connected, or in the middle of a head      HTTP_HEAD_S     told 408
    body      in the middle of a body                    HTTP_BODY_S     told 408
    idle      between two requests                       HTTP_IDLE_S     closed
    unread    does not read what it is sent              HTTP_UNREAD_S   cut off
    leaving   refused, and still sending                 HTTP_LEAVING_S  cut off

When connections or file descriptors run out, the one that has kept us waiting the longest makes
room for the new one. Only if all are being answered, the new one is refused.
"""

from __future__ import annotations

import logging
import resource
from typing import TYPE_CHECKING

from nexo.vocabulary.limits import (
    DESCRIPTORS_RESERVED,
    HTTP_BODY_S,
    HTTP_CONNECTIONS_MAX,
    HTTP_DESCRIPTORS_SHARE,
    HTTP_HEAD_S,
    HTTP_IDLE_S,
    HTTP_LEAVING_S,
    HTTP_STALLED_S,
    HTTP_TOLD_S,
    HTTP_UNREAD_S,
)

if TYPE_CHECKING:
    from nexo.doors.http.connection import HttpConnection

    Table = dict["HttpConnection", float]

logger = logging.getLogger("nexo.http")


class Crowd:
    def __init__(self, descriptors: int | None = None) -> None:
        """`descriptors` is how many the process may have open; None: what the system says."""
        self.head: Table = {}
        self.body: Table = {}
        self.idle: Table = {}
        self.unread: Table = {}
        self.leaving: Table = {}
        self.malformed = 0  # requests that were no HTTP, since the last line in the log
        self._most = _most(_limit() if descriptors is None else descriptors)
        self._open = 0
        self._refused = 0
        self._dropped = 0
        self._told_s = -HTTP_TOLD_S

    def __len__(self) -> int:
        return self._open

    def admit(self, descriptor: int, now_s: float) -> bool:
        """Whether one more may stay. The system gives the lowest number that is free, so its
        number says how many descriptors are open, whoever has them."""
        self._open += 1
        if self._open <= HTTP_CONNECTIONS_MAX and descriptor < self._most:
            return True
        if self._make_room(now_s):
            self._dropped += 1
            return True
        self._refused += 1
        return False

    def left(self) -> None:
        self._open -= 1

    def sweep(self, now_s: float) -> None:
        """Send away who is late. To be called every second."""
        for table, limit_s in (
            (self.head, HTTP_HEAD_S),
            (self.body, HTTP_BODY_S),
            (self.idle, HTTP_IDLE_S),
            (self.unread, HTTP_UNREAD_S),
            (self.leaving, HTTP_LEAVING_S),
        ):
            while table:
                connection = next(iter(table))
                if now_s - table[connection] < limit_s:
                    break
                del table[connection]
                connection.late(table)
        self._tell(now_s)

    def _make_room(self, now_s: float) -> bool:
        for table in (self.leaving, self.unread, self.head, self.body):
            if table and now_s - next(iter(table.values())) >= HTTP_STALLED_S:
                next(iter(table)).cut_off()
                return True
        if self.idle:
            next(iter(self.idle)).cut_off()
            return True
        return False

    def _tell(self, now_s: float) -> None:
        if now_s - self._told_s < HTTP_TOLD_S:
            return
        if self._refused or self._dropped:
            logger.warning(
                "too many HTTP connections",
                extra={
                    "refused": self._refused,
                    "dropped": self._dropped,  # those that stalled, to make room
                    "open": self._open,
                    "descriptors": self._most,
                    "hint": "look for clients that open connections and send nothing; "
                    "ulimit -n, or LimitNOFILE of the service, allows more",
                },
            )
        if self.malformed:
            logger.warning("requests that are not valid HTTP", extra={"count": self.malformed})
        if self._refused or self._dropped or self.malformed:
            self._told_s = now_s
            self._refused = self._dropped = self.malformed = 0


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _most(descriptors: int) -> int:
    """The descriptor from which on a connection is one too many."""
    if descriptors == resource.RLIM_INFINITY:
        return HTTP_CONNECTIONS_MAX * 2
    return max(1, int((descriptors - DESCRIPTORS_RESERVED) * HTTP_DESCRIPTORS_SHARE))
