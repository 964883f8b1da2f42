"""The demo from its start to the accounting."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

import nexo
from examples.gps import names
from examples.gps.accounting import account
from examples.gps.demo import verdict
from examples.gps.demo.happenings import Happenings
from examples.gps.demo.stage import Stage
from examples.gps.demo.strikes import Strikes
from examples.gps.demo.view import FINISHING, View
from examples.gps.demo.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.console import Console

    from examples.gps.accounting import Accounting

STEP_S = 0.25
STALLED_S = 120.0  # without any progress, Spark is not waited for longer
LULL_S = 60.0  # after so long without progress, nothing more is killed
ALERTS_S = 10.0  # how long workers may still take for what waits
FRESH_S = 1.0  # a look of this much later has seen what Spark pushed last
FLEET_S = 40.0  # longer than the native client waits for a broker


class Plan(msgspec.Struct, frozen=True):
    seconds: float = 0.0  # 0: until Ctrl-C
    chaos: bool = False
    vehicles: int = 240
    usual_ports: bool = True
    json: bool = False


class Demo:
    def __init__(self, plan: Plan, folder: Path, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._happenings = Happenings()
        self._stage = Stage(
            folder,
            self._happenings,
            vehicles=plan.vehicles,
            usual_ports=plan.usual_ports,
            ui=console.is_terminal,
        )
        self._strikes = Strikes(self._stage, self._happenings, plan.seconds, plan.chaos)
        self._is_over = False

    def run(self) -> Accounting:
        """All of it. Ctrl-C brings the end forward; a second one raises KeyboardInterrupt."""
        with self._signals():
            try:
                self._stage.begin()
                accounting = self._play()
                self._stage.end()
            except BaseException:
                self._stage.kill()
                raise
        self._tell(accounting)
        return accounting

    def _play(self) -> Accounting:
        stage, clock = self._stage, lambda: self._happenings.elapsed_s
        watch = Watch(stage.url, stage.http, stage.folder, clock)
        view = View(stage, watch, self._happenings, self._plan.seconds, self._plan.vehicles)
        watch.start()
        with view.showing(self._console) as show:
            self._live(watch, show)
            view.phase = FINISHING
            self._finish(watch, show)
            watch.stop()
            show()
        with nexo.connect(stage.url) as client:
            return account(client, stage.folder)

    def _live(self, watch: Watch, show: Callable[[], None]) -> None:
        seconds = self._plan.seconds
        while not self._is_over and not (seconds and self._happenings.elapsed_s >= seconds):
            self._stage.tend()
            self._strikes.strike(self._happenings.elapsed_s, watch.course.last)
            show()
            time.sleep(STEP_S)
        if self._is_over or not seconds:
            self._strikes.cancel()

    def _finish(self, watch: Watch, show: Callable[[], None]) -> None:
        """No more traffic; what is under way is finished, first by Spark, then by the workers."""
        stage = self._stage
        self._happenings.tell("the fleet stops, the rest is finished")
        stage.fleet.ask_to_end()
        until = time.monotonic() + FLEET_S
        while stage.fleet.is_running and time.monotonic() < until:
            stage.tend_one(stage.broker)  # it may have been killed last
            show()
            time.sleep(STEP_S)
        stage.fleet.end(0.0)
        self._finish_spark(watch, show)
        self._finish_alerts(watch, show)

    def _finish_spark(self, watch: Watch, show: Callable[[], None]) -> None:
        """All that is with the broker goes into the lake; what was to be killed is killed first."""
        stage = self._stage
        seen: object = None
        since = time.monotonic()
        while time.monotonic() - since < STALLED_S:
            look = watch.course.last
            if self._strikes.is_over:
                if stage.finish_spark():
                    return
            else:
                self._strikes.strike(self._happenings.elapsed_s, look)
                stage.tend_one(stage.spark)
                if time.monotonic() - since > LULL_S:
                    self._strikes.cancel()  # a short run: it never comes to that
            for process in (stage.broker, *stage.workers):
                stage.tend_one(process)
            show()
            time.sleep(STEP_S)
            if (look.rows_kept, look.batches, look.spark and look.spark.state) != seen:
                seen = (look.rows_kept, look.batches, look.spark and look.spark.state)
                since = time.monotonic()
        self._happenings.tell("Spark does not come to an end", is_bad=True)
        stage.spark.kill()

    def _finish_alerts(self, watch: Watch, show: Callable[[], None]) -> None:
        """Workers get a while for what waits; the rest stays in the queue."""
        since_s = self._happenings.elapsed_s
        while (at_s := self._happenings.elapsed_s) < since_s + ALERTS_S:
            look = watch.course.last
            is_new = look.is_up and look.at_s > since_s + FRESH_S
            if is_new and not look.line(names.ALERTS).depth:
                break
            show()
            time.sleep(min(STEP_S, since_s + ALERTS_S - at_s))
        for worker in self._stage.workers:
            worker.end(ALERTS_S)

    def _tell(self, accounting: Accounting) -> None:
        if self._plan.json:
            told = {
                **msgspec.to_builtins(accounting),
                "kills": self._strikes.count,
                "holds": accounting.holds,
            }
            sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        else:
            verdict.tell(self._console, accounting, self._strikes.count)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before: dict[int, Any] = {each: signal.signal(each, self._signalled) for each in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, _: object) -> None:
        if self._is_over or number == signal.SIGHUP:  # with the terminal goes who would look on
            raise KeyboardInterrupt
        self._is_over = True
