"""What strangers may send to the console, and what visitors may cost; no browser needed."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from http.cookies import _unquote
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from nexo.access.caller import ANYONE
from nexo.doors.console import app
from nexo.doors.console.session import cookie_of
from nexo.doors.console.streams import Frame, Pulse
from nexo.doors.http.body import decoded as decode
from nexo.vocabulary.limits import (
    CONSOLE_FORM_BYTES_MAX,
    CONSOLE_LOGIN_BYTES_MAX,
    CONSOLE_REST_TICKS,
    HTTP_HEAD_BYTES_MAX,
    MESSAGE_BYTES_CEILING,
)
from tests.access.guarded import GuardedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

FORM = "Content-Type: application/x-www-form-urlencoded\r\n"


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedBroker]:
    running = GuardedBroker()
    running.wait_for(running.engine.create_queue("orders"))
    yield running
    running.stop()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is decoded of forms."""
    seen: list[bytes] = []

    def noted(text: bytes) -> str:
        seen.append(text)
        return decode(text)

    monkeypatch.setattr(app, "decoded", noted)
    return seen


class Visitor:
    """Somebody with a cookie and a page of the console, or without."""

    def __init__(self, guarded: GuardedBroker, *, is_known: bool = True) -> None:
        self._port = guarded.ports.http
        self.head = f"Host: 127.0.0.1:{self._port}\r\nOrigin: {guarded.http}\r\n{FORM}"
        if is_known:
            self.head += f"Cookie: a=b; nexo_console={guarded.token('*:*')}\r\n"
        page = self.say("GET", "/queues" if is_known else "/login")
        found = re.search(rb'name="csrf" value="([0-9a-f]{64})"', page)
        assert found is not None, page
        self.proof = b"csrf=" + found[1] + b"&"

    def say(self, method: str, path: str, *parts: bytes, length: int | None = None) -> bytes:
        """The answer, read until the broker closes: so a part that is never read is noticed."""
        size = sum(map(len, parts)) if length is None else length
        head = f"{method} /console{path} HTTP/1.1\r\n{self.head}Content-Length: {size}\r\n"
        answer = b""
        with socket.create_connection(("127.0.0.1", self._port), 10) as client:
            client.sendall(head.encode() + b"Connection: close\r\n\r\n")
            for part in parts:
                client.sendall(part)
            while part := client.recv(65_536):
                answer += part
        return answer


