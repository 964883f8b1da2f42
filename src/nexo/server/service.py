"""A broker as a service: started, watched until a signal comes, stopped in order and in time.

Stopping in order needs the event loop, the disk and clients that hang up. Any of them may be what
is stuck, so a thread of its own takes the signals, and asks the loop to stop. When the time is over
it says where everything stands and ends the process. That loses nothing: what was confirmed is on
disk, and the next start recovers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.engine.process import Collector, run, tune_process
from nexo.server.broker import Broker
from nexo.vocabulary.errors import InvalidArgument, NotReady
from nexo.vocabulary.limits import (
    CLOCK_STEP_MS,
    DESCRIPTORS_MAX,
    DISK_WATCH_S,
    LAST_WORDS_S,
    STOP_S,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.server.broker import Ports
    from nexo.server.configuration import Configuration
    from nexo.vocabulary.errors import NexoError

    Announce = Callable[[Broker, Ports], None]

STOPPED_AT_ONCE = 130  # the exit code of a process that was interrupted
STUCK = 124  # and of one whose time was over, as timeout(1) has it
SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})

logger = logging.getLogger("nexo.server")


class _Signals:
    """The way from the thread that takes signals to the event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: asyncio.Future[str] | None = None
        self._name = ""

    def listen(self) -> asyncio.Future[str]:
        """What the first signal sets, with its name."""
        self._loop = asyncio.get_running_loop()
        self._asked = self._loop.create_future()
        if self._name:  # it came before there was a loop
            self._stop()
        return self._asked

    def ask(self, name: str) -> None:
        self._name = name
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: the broker has stopped already
                self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        assert self._asked is not None
        if not self._asked.done():
            self._asked.set_result(self._name)
            logger.info("stopping", extra={"signal": self._name})


def serve(configuration: Configuration, announce: Announce) -> None:
    """Run a broker until SIGTERM or Ctrl-C. `announce` is told once every door answers."""
    tune_process()
    raise_descriptors()
    signals = _Signals()
    stopping = Stopping(signals.ask)
    stopping.begin()
    try:
        run(_serve(configuration, announce, signals, stopping))
    finally:
        stopping.end()
    if configuration.ports_file is not None:  # who waits for the next run must not find this one's
        with contextlib.suppress(OSError):
            Path(configuration.ports_file).unlink(missing_ok=True)


def raise_descriptors() -> None:
    """Let the process have as many files and connections open as it may. What a shell gives, often
    1,024, is for programs that use `select`; the hard limit is what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS allows less than it says
        logger.warning(
            "cannot raise the limit of open files",
            extra={"limit": soft, "reason": str(error), "hint": f"ulimit -n {wanted}"},
        )


async def _serve(
    configuration: Configuration, announce: Announce, signals: _Signals, stopping: Stopping
) -> None:
    asyncio.get_running_loop().set_exception_handler(_report)
    asked = signals.listen()
    broker, collector = broker_of(configuration), Collector()
    began = time.perf_counter()
    logger.debug("starting", extra={"pid": os.getpid()})
    ports = await broker.start()
    try:
        _tell_start(broker, ports, began)
        if configuration.ports_file is not None:
            await asyncio.to_thread(write_ports, configuration.ports_file, ports)
        announce(broker, ports)
        notify("READY=1")
        stopping.doing = "serve clients"
        collector.begin()
        await _watch(broker, asked)
    finally:
        collector.end()
        began = time.perf_counter()
        notify("STOPPING=1")
        await broker.stop(lambda doing: setattr(stopping, "doing", doing))
        logger.info("stopped", extra={"took_ms": _since_ms(began)})


def broker_of(configuration: Configuration) -> Broker:
    """A broker alone, or a node of a cluster, which is loaded only then."""
    if configuration.node is None:
        if configuration.advertise is not None:
            raise InvalidArgument("--advertise is for a node of a cluster", "give --node NAME too")
        return Broker(configuration)
    if configuration.journal is None:
        raise InvalidArgument(
            "a node of a cluster keeps everything in PostgreSQL", "give --journal URL too"
        )
    from nexo.server.node import NodeBroker

    return NodeBroker(configuration)


def _first(found: Iterable[NexoError | None]) -> NexoError | None:
    return next((each for each in found if each is not None), None)


def write_ports(file: str, ports: Ports) -> None:
    """Whoever waits for this file must never read half of it."""
    path = Path(file)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(msgspec.json.encode(ports) + b"\n")
        beside.replace(path)
    except OSError as error:
        raise NotReady(
            f"the ports file {file} cannot be written: {error.strerror}", "check --ports-file"
        ) from None


async def _watch(broker: Broker, stopping: asyncio.Future[str]) -> None:
    """Wait for the signal, and tell when the disk fails or stalls and when it is back."""
    said = stalled = None
    unreadable: set[tuple[str, int]] = set()
    ahead_ms = 0
    while not stopping.done():
        if broker.failure is not None:
            raise broker.failure
        refusal = _first(engine.refusal for engine in broker.engines)
        if refusal is not None and said is None:
            logger.error("read-only", extra={"reason": refusal.message, "hint": refusal.hint})
        elif refusal is None and said is not None:
            logger.info("writable again")
        said = refusal
        stall = _first(engine.trouble for engine in broker.engines) if refusal is None else None
        if stall is not None and stalled is None:
            logger.error("commits are overdue", extra={"reason": stall.message, "hint": stall.hint})
        elif stall is None and stalled is not None:
            logger.info("commits work again")
        stalled = stall
        unreadable = _tell_unreadable(broker, unreadable)
        aheads_ms = [engine.clock_ahead_ms() for engine in broker.engines]
        ahead_ms = tell_clock(max(aheads_ms, key=abs, default=0), ahead_ms)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(stopping), DISK_WATCH_S)


def tell_clock(ahead_ms: int, told_ms: int) -> int:
    """Tell when the system clock and the clock of queues have parted by a step since it was last
    told; returns what is told now."""
    if abs(ahead_ms - told_ms) < CLOCK_STEP_MS:
        return told_ms
    if abs(ahead_ms) < CLOCK_STEP_MS:
        logger.info("the system clock agrees with the clock of queues again")
        return 0
    what = "ahead of" if ahead_ms > 0 else "behind"
    logger.warning(
        "the clock of queues is %s the system clock",
        what,
        extra={
            "by_s": round(abs(ahead_ms) / 1000),
            "hint": "the system clock is or was wrong: messages carry times that are off by this; "
            "timeouts go on, and access follows the system clock",
        },
    )
    return ahead_ms


def _tell_unreadable(broker: Broker, told: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Queues go past what cannot be read, so nobody else would say that it is there."""
    found = {
        (each.name, each.first): each
        for engine in broker.engines
        for each in engine.memory.unreadable()
    }
    for key, each in found.items():
        if key not in told:
            extra = {"of": each.name, "first": each.first, "messages": each.messages}
            logger.error("cannot read messages", extra={**extra, "reason": str(each.error)})
    return set(found)


