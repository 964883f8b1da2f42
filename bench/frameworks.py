"""Task frameworks on this broker and on Redis: tasks a second from the first that is sent to the
last that was done, with one sender and a worker of eight slots at work at the same time.

The brokers take turns, so the ratio says something on a noisy machine. Redis is measured as safe as
this broker (`appendfsync always`) and as it is mostly run (`everysec`, which may lose a second). It
has to be on the path, and its clients installed: `pip install redis taskiq-redis`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from bench import rpc
from bench.peers import Peer, RedisTalk, running_peer
from bench.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 3
SLOTS = 8
WARM = 50  # tasks before the first round
TIME_LIMIT_S = 300.0
SENDER = """
import asyncio, sys
from bench import framework_tasks as bench
count = int(sys.argv[1])
def begin_together():
    print("ready", flush=True)
    sys.stdin.readline()
async def send():
    await bench.broker.startup()
    begin_together()
    for begin in range(0, count, 100):
        await asyncio.gather(*[bench.task.kiq() for _ in range(min(100, count - begin))])
    await bench.broker.shutdown()
if bench.FRAMEWORK == "taskiq":
    asyncio.run(send())
else:
    push = bench.task.delay if bench.FRAMEWORK == "celery" else bench.task.send
    begin_together()
    for _ in range(count):
        push()
"""
WORKERS = {
    "celery": "celery -A bench.framework_tasks worker --concurrency 8 --loglevel ERROR"
    " --without-gossip --without-mingle",
    "dramatiq": "dramatiq bench.framework_tasks --processes 1 --threads 8",
    "taskiq": "taskiq worker bench.framework_tasks:broker --workers 1 --max-async-tasks 8",
}
REDIS = "--port {port} --dir {directory} --appendonly yes --appendfsync "
OURS, SAFE, QUICK = "Nexo", "Redis, appendfsync always", "Redis, appendfsync everysec"


class Place(NamedTuple):
    """A framework on a broker, with its worker at work."""

    environment: dict[str, str]
    done: int  # a byte for each task

    def round(self, count: int) -> float:
        """Tasks a second."""
        command = [sys.executable, "-c", SENDER, str(count)]
        pipe = subprocess.PIPE
        sender = subprocess.Popen(command, env=self.environment, stdin=pipe, stdout=pipe)
        assert sender.stdin is not None
        assert sender.stdout is not None
        sender.stdout.readline()  # that it starts is not what is measured
        began, left = perf_counter(), count
        sender.stdin.write(b"\n")
        sender.stdin.flush()
        while left:
            if perf_counter() - began > TIME_LIMIT_S or sender.poll():
                raise SystemExit(f"{left} of {count} tasks were not done")
            try:
                left -= len(os.read(self.done, min(left, 4096)))
            except BlockingIOError:
                time.sleep(0.001)
        seconds = perf_counter() - began
        sender.communicate()
        return count / seconds


def run(directory: Path, count: int) -> Iterator[Result]:
    program = shutil.which("redis-server")
    for framework, command in WORKERS.items():
        missing = [each for each in ("redis", framework) if find_spec(each) is None]
        if framework == "taskiq" and find_spec("taskiq_redis") is None:
            missing.append("taskiq-redis")
        if program is None or missing:
            told = f"pip install {' '.join(missing)}" if missing else "redis-server is not there"
            print(f"      {framework}: not measured ({told})", file=sys.stderr)
            continue
        with contextlib.ExitStack() as stack:
            urls = {}
            for name, synced in ((SAFE, "always"), (QUICK, "everysec")):
                peer = Peer(name, "redis-server", "redis", RedisTalk, REDIS + synced)
                server = stack.enter_context(running_peer(peer, directory / synced))
                urls[name] = f"redis://127.0.0.1:{server.port}"
            urls[OURS] = stack.enter_context(rpc.running_broker(directory / "nexo")).url
            places = {
                name: stack.enter_context(_working(framework, command, url, directory))
                for name, url in urls.items()
            }
            rates: dict[str, list[float]] = {name: [] for name in places}
            for place in places.values():
                place.round(WARM)
            for _ in range(ROUNDS):
                for name, place in places.items():
                    rates[name].append(place.round(count))
        for name in (OURS, SAFE, QUICK):
            yield Result(f"{framework} on {name}", median(rates[name]), "tasks/s")
        for name, bar in ((SAFE, 1.0), (QUICK, None)):
            pairs = zip(rates[OURS], rates[name], strict=True)
            ratio = median(mine / theirs for mine, theirs in pairs)
            yield Result(f"… ratio to {name}", ratio, "x", bar)
    shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _working(framework: str, command: str, url: str, directory: Path) -> Iterator[Place]:
    done = directory / f"done-{url.rpartition(':')[2]}"
    done.unlink(missing_ok=True)
    os.mkfifo(done)
    reading = os.open(done, os.O_RDONLY | os.O_NONBLOCK)
    environment = {
        **os.environ,
        "BENCH_FRAMEWORK": framework,
        "BENCH_URL": url,
        "BENCH_DONE": str(done.absolute()),
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *filter(None, [os.getenv("PYTHONPATH")])]),
    }
    worker = subprocess.Popen(
        [sys.executable, "-m", *command.split()],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield Place(environment, reading)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        os.close(reading)
