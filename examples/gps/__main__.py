"""`python -m examples.gps`: the whole of Nexo at work. `nexo demo` runs this."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import util
from pathlib import Path

from rich.console import Console

DONE, UNBALANCED, USAGE, INTERRUPTED = 0, 1, 2, 130


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("nexo demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.0, help="of traffic; else until Ctrl-C")
    parser.add_argument("--chaos", action="store_true", help="kill the broker and Spark too")
    parser.add_argument("--vehicles", type=int, default=240, help="each reports once a second")
    parser.add_argument("--folder", type=Path, help="to keep data, lake and logs in")
    parser.add_argument("--free-ports", action="store_true", help="not 9324 to 9326")
    parser.add_argument("--json", action="store_true", help="the accounting as JSON")
    plan = parser.parse_args(given)
    if plan.seconds < 0 or plan.vehicles < 3:
        parser.error("seconds are not below 0, and there are 3 vehicles or more")
    if plan.folder is not None and plan.folder.exists() and any(plan.folder.iterdir()):
        parser.error(f"{plan.folder} is not empty")
    return plan


def main(given: list[str] | None = None) -> int:
    asked = arguments(given)
    if util.find_spec("pyspark") is None:
        print('the demo needs Spark: pip install "nexo-broker[spark]"', file=sys.stderr)
        return USAGE
    if asked.folder is not None:
        asked.folder.mkdir(parents=True, exist_ok=True)
        return run(asked, asked.folder.resolve())
    with tempfile.TemporaryDirectory(prefix="nexo-demo-", ignore_cleanup_errors=True) as folder:
        return run(asked, Path(folder))


def run(asked: argparse.Namespace, folder: Path) -> int:
    from examples.gps.demo.run import Demo, Plan
    from examples.gps.demo.stage import Broken

    plan = Plan(
        seconds=asked.seconds,
        chaos=asked.chaos,
        vehicles=asked.vehicles,
        usual_ports=not asked.free_ports,
        json=asked.json,
    )
    # With --json standard output is for programs; people may look on at standard error.
    console = Console(stderr=asked.json, highlight=False)
    try:
        accounting = Demo(plan, folder, console).run()
    except Broken as error:
        print(f"nexo demo: {error}", file=sys.stderr)
        return UNBALANCED
    except KeyboardInterrupt:
        return INTERRUPTED
    return DONE if accounting.holds else UNBALANCED


if __name__ == "__main__":
    raise SystemExit(main())
