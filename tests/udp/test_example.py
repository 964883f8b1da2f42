"""The example client works as it says."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.client.running import RunningBroker

EXAMPLE = Path(__file__).parents[2] / "examples" / "udp_client.py"


def test_it_prints_what_the_topic_keeps(broker: RunningBroker, native: Any) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(broker.udp_port)],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    texts = [line.partition(" ")[2] for line in done.stdout.splitlines()]
    assert texts == ["hello", "{'order': 1, 'items': ['bread', 'wine']}"]
    assert [event.json() for event in native.topic("news").read()] == [
        "hello",
        {"order": 1, "items": ["bread", "wine"]},
    ]


def test_it_raises_what_is_refused(broker: RunningBroker) -> None:
    client = runpy.run_path(str(EXAMPLE))["UdpClient"](port=broker.udp_port)
    with pytest.raises(RuntimeError, match=r"^Payload mancante \(invalid_argument\)$"):
        client.ask("publish", "news")
    with pytest.raises(RuntimeError, match="Azione non supportata: delete"):
        client.ask("delete", "news")
    client.socket.close()
