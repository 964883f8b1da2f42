"""`nexo top` in a terminal: Textual's pilot presses the keys, real brokers give the figures."""

import asyncio
import contextlib
import fcntl
import html
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

import nexo as nexo_client
from nexo.cli.top import Look, Order
from nexo.cli.top_list import COLUMNS, COLUMNS_MIN, Layout, count, shortened
from nexo.cli.top_screen import TopApp
from tests.cli.commands import NEXO, BrokerProcess, Nexo

LONG = "eu-west-1.customer-orders.payment-authorisation.second-stage.retries-of-all_v2_dlq"[-80:]
QUEUES = 500
GIVE_UP_S = 20.0


class Seen:
    """The app under the hands of a test."""

    def __init__(self, app: TopApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def lines(self) -> list[str]:
        """The screen as text, read from the picture that Textual draws of it."""
        pattern = r'<text[^>]* x="([\d.]+)"[^>]*-line-(\d+)\)"[^>]*>(.*?)</text>'
        found: dict[int, dict[float, str]] = {}
        for x, line, text in re.findall(pattern, self.app.export_screenshot()):
            found.setdefault(int(line), {})[float(x)] = html.unescape(text).replace("\xa0", " ")
        last = max(found, default=-1)
        parts = [sorted(found.get(line, {}).items()) for line in range(last + 1)]
        return ["".join(text for _, text in each).rstrip() for each in parts]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def told_of(self) -> int:
        """How many queues are in the window, or said to be beyond it."""
        below = re.findall(r"(\d+) more below", self.text)
        rows = [line for line in self.lines if line.startswith(("queue-", LONG[:10]))]
        # The chosen name stands below the list once more.
        return len(rows) - 1 + sum(map(int, below))

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, text: str, is_there: bool = True) -> None:
        give_up = time.monotonic() + GIVE_UP_S
        while (text in self.text) is not is_there:
            assert time.monotonic() < give_up, (
                f"{text!r} {'missing' if is_there else 'stays'}:\n" + self.text
            )
            await self.pilot.pause(0.05)


@contextlib.asynccontextmanager
async def top(
    url: str,
    *,
    size: tuple[int, int] = (80, 24),
    order: Order = Order.NAME,
    token: str | None = None,
) -> AsyncIterator[Seen]:
    async with nexo_client.AsyncClient(url, token) as client:
        app = TopApp(client, url, 0.1, order)
        async with app.run_test(size=size) as pilot:
            yield Seen(app, pilot)


@pytest.fixture(scope="module")
def crowd(broker: BrokerProcess) -> str:
    """A broker with five hundred queues, some of which have something in them."""
    with nexo_client.connect(broker.url) as client:
        for number in range(QUEUES):
            client.create_queue(f"queue-{number:03}")
        long = client.create_queue(LONG, dead_letter="letters")
        long.push_batch([f"order {n}" for n in range(3_000)])
        client.queue("queue-007").push_batch(["a"] * 20)
        client.queue("queue-499").pause()
    return broker.url


def test_names_and_what_is_beyond_the_window(crowd: str) -> None:
    async def scenario() -> None:
        async with top(crowd, order=Order.DEPTH) as seen:
            await seen.until("3,000")
            assert max(map(len, seen.lines)) <= 80
            assert f"{QUEUES + 1} queues, 3,020 messages" in seen.lines[0]
            first = next(line for line in seen.lines if "3,000" in line)
            assert first.startswith(LONG[:10])
            assert "_dlq " in first, "the end of a name tells more than its middle"
            await seen.until(LONG)  # the chosen one has its name in full
            give_up = time.monotonic() + GIVE_UP_S
            while seen.told_of() != QUEUES + 1:  # the line below takes a row when the name is long
                assert time.monotonic() < give_up, seen.text
                await seen.pilot.pause(0.05)
            await seen.press("end")
            assert "queue-499 paused" in seen.text
            assert "more below" not in seen.text
            assert re.search(r"\d+ more above", seen.text)
            for key in ("/ Filter", "s Sort", "r Reverse", "enter Open", "esc All", "q Quit"):
                assert key in seen.lines[-1]

    asyncio.run(scenario())


