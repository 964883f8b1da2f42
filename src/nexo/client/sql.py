"""SQL on live queues, topics and the lake, by a blocking client: `nexo.sql(client, "SELECT …")`."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.client.operation import Request
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import BATCH_MESSAGES_MAX
from nexo.wire import calls, commands
from nexo.wire.frame import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.client.blocking.client import Client
    from nexo.query.statements import Statement
    from nexo.wire.frame import Frame

_READ_BYTES = 16 * 1024 * 1024  # of one read: what is in memory at once is about twice that
_read_next = msgspec.msgpack.Decoder(int).decode


def sql(client: Client, statement: str, *, lake: str | None = None) -> Any:
    """Run a statement in DuckDB's SQL; returns an Arrow table (with `.to_pandas()`). A queue is a
    table with its name, as it is at one moment: `FROM orders_dlq`, or `"a-b.c"` in double quotes. A
    topic is `topic('news')`, a table of the lake is `lake('messages')`; its location is `lake` or
    `$NEXO_LAKE`. No message is taken. Needs `nexo-broker[sql]`."""
    with running(client, statement, lake) as run:
        return run.table()


@contextmanager
def running(client: Client, statement: str, lake: str | None = None) -> Iterator[Statement]:
    """A statement whose answer is taken batch by batch."""
    from nexo.client.blocking.client import Client as BlockingClient
    from nexo.query.extra import duckdb_or_refusal

    duckdb_or_refusal()
    from nexo.query.statements import Statement

    if not isinstance(client, BlockingClient):
        raise InvalidArgument("nexo.sql takes a blocking client", "use nexo.connect()")
    source = _Source(client)
    names = [each.name for each in client.queues()]
    where = lake if lake is not None else os.environ.get("NEXO_LAKE")
    made = Statement(statement, names, source.queue, source.topic, where)
    with closing(made):
        try:
            yield made
        finally:
            source.close()


class _Source:
    """The messages that a statement reads. What it reads twice is the same both times."""

    def __init__(self, client: Client) -> None:
        self._run = client._connection.run
        self._views: dict[str, calls.SnapshotInfo] = {}

    def queue(self, name: str) -> Iterator[Any]:
        from nexo.query.conditions import STATES
        from nexo.query.rows import queue_rows
        from nexo.wire.columns import raw_parts

        view = self._views.get(name)
        if view is None:
            view = self._views[name] = self._call(calls.OpenSnapshot(name))
        at = 0
        while at < view.count:
            asked = calls.ReadSnapshot(name, view.snapshot, at, BATCH_MESSAGES_MAX, _READ_BYTES)
            answer = self._frame(asked)
            page = calls.read(calls.ReadSnapshot, answer)
            if parts := raw_parts(answer.body):
                states = [STATES[state] for state in page.states]
                yield queue_rows(parts, name, view.incarnation, states)
            at = page.next

    def topic(self, name: str) -> Iterator[Any]:
        from nexo.query.rows import topic_rows
        from nexo.wire.columns import raw_parts

        info = self._call(calls.DescribeTopic(name))
        at = info.start
        while at < info.end:
            count = min(BATCH_MESSAGES_MAX, info.end - at)
            head = commands.pack(commands.Read(name, at, count, _READ_BYTES, False))
            answer = self._run(Request(Kind.READ, head, _as_it_is))
            if parts := raw_parts(answer.body):
                yield topic_rows(parts, name)
            following = _read_next(answer.head)
            if following <= at:
                return
            at = following

    def close(self) -> None:
        for name, view in self._views.items():
            self._call(calls.CloseSnapshot(name, view.snapshot))

    def _call(self, wanted: calls.Request[Any]) -> Any:
        return calls.read(type(wanted), self._frame(wanted))

    def _frame(self, wanted: calls.Request[Any]) -> Frame:
        answer: Frame = self._run(Request(Kind.CALL, b"", _as_it_is, [calls.encode(wanted)]))
        return answer


def _as_it_is(answer: Frame) -> Frame:
    return answer
