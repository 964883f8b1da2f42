"""`python -m nexo.simulation`: run seeded worlds and report those that break a promise."""

from __future__ import annotations

import argparse
import sys

from nexo.simulation.cluster.world import ClusterWorld
from nexo.simulation.seeds import Kind, Progress, run_seeds
from nexo.simulation.world import World


def main() -> int:
    options = _parser().parse_args()
    kind = Kind.LARGE if options.large else Kind.CLUSTER if options.cluster else Kind.BROKER
    if options.seed is not None and options.verbose and kind is not Kind.LARGE:
        return _tell(options.seed, options.steps, kind)
    first = options.first if options.seed is None else options.seed
    count = options.seeds if options.seed is None else 1
    progress, failures = Progress(count), []
    seeds = range(first, first + count)
    for _, failure in run_seeds(seeds, options.steps, options.processes, kind):
        progress.count(failure is not None)
        if failure is not None:
            failures.append(failure.seed)
            print(f"\n{failure.text}\n", flush=True)
    progress.end()
    if failures:
        print(f"{len(failures)} of {count} seeds failed: {sorted(failures)}")
        return 1
    print(f"{count} seeds from {first} on: every promise kept")
    return 0


def _tell(seed: int, steps: float, kind: Kind) -> int:
    """One seed with its whole history."""
    world = ClusterWorld(seed, steps) if kind is Kind.CLUSTER else World(seed, steps)
    try:
        world.run()
    finally:
        print("\n".join(world.history.text()))
    print(f"seed {seed}: every promise kept")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nexo.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument(
        "--steps",
        type=float,
        default=1.0,
        help="how long actors work, or how large a world of size is, as a multiple",
    )
    parser.add_argument(
        "--large", action="store_true", help="worlds of size, where every step is held to a bound"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="worlds of several nodes over a database that fences"
    )
    parser.add_argument("--processes", type=int, default=1, help="worlds at the same time")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --seed: all lines")
    return parser


if __name__ == "__main__":
    sys.exit(main())