def test_filter_sort_and_open(crowd: str) -> None:
    async def scenario() -> None:
        async with top(crowd) as seen:
            await seen.until("queue-000")
            await seen.press("slash", *"QUEUE-00")
            await seen.until("10 of 501 queues")
            assert "queue-010" not in seen.text
            await seen.press("enter", "s")  # by depth
            rows = [line for line in seen.lines if line.startswith("queue-")]
            assert rows[0].split()[:2] == ["queue-007", "20"]
            await seen.press("r")
            rows = [line for line in seen.lines if line.startswith("queue-")]
            assert rows[0].startswith("queue-009")
            await seen.press("r", "home", "enter")
            await seen.until("ready")
            assert seen.lines[0] == "queue-007"
            assert "depth 20" in seen.text
            await seen.press("end")
            await seen.until("visibility-timeout")
            await seen.press("escape")
            await seen.until("10 of 501 queues")
            await seen.press("escape")
            await seen.until("of 501 queues", is_there=False)
            await seen.press("slash", *"nothing like it")
            await seen.until("No queue has")

    asyncio.run(scenario())


def test_the_chosen_queue_stays_chosen_in_another_order(crowd: str) -> None:
    async def scenario() -> None:
        async with top(crowd) as seen:
            await seen.until("queue-000")
            await seen.press("down", "down", "pagedown")
            chosen = seen.lines[-2].split()[0]
            await seen.press("s", "s", "r")
            assert seen.lines[-2].split()[0] == chosen
            await seen.press("enter")
            await seen.until("No messages")
            assert seen.lines[0] == chosen

    asyncio.run(scenario())


def test_a_queue_that_is_deleted_while_it_is_open(broker: BrokerProcess, queue: str) -> None:
    async def scenario() -> None:
        async with top(broker.url) as seen:
            await seen.press("slash", *queue)
            await seen.until(f"{queue} ")
            await seen.press("enter", "enter")
            await seen.until("No messages")
            await seen.app.client.queue(queue).delete()
            await seen.until("This queue was deleted")

    with nexo_client.connect(broker.url) as client:
        client.create_queue(queue)
    asyncio.run(scenario())


def test_a_broker_that_goes_and_returns(tmp_path: Path) -> None:
    own = BrokerProcess(tmp_path).start()
    again = BrokerProcess(tmp_path, "--rpc-port", str(own.port))

    async def scenario() -> None:
        async with top(own.url) as seen:
            await seen.until("orders")
            own.kill()
            await seen.until("Broker away")
            assert "The figures are from before" in seen.text
            assert "orders" in seen.text
            again.start()
            await seen.until("Broker away", is_there=False)
            await seen.app.client.create_queue("invoices")
            await seen.until("invoices")
            assert again.process is not None
            again.process.send_signal(signal.SIGSTOP)
            await seen.until("No answer for")
            again.process.send_signal(signal.SIGCONT)
            await seen.until("No answer for", is_there=False)

    try:
        with nexo_client.connect(own.url) as client:
            client.create_queue("orders")
        asyncio.run(scenario())
    finally:
        own.kill()
        again.kill()


def test_a_token_of_few_rights(tmp_path: Path) -> None:
    nexo = Nexo(tmp_path)
    new = ("token", "create", "--data", "data", "--json")
    admin = nexo(*new, "admin", "--allow", "*:*").json()["token"]
    few = nexo(*new, "shop", "--allow", "orders:push").json()["token"]
    own = BrokerProcess(tmp_path, "--access", "required").start()

    async def scenario() -> None:
        async with top(own.url, token=few) as seen:
            await seen.until("orders")
            assert "1 queue, 1 message" in seen.lines[0]
            assert "secret" not in seen.text
            await seen.press("enter")
            await seen.until("peek")  # that it may not
            assert "All figures" in seen.text

    try:
        with nexo_client.connect(own.url, token=admin) as client:
            client.create_queue("orders").push("a")
            client.create_queue("secret").push("b")
        asyncio.run(scenario())
    finally:
        own.kill()


