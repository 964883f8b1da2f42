"""In development mode a web site must not act through the browser of a developer."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING

import pytest

from tests.access.guarded import GuardedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

FORM = "Action=CreateQueue&QueueName=stolen"
MOZILLA = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}


@pytest.fixture(scope="module")
def open_broker() -> Iterator[GuardedBroker]:
    running = GuardedBroker(access="development")
    yield running
    running.stop()


def ask(broker: GuardedBroker, method: str, path: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", broker.ports.http, timeout=10)
    try:
        body = FORM if method == "POST" else None
        if body:
            headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/", {"Origin": "https://evil.example"}),
        ("POST", "/", {"Origin": "null"}),
        ("POST", "/", {"Host": "evil.example:9324", "Origin": "http://evil.example:9324"}),
        ("POST", "/", {"Host": "127.0.0.1.evil.example", **MOZILLA}),
        ("GET", f"/?{FORM}", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}),
        ("GET", f"/?{FORM}", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}),
        ("GET", "/metrics", {"Host": "evil.example", **MOZILLA}),
        ("GET", "/metrics", {"Sec-Fetch-Site": "same-site", **MOZILLA}),
    ],
)
def test_a_page_of_another_site_is_refused(
    open_broker: GuardedBroker, method: str, path: str, headers: dict[str, str]
) -> None:
    assert ask(open_broker, method, path, headers) == 403
    assert "stolen" not in open_broker.run(lambda: list(open_broker.engine.queues))


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/", {}),
        ("POST", "/", {"Host": "sqs.eu-west-1.example.com"}),  # a program may call it so
        ("GET", "/metrics", {"Host": "localhost", "Sec-Fetch-Site": "none", **MOZILLA}),
        ("GET", "/metrics", {"Origin": "http://localhost:9324", "Sec-Fetch-Site": "same-origin"}),
        ("GET", "/health", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}),
    ],
)
def test_programs_and_our_own_pages_are_served(
    open_broker: GuardedBroker, method: str, path: str, headers: dict[str, str]
) -> None:
    assert ask(open_broker, method, path, headers) == 200
    if "stolen" in open_broker.run(lambda: list(open_broker.engine.queues)):
        open_broker.wait_for(open_broker.engine.delete_queue("stolen"))