def _tell_start(broker: Broker, ports: Ports, began: float) -> None:
    queues = [actor for engine in broker.engines for actor in engine.queues.values()]
    logger.info(
        "ready",
        extra={
            "queues": len(queues),
            "messages": sum(actor.queue.depth for actor in queues),
            "topics": sum(len(engine.topics) for engine in broker.engines),
            "pid": os.getpid(),
            "took_ms": _since_ms(began),
            **{f"{door}_port": port for door, port in msgspec.structs.asdict(ports).items()},
        },
    )


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody waited for must not get lost."""
    error = context.get("exception")
    told = (type(error), error, error.__traceback__) if error is not None else None
    logger.error("%s", context.get("message", "an error nobody waited for"), exc_info=told)


def _since_ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 1)


class Stopping:
    """From `begin` to `end` the signals belong to it. `ask` is called in its thread, once, with the
    name of the first; the second signal ends the process where it stands."""

    def __init__(self, ask: Callable[[str], None]) -> None:
        self.doing = "start"  # what the broker is at, for who wonders why it does not end
        self._ask = ask
        self._is_asked = False
        self._is_over = threading.Event()
        # It must not keep the process alive, nor wait for one that does not end.
        self._thread = threading.Thread(target=self._listen, name="nexo-signals", daemon=True)

    def begin(self) -> None:
        # A signal goes to any thread that does not block it: threads made from now on do as well.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._thread.start()

    def end(self) -> None:
        """The broker has stopped: nothing is left that could be stuck."""
        self._is_over.set()
        if self._thread.is_alive():
            signal.pthread_kill(self._thread.ident or 0, signal.SIGTERM)  # wakes it up
            self._thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _listen(self) -> None:
        while True:
            name = signal.Signals(signal.sigwait(SIGNALS)).name
            if self._is_over.is_set():
                return
            if self._is_asked:
                _exit(STOPPED_AT_ONCE, "stopped at once", {"signal": name})
            self._is_asked = True
            self._ask(name)
            threading.Thread(target=self._count_down, name="nexo-deadline", daemon=True).start()

    def _count_down(self) -> None:
        if self._is_over.wait(STOP_S):
            return
        _exit(
            STUCK,
            "not stopped in time",
            {
                "after_s": STOP_S,
                "doing": self.doing,
                "threads": _stacks(),
                "hint": "what was confirmed is on disk, the next start recovers it; see what is "
                "stuck in threads, and the system log for disk errors",
            },
        )


def _exit(status: int, message: str, told: dict[str, object]) -> None:
    """End the process. Whoever holds the lock of the log may be stuck: it is not waited for."""

    def tell() -> None:
        logger.error(message, extra=told)
        for handler in logging.getLogger().handlers:
            handler.flush()

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    telling.join(LAST_WORDS_S)
    os._exit(status)


def _stacks() -> dict[str, str]:
    """Where each thread stands, the innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        names.get(ident, str(ident)): "".join(traceback.format_stack(frame)).strip()
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    }


def notify(state: str) -> None:
    """Tell systemd `READY=1`, `STOPPING=1` or `STATUS=…`, where it asked for it: a line to the
    socket that it named."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name that is not in the file system
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
        try:
            told.sendto(state.encode(), address)
        except OSError:  # nobody listens any more: the broker goes on
            return
