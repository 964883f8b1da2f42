"""A transaction in one round trip: its statements go to the server together, by libpq's pipeline.

What stands between two syncs of a pipeline is a transaction by itself: it needs no BEGIN and no
COMMIT, and after an error in it there is nothing to roll back. Nothing here waits, except `run` and
`prepare`: so an event loop can watch the socket and needs no thread for it. Two changes of threads
cost as much as the server's own work for a small commit.

Parameters go as they are in memory. The arrays are built here because psycopg builds them value by
value: with a row for each of 64 shards that took longer than the commit.
"""

from __future__ import annotations

import selectors
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nexo.journal.postgresql_connection import Connection

    Request = tuple["Statement", Sequence[Sequence[Any]]]

_BINARY = 1
_HEADER = Struct(">iiiii")  # dimensions, whether a value is NULL, type, length, first index
_NULL = b"\xff\xff\xff\xff"


class Column(NamedTuple):
    """The type of a column: that of its arrays, and how one is written."""

    array_oid: int
    encode: Callable[[Sequence[Any]], bytes]


class Statement:
    """A statement over columns, each of which is an array: `$1` stands for the first of them."""

    __slots__ = ("columns", "formats", "name", "text")

    def __init__(self, name: str, text: str, *columns: Column) -> None:
        self.name = f"nexo_{name}".encode()
        self.text = text.encode()
        self.columns = columns
        self.formats = [_BINARY] * len(columns)


class Pipeline:
    """A connection that has one transaction under way, or none."""

    def __init__(self, connection: Connection, statements: Iterable[Statement]) -> None:
        self.connection = connection
        self._libpq = connection.pgconn
        self._statements = statements
        self._is_prepared = False
        self.is_sent = True  # or the rest of it waits for the socket to take it
        self.error: psycopg.Error | None = None  # why the last transaction was rolled back

    @property
    def socket(self) -> int:
        return self._libpq.socket

    def prepare(self) -> None:
        """Parse the statements on the server, once. It blocks."""
        if self._is_prepared:
            return
        for each in self._statements:
            types = [column.array_oid for column in each.columns]
            result = self._libpq.prepare(each.name, each.text, types)
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise error_from_result(result)
        self._is_prepared = True

    def begin(self, requests: Iterable[Request]) -> None:
        """Send a transaction; rows of values are the columns' arrays."""
        libpq = self._libpq
        self.error = None
        libpq.enter_pipeline_mode()
        for statement, rows in requests:
            values = [
                column.encode(each)
                for column, each in zip(statement.columns, zip(*rows, strict=True), strict=True)
            ]
            libpq.send_query_prepared(statement.name, values, statement.formats, _BINARY)
        libpq.pipeline_sync()
        self.is_sent = not libpq.flush()

    def advance(self) -> bool:
        """Send and read what can be, now that the socket is ready; whether it has ended. An error
        that is raised leaves an outcome that nobody knows, unlike one in `error`."""
        libpq = self._libpq
        if not self.is_sent:
            self.is_sent = not libpq.flush()
        libpq.consume_input()
        while not libpq.is_busy():
            result = libpq.get_result()
            if result is None:  # the end of one statement
                if libpq.status != pq.ConnStatus.OK:
                    raise psycopg.OperationalError("the server closed the connection")
            elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                libpq.exit_pipeline_mode()
                return True
            elif result.status == pq.ExecStatus.FATAL_ERROR and self.error is None:
                self.error = error_from_result(result)
        return False

    def run(self, requests: Iterable[Request]) -> None:
        """The same in a thread that may wait. Raises what the server says."""
        self.prepare()
        self.begin(requests)
        with selectors.DefaultSelector() as ready:
            ready.register(self.socket, self._awaited())
            while not self.advance():
                ready.modify(self.socket, self._awaited())
                ready.select()
        if self.error is not None:
            raise self.error

    def _awaited(self) -> int:
        return selectors.EVENT_READ | (0 if self.is_sent else selectors.EVENT_WRITE)


def _encode_bytes(values: Sequence[bytes | None]) -> bytes:
    pieces = [_HEADER.pack(1, None in values, 17, len(values), 1)]
    for value in values:
        if value is None:
            pieces.append(_NULL)
        else:
            pieces += (len(value).to_bytes(4, "big"), value)
    return b"".join(pieces)


def _encode_integers(values: Sequence[int]) -> bytes:
    count = len(values)
    flat = [4] * (2 * count)
    flat[1::2] = values
    return _integers("i", count).pack(1, 0, 23, count, 1, *flat)


def _encode_bigints(values: Sequence[int]) -> bytes:
    count = len(values)
    flat = [8] * (2 * count)
    flat[1::2] = values
    return _integers("q", count).pack(1, 0, 20, count, 1, *flat)


@lru_cache(maxsize=256)
def _integers(kind: str, count: int) -> Struct:
    return Struct(">iiiii" + f"i{kind}" * count)


INTEGER = Column(1007, _encode_integers)
BIGINT = Column(1016, _encode_bigints)
BYTES = Column(1001, _encode_bytes)
