"""What a broker needs to be ready, and what it leaves for later."""

import subprocess
import sys

LATER = ("jinja2", "nexo.doors.console.app", "pyspark", "pyarrow", "rich.console")


def test_a_start_loads_nothing_that_only_some_requests_need() -> None:
    program = (
        "import sys, nexo.cli.serve, nexo.server.service\n"
        f"print([name for name in {LATER} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_a_running_broker_loads_the_console_when_somebody_wants_it() -> None:
    """Loaded in the background it would compete with the clients that come back after a start."""
    program = (
        "import asyncio, sys, urllib.request\n"
        "from nexo.server.broker import Broker\n"
        "from nexo.server.configuration import Configuration\n"
        "async def main():\n"
        "    ports = dict(http_port=0, rpc_port=0, udp='off')\n"
        "    broker = Broker(Configuration(data=':memory:', **ports))\n"
        "    opened = await broker.start()\n"
        "    await asyncio.sleep(1.2)\n"
        "    before = 'nexo.doors.console.app' in sys.modules\n"
        "    url = f'http://127.0.0.1:{opened.http}/console'\n"
        "    page = await asyncio.to_thread(urllib.request.urlopen, url)\n"
        "    print(before, page.status)\n"
        "    await broker.stop()\n"
        "asyncio.run(main())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True
    )
    assert ran.stdout.split() == ["False", "200"], ran.stdout + ran.stderr
