"""`make bench`: measure this machine and say which bars hold.

make bench                       everything
make bench ARGS="rules durable"  some of it
make bench ARGS="backlog --backlog 2000000"
make bench ARGS="steady --minutes 60"
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench import (
    backlog,
    cluster,
    console,
    durable,
    frameworks,
    journal,
    nodes,
    operations,
    peers,
    placement,
    restart,
    rpc,
    rules,
    sql,
    sqs,
    steady,
    steps,
    topics,
    udp,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.result import Result

CASES = (
    "rules",
    "journal",
    "durable",
    "backlog",
    "restart",
    "rpc",
    "sqs",
    "udp",
    "topics",
    "operations",
    "steps",
    "steady",
    "cluster",
    "nodes",
    "placement",
    "console",
    "sql",
    "spark",
    "pipeline",
    "peers",
    "frameworks",
)


def measure(case: str, directory: Path, options: argparse.Namespace) -> Iterable[Result]:
    if case == "rules":
        return rules.run()
    if case == "journal":
        return journal.run(directory)
    if case == "durable":
        return durable.run(directory)
    if case == "backlog":
        return backlog.run(directory, options.backlog)
    if case == "restart":
        return restart.run(directory)
    if case == "spark":
        from bench import spark  # which loads PySpark

        return spark.run(directory)
    if case == "pipeline":
        from bench import pipeline  # which loads PySpark

        return pipeline.run(directory)
    if case == "sqs":
        return sqs.run(directory)
    if case == "topics":
        return topics.run(directory)
    if case == "console":
        return console.run(directory)
    if case == "sql":
        return sql.run(directory)
    if case == "operations":
        return operations.run(directory)
    if case == "steps":
        return steps.run(directory)
    if case == "steady":
        return steady.run(directory, options.minutes, options.memory_limit)
    if case == "cluster":
        return cluster.run(directory)
    if case == "nodes":
        return nodes.run(directory)
    if case == "placement":
        return placement.run()
    if case == "udp":
        return udp.run(directory)
    if case == "peers":
        return peers.run(directory)
    if case == "frameworks":
        return frameworks.run(directory, options.tasks)
    return rpc.run(directory)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="case", help=f"of {', '.join(CASES)}")
    parser.add_argument("--directory", type=Path, default=Path(".bench"), help="where to write")
    parser.add_argument("--backlog", type=int, default=20_000_000, help="messages in the backlog")
    parser.add_argument("--tasks", type=int, default=10_000, help="sent in a round of `frameworks`")
    parser.add_argument("--minutes", type=float, default=2, help="how long `steady` runs")
    parser.add_argument(
        "--memory-limit", metavar="SIZE", help="of the broker of `steady` (else its default)"
    )
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"unknown case {', '.join(sorted(unknown))}")
    bars = missed = 0
    for name in options.cases or CASES:
        print(f"-- {name}", flush=True)
        directory = options.directory.resolve() / name  # processes run in folders of it
        for result in measure(name, directory, options):
            print(result.line(), flush=True)
            bars += result.bar is not None
            missed += not result.holds
    print(f"\n{bars - missed} of {bars} bars hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
