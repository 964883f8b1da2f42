"""What helps people who do not know the broker yet, or cannot see what is wrong with it: the first
page of an empty broker, snippets, search, the page of the API, and a broker that is away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.doors.admin_http.app import api_document
from nexo.doors.console.api import page_of
from tests.compliance.broker import ServedBroker
from tests.console.looking import Looking, follow
from tests.postgresql import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from nexo import Client


# The texts beside a chart that shows these values over so many seconds.
_MARKS = """([high, seconds]) => {
  const {plot} = nexoCharts.plots.splice(0)[0]; // from now on no live point comes in between
  const times = Array.from({length: 20}, (_, at) => 1700000000 + seconds * at / 19);
  plot.setData([times, ...plot.series.slice(1).map(() => times.map((_, at) => high * at / 19))]);
  return new Promise((done) => setTimeout(() => done(plot.axes.map((axis) =>
    axis._values.filter((text) => text !== null && text !== ""))), 50));
}"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServedBroker]:
    # A port that no connection of others has when the broker comes back to it.
    served = ServedBroker(tmp_path, "--http-port", str(free_port())).start()
    yield served
    served.kill()


def test_the_first_lines_work_as_they_are_copied(
    browser: Browser, own: ServedBroker, tmp_path: Path
) -> None:
    with Looking(browser.new_context(), own.endpoint) as looking:
        page = looking.live("")
        text = page.locator("#in-shell").inner_text()
        assert f"export NEXO_URL={own.native_url}" in text
        assert f'nexo.connect("{own.native_url}")' in page.locator("#in-python").inner_text()
        aws = page.locator("#in-aws").inner_text()
        assert f"AWS_ENDPOINT_URL={own.endpoint}" in aws
        assert "AWS_ACCESS_KEY_ID=any" in aws
        assert looking.findings() == []
        program = page.locator("#in-python").inner_text()
        bin_folder = str(Path(nexo_command()).parent)
        for command in (
            ["bash", "-ec", text],
            [sys.executable, "-c", program],
            ["bash", "-ec", aws],
        ):
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=30,
                cwd=tmp_path,
                env={**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"},
            )
            assert done.returncode == 0, done.stderr
            assert "Hello, world" in done.stdout
        page.locator(".lesson").wait_for(state="detached")


def nexo_command() -> str:
    from tests.compliance.broker import NEXO

    return NEXO


def test_snippets_name_the_credentials_that_are_asked_for(browser: Browser, tmp_path: Path) -> None:
    command = [nexo_command(), "token", "create", "root", "--allow", "*:*", "--json"]
    made = subprocess.run(
        [*command, "--data", str(tmp_path / "data")], capture_output=True, check=True, timeout=30
    )
    token = json.loads(made.stdout)["token"]
    served = ServedBroker(tmp_path, "--access", "required").start()
    try:
        with Looking(browser.new_context(), served.endpoint) as looking:
            page = looking.at("")
            page.locator("input[name=token]").fill(token)
            follow(page.get_by_role("button", name="Sign in"))
            lesson = page.locator(".lesson").inner_text()
            assert "export NEXO_TOKEN=" in lesson
            assert "nexo token create NAME --aws" in lesson
            assert token not in page.content(), "a token is no part of a page"
            page = looking.at("/api")
            assert "Authorization: Bearer $NEXO_TOKEN" in page.locator("main").inner_text()
    finally:
        served.kill()


def test_a_broker_that_goes_away_and_comes_back(browser: Browser, own: ServedBroker) -> None:
    context = browser.new_context()
    tab = Looking(context, own.endpoint)
    page = tab.live("/queues")
    banner = page.locator("#away")
    assert not banner.is_visible()
    own.kill()
    banner.wait_for(state="visible")
    assert "The broker does not answer" in banner.inner_text()
    assert page.title().startswith("Broker away")
    assert tab.findings() == []
    again = ServedBroker(own.log.parent, "--http-port", str(own.http_port)).start()
    try:
        banner.wait_for(state="hidden")
        assert not page.title().startswith("Broker away")
        with nexo.connect(again.native_url) as client:
            client.create_queue("later")
        page.locator("#rows tbody th a", has_text="later").wait_for()
    finally:
        context.close()  # what it could not fetch meanwhile is no fault
        again.kill()