def test_a_long_sign_in_is_refused_by_what_it_says_of_itself(guarded: GuardedBroker) -> None:
    stranger = Visitor(guarded, is_known=False)
    answer = stranger.say("POST", "/login", length=CONSOLE_LOGIN_BYTES_MAX + 1)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_long_sign_in_that_does_not_say_so(guarded: GuardedBroker, decoded: list[bytes]) -> None:
    stranger = Visitor(guarded, is_known=False)
    stranger.head += "Transfer-Encoding: chunked\r\n"
    chunk = b"%x\r\n" % 1_024 + b"%41" * 341 + b"x\r\n"
    head = f"POST /console/login HTTP/1.1\r\n{stranger.head}\r\n".encode()
    with socket.create_connection(("127.0.0.1", guarded.ports.http), 10) as client:
        client.sendall(head + chunk * (CONSOLE_LOGIN_BYTES_MAX // 1_024 + 1))
        assert client.recv(1_000).startswith(b"HTTP/1.1 413 ")
    assert decoded == []


def test_the_longest_sign_in(guarded: GuardedBroker) -> None:
    stranger = Visitor(guarded, is_known=False)
    form = stranger.proof + b"token=" + guarded.token("*:*").encode() + b"&next=/console/queues?a="
    form += b"x" * (CONSOLE_LOGIN_BYTES_MAX - len(form))
    assert stranger.say("POST", "/login", form).startswith(b"HTTP/1.1 303 ")


def test_nothing_is_decoded_for_strangers(guarded: GuardedBroker, decoded: list[bytes]) -> None:
    stranger, known = Visitor(guarded, is_known=False), Visitor(guarded)
    wrong = b"csrf=" + b"0" * 64 + b"&body=%41"
    assert stranger.say("POST", "/login", wrong).startswith(b"HTTP/1.1 403 ")
    assert stranger.say("POST", "/queues/orders/send", wrong).startswith(b"HTTP/1.1 303 ")
    assert known.say("POST", "/queues/orders/send", wrong).startswith(b"HTTP/1.1 403 ")
    assert decoded == []
    right = known.proof + b"body=%41"
    assert known.say("POST", "/queues/orders/send", right).startswith(b"HTTP/1.1 303 ")
    assert b"%41" in decoded


@pytest.mark.parametrize("other", ["Origin: http://evil.example\r\n", "Origin: http://[\r\n", ""])
def test_a_form_of_another_site_is_not_read(guarded: GuardedBroker, other: str) -> None:
    for visitor, path in (
        (Visitor(guarded, is_known=False), "/login"),
        (Visitor(guarded), "/queues/orders/send"),
    ):
        visitor.head = visitor.head.replace(f"Origin: {guarded.http}\r\n", other)
        assert visitor.say("POST", path, length=1_000).startswith(b"HTTP/1.1 403 "), path


def test_forms_have_the_length_that_they_need(guarded: GuardedBroker) -> None:
    known = Visitor(guarded)
    for path in (
        "/queues",
        "/queues/orders/settings",
        "/access/tokens",
        "/queues/orders/act/purge",
    ):
        answer = known.say("POST", path, length=CONSOLE_FORM_BYTES_MAX + 1)
        assert answer.startswith(b"HTTP/1.1 413 "), path
    answer = known.say("POST", "/queues/orders/send", length=4 * MESSAGE_BYTES_CEILING)
    assert answer.startswith(b"HTTP/1.1 413 ")
    body = known.proof + b"body=" + b"%41" * 1_000_000
    assert known.say("POST", "/queues/orders/send", body).startswith(b"HTTP/1.1 303 ")


@pytest.mark.parametrize("path", ["/login", "/queues/orders/send"])
def test_forms_that_never_come(
    guarded: GuardedBroker, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(app, "CONSOLE_LOGIN_S", 0.1)
    monkeypatch.setattr(app, "HTTP_BODY_S", 0.1)
    answer = Visitor(guarded).say("POST", path, length=10)
    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("wanted", ["//[", "http://[", "//[::1", "%2F%2F%5B"])
def test_a_sign_in_that_leads_to_nonsense(guarded: GuardedBroker, wanted: str) -> None:
    stranger = Visitor(guarded, is_known=False)
    form = stranger.proof + f"token={guarded.token('*:*')}&next={wanted}".encode()
    answer = stranger.say("POST", "/login", form)
    assert answer.startswith(b"HTTP/1.1 303 ")
    assert b"\r\nlocation: /console\r\n" in answer
    assert stranger.say("GET", f"/login?next={wanted}").startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("form", [b"a=%", b"a=%zz", b"a=%ff", b"&" * 5_000, b"a=1&" * 3_000])
def test_forms_that_cannot_be_read(guarded: GuardedBroker, form: bytes) -> None:
    known = Visitor(guarded)
    assert known.say("POST", "/queues", known.proof + form).startswith(b"HTTP/1.1 400 ")


class Asking:
    """A request with a cookie, as the console looks at it."""

    def __init__(self, *cookies: str) -> None:
        self.scope = {"headers": [(b"cookie", each.encode("latin-1")) for each in cookies]}


@pytest.mark.parametrize(
    ("cookies", "token"),
    [
        (["nexo_console=nexo_abc"], "nexo_abc"),
        (["a=b; nexo_console=nexo_abc ;c"], "nexo_abc"),
        (["a=b", "nexo_console=nexo_abc"], "nexo_abc"),
        (["nexo_console"], ""),
        (["xnexo_console=a; nexo_consolex=b;;=;"], ""),
        (["nexo_console=a=b"], "a=b"),
        ([], ""),
    ],
)
def test_cookies(cookies: list[str], token: str) -> None:
    assert cookie_of(Asking(*cookies)) == token  # type: ignore[arg-type]


def test_a_cookie_is_not_unquoted(guarded: GuardedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of the standard library takes the square of its length: ten seconds for this."""
    unquoted: list[str] = []
    monkeypatch.setattr(f"{_unquote.__module__}._unquote", unquoted.append)
    stranger = Visitor(guarded, is_known=False)
    signs = "\\" * (HTTP_HEAD_BYTES_MAX - 2_000)
    stranger.head += f'Cookie: nexo_console="{signs}"\r\n'
    for path in ("", "/login", "/static/nexo.svg", "/nothing"):
        assert stranger.say("GET", path).startswith((b"HTTP/1.1 303", b"HTTP/1.1 4", b"HTTP/1.1 2"))
    assert unquoted == []


def test_an_address_of_many_parameters(guarded: GuardedBroker) -> None:
    known = Visitor(guarded)
    for query in ("&" * 5_000, "page=%", "page=%ff&sort=name", "peek=9" + "9" * 5_000):
        for path in ("/queues", "/queues/orders", "/dead-letters", "/topics", "/login"):
            assert known.say("GET", f"{path}?{query}")[9:10] in b"24", (path, query)


def test_pages_look_one_after_the_other() -> None:
    """Two hundred open pages wake up together; the broker must get its turns in between."""
    sampler: Any = SimpleNamespace(sample=lambda: None)
    turns, looked_in = 0, []

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def frame() -> Frame:
        looked_in.append(turns)
        return Frame({"a": str(len(looked_in))})

    async def look() -> None:
        pulse = Pulse(sampler)
        pages = [pulse.stream(ANYONE, frame) for _ in range(50)]
        counting = asyncio.ensure_future(count())
        for _ in range(2):  # what comes first, and what there is to see
            await asyncio.gather(*(anext(page) for page in pages))
        counting.cancel()
        pulse.close()
        for page in pages:
            assert [part async for part in page] == []

    asyncio.run(look())
    assert len(looked_in) == len(set(looked_in)) == 50


@pytest.mark.parametrize("is_work", [False, True])
def test_pages_rest_for_their_work_and_not_for_that_of_others(
    monkeypatch: pytest.MonkeyPatch, is_work: bool
) -> None:
    """A machine that others keep busy for a second must not stop all pages for ten."""
    rests: list[float] = []
    sleep = asyncio.sleep
    sampler: Any = SimpleNamespace(look=lambda: sleep(0))

    async def noted(delay: float) -> None:
        rests.append(delay)
        await sleep(0)

    def frame() -> Frame:
        until_s = time.thread_time() + 0.2
        while is_work and time.thread_time() < until_s:
            pass
        time.sleep(0.2)
        return Frame({"a": str(len(rests))})

    async def look() -> None:
        pulse = Pulse(sampler)
        page = pulse.stream(ANYONE, frame)
        for _ in range(3):
            await anext(page)
        pulse.close()
        await page.aclose()  # type: ignore[attr-defined]

    monkeypatch.setattr(asyncio, "sleep", noted)
    asyncio.run(look())
    assert (max(rests) >= 0.2 * CONSOLE_REST_TICKS) is is_work, rests
