"""Who gets in and what they see; and that no other site can do anything in their name."""

from __future__ import annotations

import http.client
import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from nexo.doors.console.access import safe_next
from nexo.doors.console.session import is_local
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.settings import queue_settings_of
from nexo.vocabulary.user_settings import GivenQueueSettings
from tests.access.guarded import GuardedBroker
from tests.console.looking import Looking, follow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedBroker]:
    running = GuardedBroker()
    for name in ("orders", "secret"):
        running.wait_for(running.engine.create_queue(name))
    yield running
    running.stop()


@pytest.fixture
def tab(browser: Browser, guarded: GuardedBroker) -> Iterator[Looking]:
    with Looking(browser.new_context(), guarded.http) as looking:
        yield looking


def sign_in(tab: Looking, token: str, address: str = "") -> None:
    tab.at(address)
    tab.page.get_by_label("Token").fill(token)
    follow(tab.page.get_by_role("button", name="Sign in"))


def test_a_token_is_asked_for_and_kept_where_no_script_reads_it(
    tab: Looking, guarded: GuardedBroker
) -> None:
    page = tab.at("/queues/orders?peek=5")
    assert page.url.startswith(f"{guarded.http}/console/login?next=")
    assert tab.findings() == []
    page.get_by_label("Token").fill("nexo_wrong")
    follow(page.get_by_role("button", name="Sign in"))
    assert "not valid" in page.locator(".alert").inner_text()
    sign_in(tab, guarded.token("*:*"), "/queues/orders?peek=5")
    assert page.url == f"{guarded.http}/console/queues/orders?peek=5"
    (cookie,) = tab.context.cookies()
    assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
    assert cookie.get("path") == "/console"
    assert page.evaluate("document.cookie") == ""
    follow(page.get_by_role("button", name="Sign out"))
    assert tab.context.cookies() == []
    tab.at("")
    assert "/login" in page.url


def test_a_token_sees_what_it_may_and_nothing_else(tab: Looking, guarded: GuardedBroker) -> None:
    sign_in(tab, guarded.token("orders:peek"), "/queues")
    page = tab.page
    assert page.locator("tbody th a").all_inner_texts() == ["orders"]
    assert page.locator("nav .badge").count() == 0, "how much there is in all is not theirs to know"
    tabs = ["Queues", "Dead letters", "Topics"]
    assert page.locator("nav a").all_inner_texts() == tabs
    for address in ("/queues/secret", "/access", "/spark", "/dead-letters/secret_dlq"):
        tab.at(address)
        assert page.locator("h1").inner_text() == "Request failed", address
        assert page.locator("nav a").all_inner_texts() == tabs
    for address, needed in (("/dead-letters", "orders_dlq:peek"), ("/topics", "orders:peek")):
        tab.at(address)
        assert "may see" in page.locator(".empty").inner_text()
        assert needed in page.locator(".empty").inner_text()
    tab.at("")
    assert page.url == f"{guarded.http}/console/queues", "a sign-in leads to what can be seen"
    tab.at("/access")
    follow(page.get_by_role("button", name="Sign out"))
    assert "/login" in page.url
    sign_in(tab, guarded.token("orders:peek"), "/queues/orders")
    assert page.get_by_role("button", name="Purge").count() == 0
    assert page.locator("#send").count() == 0


def test_a_revoked_token_is_out_at_once(tab: Looking, guarded: GuardedBroker) -> None:
    minted = guarded.mint("*:*")
    sign_in(tab, minted.token, "/queues")
    tab.page.locator('#pulse[data-state="live"]').wait_for()
    guarded.wait_for(guarded.engine.tokens.revoke(minted.defined.name))
    tab.page.locator('#pulse[data-state="away"]').wait_for()
    tab.at("/queues")
    assert "/login" in tab.page.url


def dead_letter(guarded: GuardedBroker, source: str, topic: str) -> str:
    """A message that came through a topic and has failed; its id."""
    engine = guarded.engine

    async def fail() -> str:
        await engine.create_queue(source, queue_settings_of(GivenQueueSettings(max_attempts=1)))
        await engine.create_topic(topic)
        await engine.bind(topic, source)
        await engine.topic(topic).publish(batch_of([b"x"]))
        actor = engine.queue(source)
        delivery = await actor.pop(1, wait_ms=5_000, consumer="who-had-it")
        (message,) = actor.messages(delivery)
        await actor.nack(message.lease, message.seq, message.seq + 1, reason="no")
        await engine.drain()
        return message.id

    return str(guarded.wait_for(fail()))