def test_rates_in_the_list_of_queues(looking: Looking, client: Client) -> None:
    queue = client.create_queue("rated")
    client.create_queue("rated-not")
    page = looking.live("/queues?filter=rated&sort=-in")
    rates = ("0", "0")
    for _ in range(100):
        queue.push_batch(["x"] * 10)
        rates = looking.text("q.rated.in"), looking.text("q.rated.out")
        if rates[0] != "0":
            break
        page.wait_for_timeout(100)
    assert rates[0] != "0"
    assert rates[1] == "0"
    assert looking.text("q.rated-not.in") == "0"
    assert page.locator("thead th[aria-sort=descending]").inner_text().startswith("In/s")
    for _ in range(100):  # a rate is over when the work is: there is some until it is seen
        queue.push_batch(["x"] * 10)
        for message in queue.pop_batch(10):
            message.ack()
        if looking.text("q.rated.out") != "0":
            return
        page.wait_for_timeout(100)
    pytest.fail("no rate of what goes out is shown")


def test_search(looking: Looking, client: Client) -> None:
    queue = client.create_queue("find-me")
    client.create_topic("find-topic")
    message_id = queue.push("here")
    page = looking.at("/queues/find-me")
    page.locator("#find input").fill("FIND-")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=FIND-")
    found = page.locator("main .found a")
    assert set(found.all_inner_texts()) == {"find-me", "find-topic"}
    assert looking.findings() == []
    page.locator("#filter").fill("nothing of the kind")
    follow(page.get_by_role("button", name="Search"))
    assert "No queue and no topic" in page.locator(".empty").inner_text()
    page.locator("#filter").fill(message_id)
    follow(page.get_by_role("button", name="Search"))
    assert page.url.endswith(f"/queues/find-me/messages/{message_id}")
    assert "here" in page.locator("main").inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_api_as_a_page(looking: Looking, width: int) -> None:
    looking.page.set_viewport_size({"width": width, "height": 900})
    page = looking.at("/api")
    wanted = page_of(api_document("0"))
    endpoints = [each for group in wanted.groups for each in group.endpoints]
    assert page.locator("section:not(#types) details").count() == len(endpoints)
    assert looking.bytes < 250_000
    page.locator("#create_queue summary").click()
    shown = page.locator("#create_queue").inner_text()
    assert "required" in shown
    assert "QueueFigures" in shown
    assert looking.findings() == []
    page.locator("#create_queue").get_by_role("link", name="QueueFigures").last.click()
    page.locator("#type-QueueFigures table").wait_for()  # a link opens what it leads to
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, "the page can be pushed sideways"


def test_every_operation_of_the_document_is_on_the_page() -> None:
    document = json.loads(api_document("0"))
    told = {
        (path, method.upper()) for path, methods in document["paths"].items() for method in methods
    }
    page = page_of(api_document("0"))
    assert {(each.path, each.method) for g in page.groups for each in g.endpoints} == told
    links = {field.link for each in page.types for field in each.fields} - {""}
    links |= {each.gives for g in page.groups for each in g.endpoints} - {""}
    assert links <= {each.name for each in page.types}, "a link that leads nowhere"


@pytest.mark.parametrize("seconds", [2, 5, 90])
@pytest.mark.parametrize("high", [1, 3, 12_345, 1_050_000, 7_000_000_000])
def test_no_mark_of_an_axis_comes_twice(looking: Looking, high: int, seconds: int) -> None:
    page = looking.at("")
    marks = page.evaluate(_MARKS, [high, seconds])
    for axis in marks:
        assert len(axis) >= 2
        assert len(set(axis)) == len(axis), axis
