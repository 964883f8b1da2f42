"""Runs seeds, one after the other or in several processes, and tells of those that fail."""

from __future__ import annotations

import enum
import gc
import multiprocessing
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING

import apsw
import msgspec

from nexo.simulation.cluster.world import ClusterWorld
from nexo.simulation.history import Violation
from nexo.simulation.large.world import LargeWorld
from nexo.simulation.world import World
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

# A broken promise is an AssertionError; the others are what a defect looks like.
_WRONG = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NexoError,
    RuntimeError,
    TypeError,
    ValueError,
    apsw.Error,
)
_SEEDS_BETWEEN_COLLECTIONS = 20
_SEED_S_MAX = 30
_LARGE_S_MAX = 180
_PROGRESS_S = 1.0


class Failure(msgspec.Struct, frozen=True):
    seed: int
    text: str


def run_seed(seed: int, steps: float = 1.0) -> Failure | None:
    """One world; None if all promises were kept."""
    world = World(seed, steps)
    try:
        world.run()
    except _WRONG as error:
        return Failure(seed, _describe(world, steps, error))
    return None


def run_large(seed: int, scale: float = 1.0) -> Failure | None:
    """One world of size; None if all promises were kept."""
    world = LargeWorld(seed, scale)
    try:
        world.run()
    except _WRONG as error:
        return Failure(seed, _describe_large(world, scale, error))
    return None


def run_cluster(seed: int, steps: float = 1.0) -> Failure | None:
    """One world of several nodes; None if all promises were kept."""
    world = ClusterWorld(seed, steps)
    try:
        world.run()
    except _WRONG as error:
        return Failure(seed, _describe_cluster(world, steps, error))
    return None


class Kind(enum.Enum):
    """Of worlds."""

    BROKER = "broker"
    LARGE = "large"
    CLUSTER = "cluster"


_RUNS = {Kind.BROKER: run_seed, Kind.LARGE: run_large, Kind.CLUSTER: run_cluster}


def run_seeds(
    seeds: Iterable[int], steps: float = 1.0, processes: int = 1, kind: Kind = Kind.BROKER
) -> Iterator[tuple[int, Failure | None]]:
    """All of these; each as soon as it is done."""
    tasks = ((seed, steps, kind) for seed in seeds)
    if processes <= 1:
        yield from map(_run_one, tasks)
        return
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with context.Pool(processes) as pool:
        yield from pool.imap_unordered(_run_one, tasks, chunksize=4 if kind is Kind.BROKER else 1)


def _run_one(task: tuple[int, float, Kind]) -> tuple[int, Failure | None]:
    """A world is a heap of cycles that lives for milliseconds: collecting in the middle of it
    costs a fifth of the time and frees nothing. An alarm ends a world that never ends."""
    seed, steps, kind = task
    gc.disable()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(int((_SEED_S_MAX if kind is Kind.BROKER else _LARGE_S_MAX) * steps) + 1)
    try:
        return seed, _RUNS[kind](seed, steps)
    finally:
        signal.alarm(0)
        gc.enable()
        if seed % _SEEDS_BETWEEN_COLLECTIONS == 0:
            gc.collect()


def _too_long(number: int, frame: FrameType | None) -> None:
    where = "".join(traceback.format_stack(frame, limit=4))
    raise Violation("a world comes to its end", f"it ran for too long, at last here:\n{where}")


class Progress:
    """A line of text: how many, how fast, how long still."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._failed = 0
        self._started = time.monotonic()
        self._shown = 0.0
        self._is_terminal = sys.stderr.isatty()

    def count(self, failed: bool) -> None:
        self._done += 1
        self._failed += failed
        now = time.monotonic()
        every = _PROGRESS_S if self._is_terminal else 15 * _PROGRESS_S
        if now - self._shown >= every:
            self._shown = now
            self._show("\r" if self._is_terminal else "", "" if self._is_terminal else "\n")

    def end(self) -> None:
        self._show("\r" if self._is_terminal else "", "\n")

    def _show(self, before: str, after: str) -> None:
        rate = self._done / max(1e-9, time.monotonic() - self._started)
        left_s = (self._total - self._done) / max(1e-9, rate)
        bar = "#" * (20 * self._done // self._total)
        line = (
            f"{before}[{bar:<20}] {self._done}/{self._total} seeds, {self._failed} failed, "
            f"{rate:.1f}/s, {left_s:.0f} s left   {after}"
        )
        sys.stderr.write(line)
        sys.stderr.flush()


def _describe(world: World, steps: float, error: Exception) -> str:
    """What a person needs to begin with: the promise, what was seen, how to see it again."""
    about = error.about if isinstance(error, Violation) else ()
    store = "disk" if world.plan.on_disk else "memory"
    option = "" if steps == 1.0 else f" --steps {steps:g}"
    return "\n".join(
        [
            _headline(f"seed {world.seed}", error),
            f"  journal on {store}, {world.plan.memory_limit_bytes} bytes of memory, limits:",
            f"  {world.plan.limits}",
            f"  the last lines of its history{' about ' + ', '.join(about) if about else ''}:",
            *world.history.around(*about),
            f"  again: python -m nexo.simulation --seed {world.seed}{option} -v",
        ]
    )


def _describe_large(world: LargeWorld, scale: float, error: Exception) -> str:
    store = "disk" if world.on_disk else "memory"
    option = "" if scale == 1.0 else f" --steps {scale:g}"
    shape = world.shape
    return "\n".join(
        [
            _headline(f"seed {world.seed} of size, {type(shape).__name__} of {shape.size},", error),
            f"  journal on {store}; {(shape.__doc__ or '').strip()}",
            *world.history.text(),
            f"  again: python -m nexo.simulation --large --seed {world.seed}{option}",
        ]
    )


def _describe_cluster(world: ClusterWorld, steps: float, error: Exception) -> str:
    about = error.about if isinstance(error, Violation) else ()
    option = "" if steps == 1.0 else f" --steps {steps:g}"
    return "\n".join(
        [
            _headline(f"seed {world.seed} of a cluster", error),
            f"  nodes {', '.join(world.names)}, {world.shards} shards, limits:",
            f"  {world.limits}",
            f"  the last lines of its history{' about ' + ', '.join(about) if about else ''}:",
            *world.history.around(*about),
            f"  again: python -m nexo.simulation --cluster --seed {world.seed}{option} -v",
        ]
    )


def _headline(what: str, error: Exception) -> str:
    if isinstance(error, Violation):
        return f"{what} broke a promise: {error.promise}\n  {error.found}"
    frames = "".join(traceback.format_exception(error)[-12:])
    return f"{what} ended with {type(error).__name__}: {error}\n{frames}"