def test_what_hangs_together_stays_secret(tab: Looking, guarded: GuardedBroker) -> None:
    """Queues that send to one, or are bound to a topic, are shown to those alone who know them."""
    id_text = dead_letter(guarded, "hidden", "shown")
    sign_in(tab, guarded.token("hidden_dlq:*", "shown:*", "seen:*"), "/topics")
    page = tab.page
    guarded.wait_for(guarded.engine.bind("shown", "seen", create=True))
    for address in ("/topics", "/topics/shown", "/queues/hidden_dlq", "/dead-letters"):
        tab.live(address)
        page.wait_for_load_state()
        text = page.locator("main").inner_text().replace("hidden_dlq", "")
        assert "hidden" not in text, address
    tab.at("/topics/shown")
    assert page.locator("#groups tbody tr").count() == 1
    assert "1 bound queue" in page.locator("#groups").inner_text()
    status, told = ask(guarded, "GET", f"/queues/hidden_dlq/messages/{id_text}", {}, **bearer(tab))
    assert status == 200
    assert "who-had-it" not in told
    assert "lacks the permission peek on the queue that it was first pushed to." in told
    status, told = ask(
        guarded,
        "GET",
        f"/queues/hidden_dlq/messages/{id_text}",
        {},
        Authorization=f"Bearer {guarded.token('hidden*:peek')}",
    )
    assert "who-had-it" in told


def bearer(tab: Looking) -> dict[str, str]:
    (cookie,) = tab.context.cookies()
    return {"Authorization": f"Bearer {cookie.get('value')}"}


def test_a_token_of_few_rights_does_what_it_may(tab: Looking, guarded: GuardedBroker) -> None:
    dead_letter(guarded, "failing", "failures")
    sign_in(tab, guarded.token("failing_dlq:peek,manage"), "/dead-letters")
    page = tab.page
    follow(page.get_by_role("link", name="failing_dlq"))
    page.locator("#letters tbody input").first.check()
    follow(page.get_by_role("button", name="Redrive 1 selected"))
    assert page.locator(".notice").inner_text() == "Redrove 1 of 1 message."
    assert guarded.run(lambda: guarded.engine.queue("failing").info().depth) == 1
    tab.at("/queues/failing_dlq")
    assert page.locator("#send").count() == 0, "it may not push"
    page.locator("#settings input[name=dead_letter]").fill("secret")
    follow(page.locator("#settings").get_by_role("button", name="Save"))
    assert "lacks the permission push on 'secret'" in page.locator(".alert").inner_text()


def test_nonsense_is_refused_and_no_failure(guarded: GuardedBroker) -> None:
    cookie = f"nexo_console={guarded.token('*:*')}"
    ours = f"http://127.0.0.1:{guarded.ports.http}"
    _, text = ask(guarded, "GET", "/queues", {}, Cookie=cookie)
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', text)
    assert found is not None
    proof = {"csrf": found[1]}
    status, _ = ask(guarded, "GET", "/queues?sort=x", {}, Cookie=cookie, Host="[")
    assert status < 500
    status, _ = ask(guarded, "GET", f"/queues?page={'9' * 5_000}", {}, Cookie=cookie)
    assert status == 200
    status, _ = ask(guarded, "POST", "/queues", proof, Cookie=cookie, Origin="http://[")
    assert status == 403
    for number in ("nan", "inf", "-inf", "1e999"):
        for path, form in (
            ("/queues/orders/send", {"delay": number}),
            ("/access/tokens", {"name": "n", "allow": "*:peek", "days": number}),
            ("/dead-letters/orders/redrive", {"which": "all", "rate": number}),
            ("/queues/orders/settings", {"delay": number, "was_delay": "0"}),
        ):
            status, text = ask(guarded, "POST", path, proof | form, Cookie=cookie, Origin=ours)
            is_told = "not a number" in text or "is not a duration" in text
            assert (status, is_told) == (400, True), (path, number)


