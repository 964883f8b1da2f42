"""`python -m examples.peak_shaving`."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import nexo
from examples.peak_shaving.broker import own_broker
from examples.peak_shaving.course import Course, Sample
from examples.peak_shaving.database import Database
from examples.peak_shaving.orders import Customers
from examples.peak_shaving.view import showing

QUEUE = "orders"
SAMPLES = 200  # in the whole run
PEAK_SHARE = 0.08  # of the run, unless told otherwise: then there is time to drain
BATCHES_PER_SECOND = 20  # with small batches the database sees an even flow


class Accounting(NamedTuple):
    pushed: int
    stored: int
    waiting: int
    refused: int

    @property
    def holds(self) -> bool:
        return self.pushed == self.stored + self.waiting and not self.refused


def run(url: str, folder: Path, plan: argparse.Namespace, course: Course) -> Accounting:
    """The peak and what becomes of it; the course is filled meanwhile."""
    database = Database(folder / "orders.db", plan.capacity)
    with contextlib.closing(database), nexo.connect(url) as client:
        queue = client.create_queue(QUEUE, max_receive_rate=plan.capacity)
        customers = Customers(queue, plan.rate, plan.peak_seconds, plan.capacity // 5)
        batch_size = max(1, plan.capacity // BATCHES_PER_SECOND)
        worker = nexo.Worker(client, QUEUE, database.handle, batch_size=batch_size)
        working = threading.Thread(target=lambda: worker.run(signals=False), name="worker")
        began = time.monotonic()
        working.start()
        customers.start()
        try:
            with showing(course, plan.seconds) as show:
                while (at_s := time.monotonic() - began) < plan.seconds:
                    depth = queue.info().depth
                    course.add(Sample(at_s + 1e-6, customers.pushed, database.stored, depth))
                    show()
                    time.sleep(plan.seconds / SAMPLES)
        finally:
            customers.stop()
            worker.stop()
            working.join()
        return Accounting(customers.pushed, database.count(), queue.info().depth, database.refused)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m examples.peak_shaving", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long (20)")
    parser.add_argument("--rate", type=int, default=10_000, help="orders a second in the peak")
    parser.add_argument("--capacity", type=int, default=1_000, help="what the database takes")
    parser.add_argument("--peak-seconds", type=float, help="of the peak (8%% of the run)")
    parser.add_argument("--plot", type=Path, default=Path("peak_shaving.png"), help="the picture")
    parser.add_argument("--url", help="of a broker that runs; else it starts one of its own")
    plan = parser.parse_args(given)
    if min(plan.seconds, plan.rate, plan.capacity) <= 0:
        parser.error("seconds, rate and capacity are above 0")
    if plan.peak_seconds is None:
        plan.peak_seconds = plan.seconds * PEAK_SHARE
    return plan


def main(given: list[str] | None = None) -> int:
    plan = arguments(given)
    try:
        from examples.peak_shaving.plot import draw
    except ModuleNotFoundError:
        print("the picture needs matplotlib: pip install 'nexo-broker[demo]'", file=sys.stderr)
        return 2
    course = Course()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nexo-peak-")))
        url = plan.url or stack.enter_context(own_broker(folder))
        found = run(url, folder, plan, course)
    draw(course.points(), plan.capacity, plan.plot)
    print(
        f"pushed {found.pushed:,} = stored {found.stored:,} + waiting {found.waiting:,}"
        if found.holds
        else f"WRONG: pushed {found.pushed:,}, stored {found.stored:,}, "
        f"waiting {found.waiting:,}, refused by the database {found.refused:,}"
    )
    print(f"see {plan.plot}")
    return 0 if found.holds else 1


if __name__ == "__main__":
    sys.exit(main())
