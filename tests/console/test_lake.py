"""The Spark page of a broker that knows a lake: its jobs, and the tables of `insights` as plots."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

import pytest

from nexo.pipeline.lake import Lake
from nexo.pipeline.tables import queue_day
from tests.compliance.broker import ServedBroker
from tests.console.insights import MINUTES, fill_lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.console.looking import Looking


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    fill_lake(folder)
    return folder


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, lake: Path) -> Iterator[ServedBroker]:
    served = ServedBroker(tmp_path_factory.mktemp("broker"), "--lake", str(lake)).start()
    yield served
    served.stop()


def test_the_last_day_of_a_queue(lake: Path) -> None:
    day = queue_day(Lake(lake), "payments")
    assert day.queues == ["orders", "payments"]
    assert len(day.columns["minute"]) == MINUTES, "what is older than a day is left out"
    assert day.columns["minute"] == sorted(day.columns["minute"])
    assert day.reasons == []
    assert queue_day(Lake(lake), "nobody").reasons == [("no <b>stock</b>", 6)]


def test_tables_of_the_lake(looking: Looking) -> None:
    page = looking.at("/spark")
    shown = page.locator("section", has=page.locator("#tables-title")).locator("tbody tr")
    rows = {each.locator("th").inner_text(): each.locator("td") for each in shown.all()}
    assert list(rows) == [
        "insights/queue_minutes",
        "insights/dead_letters",
        "insights/consumers",
    ]
    minutes = [each.strip() for each in rows["insights/queue_minutes"].all_inner_texts()]
    assert minutes[:2] == ["1", str(2 * MINUTES + 1)]
    assert minutes[3] == minutes[4], "each of its files is small"
    assert "WRITE" in minutes[5]


def test_jobs_and_plots(looking: Looking) -> None:
    page = looking.at("/spark")
    cells = page.locator("section", has=page.locator("#jobs-title")).locator("tbody th, tbody td")
    told = [each.strip() for each in cells.all_inner_texts()]
    assert [told[0], told[1], told[2], told[4]] == ["insights", "running", "1,234", "56"]
    assert page.locator(".plots canvas").count() == 5
    drawn = page.evaluate("nexoCharts.plots.map((each) => each.columns[0].length)")
    assert drawn == [MINUTES] * 5
    assert "no <b>stock</b>" in page.locator(".plots .reasons").inner_text()
    assert looking.findings() == []
    page.get_by_label("Queue", exact=True).select_option("payments")
    page.wait_for_url("**/spark?queue=payments")
    assert page.locator(".plots canvas").count() == 4
    work = page.locator(".plots > div", has=page.locator("h3", has_text="Processing time"))
    assert "No data in the last 24 hours" in work.inner_text()
    assert page.locator(".plots .reasons").count() == 0


def test_a_lake_that_is_empty_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    served = ServedBroker(tmp_path, "--lake", str(tmp_path / "empty")).start()
    try:
        with urllib.request.urlopen(f"{served.endpoint}/console/spark") as answer:
            text = answer.read().decode()
    finally:
        served.stop()
    assert "No job has run on the lake" in text
    assert "There are no insights of the last day yet" in text
    assert "There is no table yet" in text