@pytest.mark.parametrize(("scheme", "is_secure"), [("http", False), ("https", True)])
def test_behind_tls_the_cookie_stays_there(
    guarded: GuardedBroker, scheme: str, is_secure: bool
) -> None:
    """Also when a proxy has ended the TLS: what the browser says is what counts."""
    host = f"127.0.0.1:{guarded.ports.http}"
    _, text = ask(guarded, "GET", "/login", {})
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', text)
    assert found is not None
    connection = http.client.HTTPConnection("127.0.0.1", guarded.ports.http, timeout=10)
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": f"{scheme}://{host}",
    }
    form = urlencode({"csrf": found[1], "token": guarded.token("*:*")})
    connection.request("POST", "/console/login", form, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 303
    assert ("; secure" in answer.headers["set-cookie"].lower()) is is_secure


def ask(
    guarded: GuardedBroker, method: str, path: str, form: dict[str, str], **headers: str
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", guarded.ports.http, timeout=10)
    given = {
        "Content-Type": "application/x-www-form-urlencoded",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    try:
        connection.request(method, f"/console{path}", urlencode(form), given)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_form_of_another_site_changes_nothing(guarded: GuardedBroker) -> None:
    cookie = f"nexo_console={guarded.token('*:*')}"
    host = f"127.0.0.1:{guarded.ports.http}"
    _, text = ask(guarded, "GET", "/queues", {}, Cookie=cookie)
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', text)
    assert found is not None
    proof, ours = found[1], f"http://{host}"
    act = "/queues/orders/act/pause"

    def paused() -> bool:
        return bool(guarded.run(lambda: guarded.engine.queue("orders").info().paused))

    for form, headers in (
        ({"csrf": proof}, {"Origin": "http://evil.example"}),
        ({"csrf": proof}, {"Origin": "null"}),
        ({"csrf": proof}, {}),
        ({"csrf": "0" * 64}, {"Origin": ours}),
        ({}, {"Origin": ours}),
        ({"csrf": proof}, {"Origin": ours, "Content-Type": "text/plain"}),
    ):
        status, _ = ask(guarded, "POST", act, form, Cookie=cookie, **headers)
        assert (status, paused()) == (403, False), (form, headers)
    status, _ = ask(guarded, "POST", act, {"csrf": proof}, Origin=ours)
    assert (status, paused()) == (303, False), "without the cookie there is only the sign-in"
    status, _ = ask(guarded, "POST", act, {"csrf": proof}, Cookie=cookie, Origin=ours)
    assert (status, paused()) == (303, True)
    status, _ = ask(guarded, "GET", act, {}, Cookie=cookie)
    assert status == 405, "a link must not change anything"


def test_a_link_from_elsewhere_finds_its_page(guarded: GuardedBroker) -> None:
    """A strict cookie does not come along with a link of another site: one more step brings it."""
    asked = {"Sec_Fetch_Site": "cross-site"}
    status, text = ask(guarded, "GET", '/queues?filter="><script>', {}, **asked)
    assert status == 200
    assert 'content="0; url=/console/queues?filter=' in text
    assert "<script>" not in text
    status, _ = ask(guarded, "GET", "/queues", {}, Sec_Fetch_Site="same-origin")
    assert status == 303


def test_the_headers_of_a_page(guarded: GuardedBroker) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", guarded.ports.http, timeout=10)
    for path in ("/console/login", "/console/nothing"):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    connection.close()


@pytest.mark.parametrize(
    ("wanted", "leads_to"),
    [
        ("/console/queues?sort=-depth", "/console/queues?sort=-depth"),
        ("/console", "/console"),
        ("//evil.example/console", "/console"),
        ("https://evil.example/console/", "/console"),
        ("/console/\\evil.example", "/console"),
        ("/consolex", "/console"),
        ("javascript:alert(1)", "/console"),
        ("", "/console"),
    ],
)
def test_a_sign_in_leads_nowhere_else(wanted: str, leads_to: str) -> None:
    assert safe_next(wanted) == leads_to


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost:9324", True),
        ("127.0.0.1:9324", True),
        ("[::1]:9324", True),
        ("broker", True),
        ("nexo.internal:80", True),
        ("rebound.example", False),
        ("127.0.0.1.evil.example:9324", False),
        ("", False),
        ("[", False),
    ],
)
def test_names_that_strangers_can_own(host: str, expected: bool) -> None:
    assert is_local(host) is expected


def test_the_spark_page_without_queries_fits_a_phone(tab: Looking, guarded: GuardedBroker) -> None:
    tab.page.set_viewport_size({"width": 390, "height": 844})
    sign_in(tab, guarded.token("*:*"), "/spark")
    assert "spark.readStream" in tab.page.locator(".empty").first.inner_text()
    width = tab.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390, f"it is {width} wide"


def test_the_outcome_of_the_audit_log_is_in_sight(tab: Looking, guarded: GuardedBroker) -> None:
    """However long the URL is under which a client of SQS knows its queue."""
    assert guarded.broker._security is not None
    guard = guarded.broker._security.guard
    minted = guarded.mint("*:*")
    caller = guard.admit(minted.token, "2001:db8:1234:5678:9abc:def0:1234:5678", "sqs")
    url = f"https://nexo.internal.example.com:9324/000000000000/{'orders-' * 10}.fifo"
    with guard.tell(caller, "2001:db8:1234:5678:9abc:def0:1234:5678", "sqs", "PurgeQueue", url):
        pass
    tab.page.set_viewport_size({"width": 1280, "height": 860})
    sign_in(tab, minted.token, "/access")
    page = tab.page
    assert url in page.locator("table").last.inner_text()
    for heading in ("Outcome", "Address"):
        box = page.get_by_role("columnheader", name=heading).bounding_box()
        around = page.get_by_role("group", name="Audit log").bounding_box()
        assert box is not None
        assert around is not None
        assert box["x"] + box["width"] <= around["x"] + around["width"], f"{heading} is cut off"
