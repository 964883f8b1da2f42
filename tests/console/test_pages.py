"""Every page in a real browser, over a broker with real traffic: it opens, says nothing wrong, and
axe finds nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.console.looking import LINES_BYTES_MAX, Looking, follow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from nexo import Client
    from tests.compliance.broker import ServedBroker

PAGE_BYTES_MAX = 250_000
PAGES = {
    "": "Overview",
    "/queues": "Queues",
    "/queues/orders": "orders",
    "/queues/search": "search",
    "/queues/lake-feed": "lake-feed",
    "/dead-letters": "Dead letters",
    "/dead-letters/payments_dlq": "payments_dlq",
    "/dead-letters/strange_dlq": "strange_dlq",
    "/topics": "Topics",
    "/topics/prices": "prices",
    "/topics/nexo.events": "nexo.events",
    "/spark": "Spark",
    "/access": "Access",
    "/consumers": "Consumers",
    "/queues/nowhere": "Request failed",
    "/nothing": "Request failed",
}


@pytest.fixture(autouse=True)
def _world(world: ServedBroker) -> None:
    """All of these look at the same."""


@pytest.mark.parametrize("address", PAGES)
def test_a_page_opens_at_its_address_and_axe_finds_nothing(looking: Looking, address: str) -> None:
    for scheme in ("light", "dark"):
        looking.page.emulate_media(color_scheme=scheme)
        page = looking.at(address)
        assert page.locator("h1").inner_text().split("\n")[0].strip() == PAGES[address]
        assert looking.findings(only_colours=scheme == "dark") == [], f"{address} in {scheme}"


def test_the_page_of_a_message_is_accessible_too(looking: Looking, client: Client) -> None:
    letter = client.queue("payments_dlq").peek(1)[0]
    looking.at(f"/queues/payments_dlq/messages/{letter.id}")
    assert looking.findings() == []


def test_open_dialogs_are_accessible(looking: Looking) -> None:
    page = looking.at("/queues/orders")
    page.get_by_role("button", name="Purge").click()
    assert page.locator("dialog#purge").is_visible()
    assert looking.findings() == []


@pytest.mark.parametrize("address", [each for each in PAGES if PAGES[each] != "Request failed"])
def test_a_phone_shows_it_without_scrolling_sideways(
    browser: Browser, broker: ServedBroker, address: str
) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True)
    with Looking(context, broker.endpoint) as tab:
        page = tab.at(address)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, f"{address} is {width} wide"
        assert tab.findings(only_colours=not address.startswith("/queues")) == []


@pytest.mark.parametrize("address", ["", "/queues", "/queues/orders", "/spark"])
def test_a_page_with_all_that_it_loads_is_small(looking: Looking, address: str) -> None:
    page = looking.at(address)
    assert looking.bytes > 20_000
    lines: int = page.evaluate("(document.querySelector('#history')?.textContent ?? '').length")
    longest = looking.bytes - lines + (LINES_BYTES_MAX if lines else 0)
    assert longest <= PAGE_BYTES_MAX, f"{longest:,} bytes when it has been looked at for long"


def test_counts_in_badges_equal_the_lists_behind_them(looking: Looking, client: Client) -> None:
    page = looking.at("/queues")
    rows = page.locator("#rows tbody tr").count()
    assert looking.text("badge.queues") == str(rows) == str(len(list(client.queues())))
    letters = looking.text("badge.dead_letters")
    page = looking.at("/dead-letters")
    shown = page.locator("tbody td:nth-child(2)").all_inner_texts()
    assert letters == str(sum(int(text.replace(",", "")) for text in shown))
    name = page.locator("tbody th a").first.inner_text()
    page = looking.at(f"/dead-letters/{name}")
    assert page.locator("#letters tbody tr").count() == client.queue(name).info().depth


def test_figures_are_those_of_the_engine(looking: Looking, client: Client) -> None:
    looking.at("/queues/orders")
    info = client.queue("orders").info()
    for field in ("depth", "ready", "in_flight", "scheduled", "pushed", "acked"):
        assert looking.text(f"q.orders.{field}") == f"{getattr(info, field):,}", field


def test_from_a_dead_letter_to_its_source_and_back(looking: Looking) -> None:
    page = looking.at("/dead-letters")
    follow(page.get_by_role("link", name="payments_dlq"))
    follow(page.locator("#letters tbody th a").first)
    assert "no stock" in page.locator(".reason").inner_text()
    follow(page.locator(".why").get_by_role("link", name="payments"))
    assert page.locator("h1").inner_text().startswith("payments")
    follow(page.get_by_role("link", name="payments_dlq"))
    assert page.locator("h1").inner_text() == "payments_dlq"


def history(looking: Looking, address: str, count: int) -> list[str]:
    """What the page of a message tells. Events may come a few milliseconds late: it is looked at
    until there are so many."""
    told: list[str] = []
    give_up = time.monotonic() + 10
    while len(told) < count and time.monotonic() < give_up:
        told = looking.at(address).locator(".timeline li strong").all_inner_texts()
    return told


def test_why_a_message_failed_attempt_by_attempt(looking: Looking, client: Client) -> None:
    letter = client.queue("payments_dlq").peek(1)[0]
    attempt = ["delivered", "received", "nacked"]
    life = ["pushed", *attempt, *attempt, "dead-lettered", "pushed"]
    assert history(looking, f"/queues/payments_dlq/messages/{letter.id}", len(life)) == life
    nacked = looking.page.locator(".timeline li.nacked").all_inner_texts()
    assert ["attempt 1" in nacked[0], "attempt 2" in nacked[1]] == [True, True]
    assert all("no stock" in text for text in nacked)


def test_the_life_of_a_message_that_is_gone(looking: Looking, client: Client) -> None:
    queue = client.queue("brief", create=True)
    id_text = queue.push("short life")
    message = queue.pop()
    assert message is not None
    message.ack()
    life = ["pushed", "delivered", "received", "acked"]
    assert history(looking, f"/queues/brief/messages/{id_text}", len(life)) == life
    assert "is no longer in" in looking.page.locator(".empty").inner_text()


def test_spark_shows_who_holds_which_batch(looking: Looking) -> None:
    page = looking.at("/spark")
    cells = page.locator("section").first.locator("tbody tr").first.locator("th, td")
    assert cells.all_inner_texts()[:2] == ["lake-feed", "orders-to-lake"]
    assert looking.text("spark.lake-feed.orders-to-lake.held") == "40"
    assert looking.text("spark.lake-feed.orders-to-lake.age") != "\N{EN DASH}"
    assert looking.text("spark.lake-feed.orders-to-lake.batches") == "2"
    done = page.locator("section").nth(1).locator("tbody tr").first.locator("td")
    done.nth(2).filter(has_text="40").wait_for()  # it may be told of a moment later
    assert done.all_inner_texts()[2] == "40"


def test_dark_and_light_by_hand_outlive_a_reload(looking: Looking) -> None:
    page = looking.at("")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after
