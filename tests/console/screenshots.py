"""`make screenshots`: the pages of the console in light and dark, wide and narrow, as pictures for
the docs, from a broker with real traffic."""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

import nexo
from tests.compliance.broker import ServedBroker
from tests.console.browser import launch
from tests.console.insights import fill_lake
from tests.console.world import fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ViewportSize

    from nexo import Client

FOLDER = Path("docs/images")
WIDE: ViewportSize = {"width": 1280, "height": 860}
NARROW: ViewportSize = {"width": 390, "height": 844}
TRAFFIC_S = 12.0


def pages(client: Client) -> dict[str, str]:
    (letter, *_) = client.queue("payments_dlq").peek(1)
    return {
        "overview": "",
        "queues": "/queues?sort=-depth",
        "queue": "/queues/orders",
        "dead-letters": "/dead-letters/payments_dlq",
        "message": f"/queues/payments_dlq/messages/{letter.id}",
        "topic": "/topics/prices",
        "spark": "/spark?queue=orders",
        "consumers": "/consumers",
        "api": "/api",
        "access": "/access",
    }


def traffic(client: Client, stop: threading.Event) -> None:
    """Work that comes in waves, so that the lines have something to say."""
    orders, emails = client.queue("orders"), client.queue("emails")
    step = 0
    while not stop.wait(0.1):
        step += 1
        orders.push_batch([f'{{"order": {step}}}'] * (5 + step % 40))
        emails.push_batch([f'{{"mail": {step}}}'] * 10)
        for message in orders.pop_batch(4 + step % 37):
            message.ack()
        for message in emails.pop_batch(12):
            message.ack()


def shoot(browser: Browser, endpoint: str, addresses: dict[str, str], folder: Path) -> None:
    for scheme in ("light", "dark"):
        for size, viewport in (("desktop", WIDE), ("phone", NARROW)):
            context = browser.new_context(
                viewport=viewport, color_scheme=scheme, reduced_motion="reduce"
            )
            page = context.new_page()
            for name, address in addresses.items():
                page.goto(f"{endpoint}/console{address}")
                page.wait_for_function("document.readyState === 'complete'")
                page.wait_for_timeout(700)  # a few live points more
                page.screenshot(path=folder / f"console-{name}-{scheme}-{size}.png")
            context.close()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        fill_lake(Path(place) / "lake", reason="no stock")
        broker = ServedBroker(Path(place), "--lake", str(Path(place) / "lake")).start()
        stop = threading.Event()
        connected = nexo.connect(broker.native_url, name="shop-worker-1")
        with connected as client, sync_playwright() as playwright:
            browser = launch(playwright)
            shoot(browser, broker.endpoint, {"first": ""}, folder)
            fill(client, broker.native_url, with_strangers=False)
            worker = threading.Thread(target=traffic, args=(client, stop))
            worker.start()
            try:
                warm = browser.new_page()
                warm.goto(f"{broker.endpoint}/console")
                warm.wait_for_timeout(TRAFFIC_S * 1000)
                warm.goto(f"{broker.endpoint}/console/queues/orders")
                warm.wait_for_timeout(TRAFFIC_S * 1000)
                shoot(browser, broker.endpoint, pages(client), folder)
                browser.close()
            finally:
                stop.set()
                worker.join()
                broker.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
