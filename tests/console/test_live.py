"""Pages that change by themselves: within a second, without a reload."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nexo.vocabulary.limits import CONSOLE_TICK_S
from tests.console.looking import Looking

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from nexo import Client
    from tests.compliance.broker import ServedBroker

SEEN_WITHIN_S = 1.0
MACHINE_S = 1.0  # what a machine that runs other tests may add


def test_the_empty_state_teaches_and_gives_way_to_figures(
    own_looking: Looking, own_client: Client
) -> None:
    page = own_looking.live("")
    assert "nexo push hello" in page.locator(".lesson").inner_text()
    assert own_looking.findings() == []
    own_client.queue("hello", create=True).push("Hello, world")
    page.locator(".lesson").wait_for(state="detached")
    own_looking.wait_for_text("depth", "1")  # the queue is there before its message


def test_a_changed_depth_shows_within_a_second(looking: Looking, client: Client) -> None:
    assert CONSOLE_TICK_S < SEEN_WITHIN_S
    queue = client.create_queue("live")
    looking.live("")
    before = int(looking.text("depth"))
    took_s = []
    for number in range(1, 6):
        queue.push("more")
        began = time.monotonic()
        looking.wait_for_text("depth", str(before + number))
        took_s.append(time.monotonic() - began)
    # The first may come just before a tick; all others come just after one.
    assert min(took_s[1:]) < SEEN_WITHIN_S + MACHINE_S, "late each time: it is not the machine"


def test_the_rows_of_the_table_and_the_badges_change(looking: Looking, client: Client) -> None:
    queue = client.create_queue("table")
    looking.live("/queues")
    queue.push_batch(["a"] * 7)
    looking.wait_for_text("q.table.depth", "7")
    count = int(looking.text("badge.queues"))
    client.create_queue("one-more")
    looking.wait_for_text("badge.queues", str(count + 1))
    rows = looking.page.locator("#rows tbody th a")
    rows.filter(has_text="one-more").wait_for()
    assert rows.count() == count + 1
    client.queue("one-more").delete()
    rows.filter(has_text="one-more").wait_for(state="detached")


def test_the_table_is_sorted_anew_but_not_under_a_hand(looking: Looking, client: Client) -> None:
    first, second = client.create_queue("turn-a"), client.create_queue("turn-b")
    first.push_batch(["x"] * 2)
    second.push("x")
    page = looking.live("/queues?filter=turn-&sort=-depth")
    names = page.locator("#rows tbody th a")
    assert names.all_inner_texts() == ["turn-a", "turn-b"]
    page.keyboard.press("j")
    second.push_batch(["x"] * 8)
    looking.wait_for_text("q.turn-b.depth", "9")
    page.locator("#rows[data-waits]").wait_for()
    assert names.all_inner_texts() == ["turn-a", "turn-b"], "it moved under the keyboard"
    page.evaluate("document.activeElement.blur()")
    page.wait_for_function(
        "() => document.querySelector('#rows tbody th a').textContent === 'turn-b'"
    )
    page.locator("#filter").fill("turn-b")
    page.wait_for_function("() => document.querySelectorAll('#rows tbody tr').length === 1")
    assert "sort=-depth" in page.url, "the order is forgotten by filtering"


def test_lists_follow_what_is_in_them(own_looking: Looking, own_client: Client) -> None:
    looking, client = own_looking, own_client  # else others may be deeper
    queue = client.create_queue("filling", max_attempts=1)
    page = looking.live("/queues/filling")
    assert "The queue is empty" in page.locator("#glimpses").inner_text()
    queue.push("now")
    page.locator("#glimpses tbody tr").wait_for()
    looking.live("")
    page.locator("#deepest").get_by_role("link", name="filling", exact=True).wait_for()
    message = queue.pop()
    assert message is not None
    message.nack(reason="broken")
    page.locator("#deepest").get_by_role("link", name="filling_dlq").wait_for()
    page.locator("#deepest").get_by_role("link", name="filling", exact=True).wait_for(
        state="detached"
    )
    looking.live("/dead-letters/filling_dlq")
    assert page.locator("#letters tbody tr").count() == 1
    client.queue("filling_dlq").purge()
    page.locator("#letters .empty").wait_for()
    looking.live("/dead-letters")
    assert page.get_by_role("link", name="filling_dlq").count() == 0
    queue.push("again")
    message = queue.pop()
    assert message is not None
    message.nack(reason="broken")
    page.get_by_role("link", name="filling_dlq").wait_for()


def test_a_page_that_has_gone_does_not_say_that_it_is_live(
    looking: Looking, client: Client
) -> None:
    queue = client.create_queue("short-lived")
    page = looking.live("/queues/short-lived")
    page.get_by_role("button", name="Purge").click()
    queue.delete()
    page.locator('#pulse[data-state="static"]').wait_for()
    page.locator("dialog#purge").get_by_role("button", name="Cancel").click()
    page.locator("h1", has_text="Request failed").wait_for()


def test_the_page_of_a_queue_follows_it(looking: Looking, client: Client) -> None:
    queue = client.create_queue("followed")
    page = looking.live("/queues/followed")
    queue.push_batch(["a"] * 3)
    looking.wait_for_text("q.followed.depth", "3")
    page.wait_for_function("() => nexoCharts.plots[0].columns[3].at(-1) === 3")
    queue.pause()
    looking.wait_for_text("q.followed.state", "paused")
    queue.delete()
    page.locator("h1", has_text="Request failed").wait_for()


def test_a_line_can_be_zoomed_and_stays_so(looking: Looking, client: Client) -> None:
    client.create_queue("zoomed")
    page = looking.live("/queues/zoomed")
    page.wait_for_function("() => nexoCharts.plots[0].columns[0].length >= 4")
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
    page.wait_for_function(f"() => nexoCharts.plots[0].columns[0].length > {points}")
    assert page.evaluate(span) == zoomed < page.evaluate(whole)
    page.mouse.dblclick(box["x"] + box["width"] * 0.5, box["y"] + 20)
    assert page.evaluate(span) > zoomed


def test_charts_tell_the_last_value_and_the_time_of_the_tables(
    browser: Browser, broker: ServedBroker, client: Client
) -> None:
    client.create_queue("far-away").push_batch(["x"] * 3)
    with Looking(browser.new_context(timezone_id="Asia/Tokyo"), broker.endpoint) as tab:
        page = tab.live("/queues/far-away")
        page.wait_for_function("() => nexoCharts.plots[0].columns[3].at(-1) === 3")
        told, at_s = page.evaluate(
            """() => [[...document.querySelector("figure.chart").querySelectorAll(
            ".u-legend .u-value")].map((each) => each.innerText),
            nexoCharts.plots[0].columns[0].at(-1)]"""
        )  # at once: between two looks another point may come
        possible = [f"{datetime.fromtimestamp(at_s - back, UTC):%H:%M:%S}" for back in range(4)]
        assert told[0] in possible, "a chart has another time than a table"
        assert told[1:] == ["3", "0"]


def test_the_tail_of_a_topic(looking: Looking, client: Client) -> None:
    topic = client.create_topic("news")
    page = looking.live("/topics/news")
    assert "Published messages appear" in page.locator("#tail-empty").inner_text()
    topic.publish("first")
    topic.publish("<b>second</b>")
    page.locator("#tail tr").nth(1).wait_for()
    assert page.locator("#tail td.body").all_inner_texts() == ["<b>second</b>", "first"]
    looking.wait_for_text("t.news.kept", "2")
    topic.bind("readers")
    page.locator("#groups").get_by_role("link", name="readers").wait_for()
    topic.publish("third")
    looking.wait_for_text("group.readers.lag", "1")


def test_a_tail_repeats_nothing_and_counts_what_it_leaves_out(
    looking: Looking, client: Client
) -> None:
    topic = client.create_topic("wide")
    page = looking.live("/topics/wide")
    topic.publish("first")
    page.locator("#tail tr").wait_for()
    for number in range(8):
        topic.publish(f"{number} " + "x" * 300_000)
    bodies = page.locator("#tail td.body")
    bodies.filter(has_text="7 xxx").wait_for()
    shown = [text[:5] for text in bodies.all_inner_texts()]
    assert (shown[0][0], len(shown)) == ("7", len(set(shown)))
    before = page.locator("#tail tr").count()
    # What a tab does that was away: it connects again, at the address that it had.
    page.evaluate("document.dispatchEvent(new Event('htmx:afterSettle'))")
    topic.publish("last")
    bodies.filter(has_text="last").wait_for()
    offsets = [
        int(text) for text in page.locator("#tail tr:has(td.body) td:first-child").all_inner_texts()
    ]
    assert offsets == sorted(set(offsets), reverse=True), "a message is shown twice"
    assert page.locator("#tail tr").count() == before + 1
    looking.at("/topics/wide")
    assert page.locator("#tail td.body").first.inner_text() == "last"
    page.locator("#follow").uncheck()
    page.locator('#pulse[data-state="live"]').wait_for()
    topic.publish("not seen")
    looking.wait_for_text("t.wide.kept", "11")
    page.locator("#follow").check()
    topic.publish("seen")
    page.locator("#tail tr", has_text="… 1 not shown").wait_for()


def test_two_tabs_and_one_that_went_away(looking: Looking, client: Client) -> None:
    queue = client.create_queue("tabs")
    looking.live("/queues/tabs")
    other = looking.context.new_page()
    other.goto(f"{looking.endpoint}/console/queues/tabs")
    other.close()
    queue.push("seen by the one that stayed")
    looking.wait_for_text("q.tabs.depth", "1")
