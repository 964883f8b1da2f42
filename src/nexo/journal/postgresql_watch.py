"""The event loop's eye on a connection to PostgreSQL: it tells when a transaction has ended.

The socket is watched for as long as the connection is used this way, not anew for each transaction:
to begin and end that takes a tenth of what a small commit does.

What is watched is a descriptor of our own. libpq closes its own when the server is gone, and the
next connection of a client may have the same number before the event loop has forgotten it.
"""

from __future__ import annotations

import asyncio
import os
import select
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.journal.postgresql_pipeline import Pipeline

    Ended = Callable[[psycopg.Error | None], None]


class Watch:
    """Of one connection, in the event loop that runs."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._loop = asyncio.get_running_loop()
        self._socket = os.dup(pipeline.socket)
        self._news = select.poll()  # also of a socket that failed, or was closed by the other side
        self._news.register(self._socket, select.POLLIN)
        self._ended: Ended | None = None
        self._is_sending = False
        self._is_closed = False
        self._loop.add_reader(self._socket, self._ready)

    def is_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it watches there."""
        return self._loop is loop and not self._is_closed

    def wait(self, ended: Ended) -> None:
        """Tell the end of the transaction that has just begun. An error is why nobody knows its
        outcome; why it was rolled back, the pipeline knows."""
        self._ended = ended
        if not self._pipeline.is_sent:
            self._is_sending = True
            self._loop.add_writer(self._socket, self._ready)

    def close(self) -> None:
        """From any thread."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._loop.is_closed():
            os.close(self._socket)
        elif asyncio._get_running_loop() is self._loop:
            self._end()
        else:
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._loop.remove_reader(self._socket)
        self._stop_sending()
        os.close(self._socket)

    def _stop_sending(self) -> None:
        if self._is_sending:
            self._is_sending = False
            self._loop.remove_writer(self._socket)

    def _ready(self) -> None:
        if self._ended is None:  # a thread uses the connection, or the server is about to end it:
            self.close()  # whoever uses it next finds that out
            return
        is_over, failure = False, None
        try:
            is_over = self._pipeline.advance()
            # After an error on a socket uvloop tells no more of it, and what ends the connection
            # may stand behind what has just been read.
            while not is_over and self._news.poll(0):
                is_over = self._pipeline.advance()
        except psycopg.Error as error:
            failure = error
        if not is_over and failure is None:
            if self._pipeline.is_sent:
                self._stop_sending()
            return
        self._stop_sending()
        if failure is not None or self._news.poll(0):  # the same: of more there may be no word
            self.close()
        ended, self._ended = self._ended, None
        ended(failure)
