"""What has come over a connection and waits for its turn.

One read may bring thousands of small frames, as of a client that sends without waiting for answers.
They are taken for a few milliseconds; then others get their turn, and nothing more is read from
this client until the rest is taken too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from nexo.vocabulary.limits import RPC_TURN_MS
from nexo.wire.frame import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.vocabulary.errors import NexoError
    from nexo.wire.frame import Frame

    Take = Callable[[Frame], None]

_TURN_S = RPC_TURN_MS / 1000


class Owner(Protocol):
    """A connection whose frames wait here. It comes with each call and is never kept: a cycle of
    references would outlive the connection."""

    def take_more(self) -> None:
        """Its next turn has come: it calls `go_on`."""

    def regulate(self) -> None:
        """See whether to read from the client."""

    def end(self, error: NexoError | None = None) -> None: ...

    def abort(self) -> None:
        """Without a word, as when a read fails."""

    def caught_up(self) -> None:
        """Nothing waits any more."""


class Inbox:
    """`is_waiting`: there is a rest, and the owner has another turn."""

    __slots__ = ("_frames", "is_waiting")

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self.is_waiting = False

    def add(self, frames: list[Frame]) -> None:
        self._frames += frames

    def take(self, owner: Owner, take: Take) -> None:
        """Take what there is, for one turn."""
        frames, ends_s = self._frames, perf_counter() + _TURN_S
        self.is_waiting = False
        while frames:
            take(frames.popleft())
            if frames and perf_counter() >= ends_s:
                self.is_waiting = True
                owner.regulate()
                asyncio.get_running_loop().call_soon(owner.take_more)
                return

    def go_on(self, owner: Owner, take: Take) -> None:
        """Take more of what one read has brought, unless the connection has ended meanwhile."""
        if not self.is_waiting:
            return
        try:
            self.take(owner, take)
        except ProtocolError as error:
            owner.end(error)
        except BaseException:  # as when it happens in a read, the connection is over
            self.clear()
            owner.abort()
            raise
        finally:
            if not self.is_waiting:
                owner.caught_up()

    def clear(self) -> None:
        """The connection ends: nobody waits for what it asked for."""
        self._frames.clear()
        self.is_waiting = False
