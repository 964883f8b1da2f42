"""A broker as a service: started, watched until a signal comes, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.engine.process import run, tune_process
from nexo.server.broker import Broker
from nexo.server.notify import notify
from nexo.vocabulary.errors import NotReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.server.broker import Ports
    from nexo.server.configuration import Configuration

    Announce = Callable[[Broker, Ports], None]

WATCH_S = 0.5  # how often the broker is asked whether its disk is well
STOPPED_AT_ONCE = 130  # the exit code of a process that was interrupted

logger = logging.getLogger("nexo.server")


def serve(configuration: Configuration, announce: Announce) -> None:
    """Run a broker until SIGTERM or Ctrl-C. `announce` is told once every door answers."""
    tune_process()
    run(_serve(configuration, announce))
    if configuration.ports_file is not None:  # who waits for the next run must not find this one's
        with contextlib.suppress(OSError):
            Path(configuration.ports_file).unlink(missing_ok=True)


async def _serve(configuration: Configuration, announce: Announce) -> None:
    asyncio.get_running_loop().set_exception_handler(_report)
    stopping = _on_signals()
    broker = Broker(configuration)
    began = time.perf_counter()
    logger.debug("starting", extra={"data": configuration.data, "pid": os.getpid()})
    ports = await broker.start()
    try:
        _tell_start(broker, ports, began)
        if configuration.ports_file is not None:
            await asyncio.to_thread(write_ports, configuration.ports_file, ports)
        announce(broker, ports)
        notify("READY=1")
        await _watch(broker, stopping)
    finally:
        began = time.perf_counter()
        notify("STOPPING=1")
        await broker.stop()
        logger.info("stopped", extra={"took_ms": _since_ms(began)})


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


def _on_signals() -> asyncio.Future[str]:
    """What the first signal sets, with its name. The second ends the process where it stands:
    what was confirmed is on disk, and the next start recovers it."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[str] = loop.create_future()

    def stop(name: str) -> None:
        if stopping.done():
            logger.warning("stopped at once", extra={"signal": name})
            os._exit(STOPPED_AT_ONCE)
        stopping.set_result(name)
        logger.info("stopping", extra={"signal": name})

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number.name)
    return stopping


async def _watch(broker: Broker, stopping: asyncio.Future[str]) -> None:
    """Wait for the signal, and tell when the disk fails or stalls and when it is back."""
    said = stalled = None
    unreadable: set[tuple[str, int]] = set()
    while not stopping.done():
        refusal = broker.engine.refusal
        if refusal is not None and said is None:
            logger.error("read-only", extra={"reason": refusal.message, "hint": refusal.hint})
        elif refusal is None and said is not None:
            logger.info("writable again")
        said = refusal
        stall = broker.engine.trouble if refusal is None else None
        if stall is not None and stalled is None:
            logger.error("commits do not come", extra={"reason": stall.message, "hint": stall.hint})
        elif stall is None and stalled is not None:
            logger.info("commits come again")
        stalled = stall
        unreadable = _tell_unreadable(broker, unreadable)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(stopping), WATCH_S)


def _tell_unreadable(broker: Broker, told: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Queues go past what cannot be read, so nobody else would say that it is there."""
    found = {(each.name, each.first): each for each in broker.engine.memory.unreadable()}
    for key, each in found.items():
        if key not in told:
            extra = {"of": each.name, "first": each.first, "messages": each.messages}
            logger.error("cannot read messages", extra={**extra, "reason": str(each.error)})
    return set(found)


def _tell_start(broker: Broker, ports: Ports, began: float) -> None:
    queues = broker.engine.queues.values()
    logger.info(
        "ready",
        extra={
            "queues": len(queues),
            "messages": sum(actor.info().depth for actor in queues),
            "topics": len(broker.engine.topics),
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
