"""Consumer groups through `kill -9`, of the broker and of members: nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nexo
from tests.client.eventually import eventually
from tests.client.test_kill import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS, MEMBERS, KILLS = ("mail", "billing"), 3, 3


class Member:
    """A process of a group; `got` is what it has written down so far."""

    def __init__(self, url: str, group: str, file: Path) -> None:
        self._file = file
        script = Path(__file__).with_name("group_member.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), url, group, str(file)], stdout=subprocess.PIPE, text=True
        )

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    @property
    def got(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    running = Process(tmp_path / "data")
    yield running
    running.kill()


@pytest.fixture
def members(process: Process, tmp_path: Path) -> Iterator[dict[str, list[Member]]]:
    """None of them yet; whoever is added is ended."""
    added: dict[str, list[Member]] = {group: [] for group in GROUPS}
    yield added
    for group in added.values():
        for member in group:
            member.kill()


def test_two_groups_lose_nothing(
    process: Process, members: dict[str, list[Member]], tmp_path: Path
) -> None:
    confirmed: list[str] = []
    failed: list[nexo.NexoError] = []
    stop = threading.Event()

    def join(group: str) -> Member:
        file = tmp_path / f"{group}-{len(members[group])}"
        members[group].append(Member(process.url, group, file))
        members[group][-1].wait_until_ready()
        return members[group][-1]

    def publish() -> None:
        try:
            with nexo.connect(process.url, timeout=40) as client:
                news, number = client.topic("news"), 0
                while not stop.is_set():
                    bodies = [str(each) for each in range(number, number + 7)]
                    news.publish_batch(bodies)
                    confirmed.extend(bodies)
                    number += len(bodies)
                    time.sleep(0.002)
        except nexo.NexoError as error:
            failed.append(error)

    with nexo.connect(process.url, timeout=40) as client:
        client.create_topic("news").publish("before any group")
        for group in GROUPS:  # what fails is tried again for as long as it takes
            client.create_queue(
                f"news.{group}",
                max_attempts=None,
                visibility_timeout=1.0,
                retransmit_timeout=1.0,
            )
            for _ in range(MEMBERS):
                join(group)
        publisher = threading.Thread(target=publish)
        publisher.start()
        for number in range(KILLS):
            time.sleep(0.6)
            process.kill()
            process.start()
            for group in GROUPS:
                members[group][number].kill()
                join(group)  # another one takes its place, and stops nobody
        time.sleep(0.3)
        stop.set()
        publisher.join(40)
        assert not failed
        depths = [client.queue(f"news.{group}") for group in GROUPS]
        eventually(lambda: all(queue.info().depth == 0 for queue in depths), 40)
    assert len(confirmed) > 200
    for group in GROUPS:
        got = [text for member in members[group] for text in member.got]
        lost = {"before any group", *confirmed} - set(got)
        assert not lost, f"{group} lost {len(lost)} of {len(confirmed)}: {sorted(lost)[:10]}"
        late = members[group][MEMBERS:]
        assert any(member.got for member in late), f"those who joined {group} late got nothing"


def test_a_subscription_goes_on_where_it_was(process: Process) -> None:
    """Without a group: every event once and in order, through kills of the broker."""
    with nexo.connect(process.url, timeout=40) as client:
        news = client.create_topic("news.one")
        subscription = client.topic("news.*").subscribe(start="earliest")
        seen: list[str] = []
        expected: list[str] = []
        for kill in range(KILLS):
            bodies = [f"{kill}-{number}" for number in range(40)]
            assert news.publish_batch(bodies)[-1] == kill * 40 + 39
            expected += bodies
            process.kill()
            process.start()
            while len(seen) < len(expected):
                event = subscription.get(timeout=20)
                assert event is not None, f"nothing after {seen[-1:]}"
                seen.append(event.text)
        assert seen == expected
        assert subscription.get(timeout=0.1) is None
