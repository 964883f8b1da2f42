"""Pages that change by themselves: within a second, without a reload."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nexo.doors.console.live import TICK_S

if TYPE_CHECKING:
    from nexo import Client
    from tests.console.looking import Looking

SEEN_WITHIN_S = 1.0
MACHINE_S = 1.0  # what a machine that runs other tests may add


def test_the_empty_state_teaches_and_gives_way_to_figures(looking: Looking, client: Client) -> None:
    page = looking.live("")
    assert "nexo push hello" in page.locator(".lesson").inner_text()
    assert looking.findings() == []
    client.queue("hello", create=True).push("Hello, world")
    page.locator(".lesson").wait_for(state="detached", timeout=10_000)
    assert looking.text("depth") == "1"


def test_a_changed_depth_shows_within_a_second(looking: Looking, client: Client) -> None:
    assert TICK_S < SEEN_WITHIN_S
    queue = client.create_queue("live")
    looking.live("")
    before = int(looking.text("depth"))
    for number in range(1, 4):
        queue.push("more")
        began = time.monotonic()
        looking.wait_for_text("depth", str(before + number))
        assert time.monotonic() - began < SEEN_WITHIN_S + MACHINE_S


def test_the_rows_of_the_table_and_the_badges_change(looking: Looking, client: Client) -> None:
    queue = client.create_queue("table")
    looking.live("/queues")
    queue.push_batch(["a"] * 7)
    looking.wait_for_text("q.table.depth", "7")
    count = int(looking.text("badge.queues"))
    client.create_queue("one-more")
    looking.wait_for_text("badge.queues", str(count + 1))


def test_the_page_of_a_queue_follows_it(looking: Looking, client: Client) -> None:
    queue = client.create_queue("followed")
    page = looking.live("/queues/followed")
    queue.push_batch(["a"] * 3)
    looking.wait_for_text("q.followed.depth", "3")
    page.wait_for_function("() => nexoCharts.plots[0].columns[3].at(-1) === 3", timeout=10_000)
    queue.pause()
    looking.wait_for_text("q.followed.state", "paused")
    queue.delete()
    page.locator("h1", has_text="That was refused").wait_for(timeout=10_000)


def test_a_line_can_be_zoomed_and_stays_so(looking: Looking, client: Client) -> None:
    client.create_queue("zoomed")
    page = looking.live("/queues/zoomed")
    page.wait_for_function("() => nexoCharts.plots[0].columns[0].length >= 4", timeout=15_000)
    plot = page.locator("figure.chart .u-over").first
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 20, steps=4)
    page.mouse.up()
    span = "(() => { const x = nexoCharts.plots[0].plot.scales.x; return x.max - x.min; })()"
    zoomed = page.evaluate(span)
    points = page.evaluate("nexoCharts.plots[0].columns[0].length")
    whole = "nexoCharts.plots[0].columns[0].at(-1) - nexoCharts.plots[0].columns[0][0]"
    page.wait_for_function(
        f"() => nexoCharts.plots[0].columns[0].length > {points}", timeout=10_000
    )
    assert page.evaluate(span) == zoomed < page.evaluate(whole)
    page.mouse.dblclick(box["x"] + box["width"] * 0.5, box["y"] + 20)
    assert page.evaluate(span) > zoomed


def test_the_tail_of_a_topic(looking: Looking, client: Client) -> None:
    topic = client.create_topic("news")
    page = looking.live("/topics/news")
    assert "appears" in page.locator("#tail-empty").inner_text()
    topic.publish("first")
    topic.publish("<b>second</b>")
    page.locator("#tail tr").nth(1).wait_for(timeout=10_000)
    assert page.locator("#tail td.body").all_inner_texts() == ["<b>second</b>", "first"]
    looking.wait_for_text("t.news.kept", "2")
    topic.bind("readers")
    page.reload()
    topic.publish("third")
    looking.wait_for_text("group.readers.lag", "1")


def test_two_tabs_and_one_that_went_away(looking: Looking, client: Client) -> None:
    queue = client.create_queue("tabs")
    looking.live("/queues/tabs")
    other = looking.context.new_page()
    other.goto(f"{looking.endpoint}/console/queues/tabs")
    other.close()
    queue.push("seen by the one that stayed")
    looking.wait_for_text("q.tabs.depth", "1")