def test_a_broker_without_queues(tmp_path: Path) -> None:
    own = BrokerProcess(tmp_path, data=":memory:").start()

    async def scenario() -> None:
        async with top(own.url) as seen:
            await seen.until("There are no queues yet. Make one: nexo queue create orders")
            await seen.press("down", "enter", "s", "r", "end")
            await seen.app.client.create_queue("orders")
            await seen.until("1 queue, 0 messages")
            assert "There are no queues yet" not in seen.text

    try:
        asyncio.run(scenario())
    finally:
        own.kill()


# -- The command in a terminal -------------------------------------------------------------------


@pytest.fixture
def terminal(
    broker: BrokerProcess, tmp_path: Path
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = Nexo(tmp_path, broker.url).environment({"TERM": "xterm-256color"})
    environment.pop("COLUMNS")
    process = subprocess.Popen(
        [NEXO, "top"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path
    )
    os.close(theirs)
    yield process, ours
    process.kill()
    process.wait()
    os.close(ours)


def read_until(terminal: int, wanted: bytes) -> bytes:
    read = b""
    give_up = time.monotonic() + GIVE_UP_S
    while wanted not in read:
        assert time.monotonic() < give_up, read
        read += os.read(terminal, 65_536)
    return read


@pytest.mark.parametrize("end", [b"q", b"\x03", signal.SIGTERM])
def test_the_command_ends_in_order(
    terminal: tuple[subprocess.Popen[bytes], int], end: bytes | signal.Signals
) -> None:
    process, window = terminal
    read_until(window, b"messages")
    if isinstance(end, bytes):
        os.write(window, end)
    else:
        process.send_signal(end)
    read_until(window, b"\x1b[?1049l")  # the window is as it was
    assert process.wait(timeout=GIVE_UP_S) == 0


# -- The parts -----------------------------------------------------------------------------------


def test_narrow_windows_lose_columns_and_never_the_name() -> None:
    for chars in range(1, 200):
        for longest in (1, 10, 80):
            layout = Layout(chars, ["n" * longest])
            wide = layout.name_chars + sum(2 + each.chars for each in layout.columns)
            assert wide <= chars
            assert layout.name_chars >= min(longest, 26, chars)
    assert [each.heading[1] for each in Layout(79, ["n" * 80]).columns] == [
        *("depth", "flight", "oldest", "in/s", "acks/s", "letters")
    ]
    assert Layout(140, ["n" * 80]).columns == COLUMNS


def test_names_that_would_look_the_same_get_more_room() -> None:
    names = [f"shop.department-{n:03d}.of-the-north.incoming" for n in range(100)]
    layout = Layout(79, names)
    assert len({shortened(name, layout.name_chars) for name in names}) == 100
    assert "depth" in [each.heading[1] for each in layout.columns]
    # Where no room would do, the columns that matter most stay.
    alike = [f"{'n' * 40}{n}{'n' * 40}" for n in range(10)]
    assert len(Layout(60, alike).columns) == COLUMNS_MIN


def test_what_fits() -> None:
    assert shortened("a" * 10, 10) == "a" * 10
    assert shortened("orders-of-yesterday_dlq", 11) == "order…y_dlq"
    assert [count(n, 7) for n in (0, 999_999, 1_234_567)] == ["0", "999,999", "1234.6k"]
    assert count(12_345_678_901, 7) == "12.3G"


def test_order() -> None:
    assert Look([]).sorted(Order.DEPTH) == []
