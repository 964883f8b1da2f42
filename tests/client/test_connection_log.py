"""What a client says of its connection: in its log, and when it is asked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tests.client.eventually import eventually

if TYPE_CHECKING:
    import pytest

    from tests.client.running import RunningBroker
    from tests.client.twins import Twin


def _said(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    found = [each for each in caplog.records if each.name == "nexo.client"]
    return [(each.levelno, each.getMessage()) for each in found]


def test_a_connection_that_is_lost_and_back(
    broker: RunningBroker, twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = twin.connect(broker.url, timeout=20)
    assert client.connected
    assert _said(caplog) == []  # the first connection is no news
    client.queue("q", create=True).push("a")
    broker.stop()
    eventually(lambda: not client.connected)
    eventually(lambda: len(_said(caplog)) == 1)
    (lost,) = _said(caplog)
    assert lost[0] == logging.WARNING
    # It may also be a node that hands over a shard: it does not say that it stops.
    told = f"lost the connection to 127.0.0.1:{broker.port}: the broker closed the connection"
    assert lost[1] == told
    broker.start()
    client.queue("q").push("b")
    assert client.connected
    eventually(lambda: len(_said(caplog)) == 2)
    (back,) = _said(caplog)[1:]
    assert back[0] == logging.INFO
    assert f"reconnected to 127.0.0.1:{broker.port} after " in back[1]


def test_a_client_that_closes_lost_nothing(
    broker: RunningBroker, twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = twin.connect(broker.url, timeout=20)
    client.queue("q", create=True).push("a")
    client.close()
    assert not client.connected
    assert _said(caplog) == []


def test_a_log_handler_may_use_the_client(broker: RunningBroker, twin: Twin) -> None:
    """It is called where no lock is held."""
    client: Any = twin.connect(broker.url, timeout=20)
    client.queue("q", create=True).push("a")
    seen: list[bool] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if twin.kind == "blocking":
                client.queue("log", create=True).push(record.getMessage())
            seen.append(client._target.connected if twin.kind == "asyncio" else client.connected)

    handler = Handler(logging.INFO)
    log = logging.getLogger("nexo.client")
    log.addHandler(handler)
    before = log.level
    log.setLevel(logging.INFO)
    try:
        broker.restart()
        client.queue("q").push("b")
        eventually(lambda: len(seen) == 2)
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
