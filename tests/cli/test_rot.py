"""A message that has rotted on the disk: everybody is told, and everything else goes on."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.commands import BrokerProcess, Nexo
from tests.client.eventually import eventually


@pytest.fixture
def rotten(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with one byte changed in what `orders` holds."""
    running = BrokerProcess(tmp_path, log=tmp_path / "log").start()
    nexo = Nexo(tmp_path, running.url)
    nexo("push", "orders", "--create", stdin="a\nb\nc\n")
    nexo("push", "others", "--create", stdin="x\n")
    running.stop()
    journal = tmp_path / "data" / "journal.db"
    content = bytearray(journal.read_bytes())
    content[content.index(b"abc")] ^= 1
    journal.write_bytes(content)
    yield running.start()
    running.kill()


def unreadable(broker: BrokerProcess) -> int:
    with urlopen(f"http://127.0.0.1:{broker.http_port}/metrics") as answer:
        found = re.search(r"\nnexo_unreadable_messages (\d+)\n", answer.read().decode())
    assert found is not None
    return int(found[1])


def test_those_who_wait_for_it_are_told_of_in_the_log(
    rotten: BrokerProcess, tmp_path: Path
) -> None:
    nexo = Nexo(tmp_path, rotten.url)
    assert unreadable(rotten) == 0, "nobody has asked for it yet"
    assert nexo("consume", "orders", "--idle", "1500ms", "--json").json()["acked"] == 0
    assert nexo("pop", "orders").out.strip() == "", "the queue goes past it"
    assert unreadable(rotten) == 3
    info = nexo("queue", "info", "orders", "--json").json()
    assert (info["depth"], info["ready"], info["unreadable"]) == (3, 0, 3)
    assert "unreadable" in nexo("queue", "info", "orders").out
    assert "x" in nexo("pop", "others").out, "it is one queue's trouble"
    log = tmp_path / "log"
    eventually(lambda: "cannot read messages" in log.read_text())  # it looks once a second
    nexo("queue", "purge", "orders", "--yes")
    assert unreadable(rotten) == 0
    nexo("push", "orders", "fresh")
    assert "fresh" in nexo("pop", "orders").out
    rotten.stop()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    told = [each for each in lines if each["message"] == "cannot read messages"]
    assert [(each["of"], each["first"], each["messages"]) for each in told] == [("orders", 0, 3)]
    assert "nexo doctor" in told[0]["reason"]
