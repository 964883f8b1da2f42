"""A broker with traffic, and a browser that looks at it.

Both live as long as the tests of a file: Playwright keeps an event loop running in its thread, in
which tests of other files want one of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

import nexo
from tests.compliance.broker import ServedBroker
from tests.console.browser import launch
from tests.console.looking import Looking
from tests.console.world import fill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from nexo import Client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = launch(playwright)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    served = ServedBroker(tmp_path_factory.mktemp("console")).start()
    yield served
    served.stop()


@pytest.fixture(scope="module")
def client(broker: ServedBroker) -> Iterator[Client]:
    with nexo.connect(broker.native_url) as connected:
        yield connected


@pytest.fixture(scope="module")
def world(broker: ServedBroker, client: Client) -> ServedBroker:
    fill(client, broker.native_url)
    return broker


@pytest.fixture
def looking(browser: Browser, broker: ServedBroker) -> Iterator[Looking]:
    """A tab on the broker. Whatever a page says is wrong fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    with Looking(context, broker.endpoint) as tab:
        yield tab


# -- A broker that no other test has put anything on: in which order they come is chance ----------


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[ServedBroker]:
    served = ServedBroker(tmp_path).start()
    yield served
    served.stop()


@pytest.fixture
def own_client(own_broker: ServedBroker) -> Iterator[Client]:
    with nexo.connect(own_broker.native_url) as connected:
        yield connected


@pytest.fixture
def own_looking(browser: Browser, own_broker: ServedBroker) -> Iterator[Looking]:
    with Looking(browser.new_context(), own_broker.endpoint) as tab:
        yield tab
