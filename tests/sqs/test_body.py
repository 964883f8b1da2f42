"""Bodies: read within a size and a time, and looked at before values are made of them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from nexo.doors.http import body
from nexo.doors.http.body import Gone, TooSlow, check_values, read_body
from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge, NotReady
from nexo.vocabulary.limits import HTTP_JSON_PLAIN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable


class Sender:
    """A client that sends these parts, and then is silent for ever."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self.taken = 0

    async def receive(self) -> dict[str, Any]:
        part = next(self._parts, None)
        if part is None:
            await asyncio.Event().wait()
        self.taken += 1
        return {"type": "http.request", "body": part, "more_body": part != b"end"}


def read(sender: Sender, *headers: tuple[bytes, bytes], seconds: float = 5) -> bytes:
    return asyncio.run(read_body(sender.receive, list(headers), 1_000, seconds))


def test_a_body_in_parts() -> None:
    assert read(Sender([b"a", b"", b"b", b"end"])) == b"abend"


def test_what_announces_itself_as_too_large_is_not_read() -> None:
    sender = Sender([b"end"])
    with pytest.raises(MessageTooLarge, match="1,000"):
        read(sender, (b"content-length", b"1001"))
    assert sender.taken == 0


def test_what_does_not_is_read_up_to_the_limit() -> None:
    sender = Sender([b"x" * 100] * 1_000)
    with pytest.raises(MessageTooLarge):
        read(sender)
    assert sender.taken == 11


@pytest.mark.parametrize("parts", [[], [b"x"]])
def test_silence(parts: list[bytes]) -> None:
    with pytest.raises(TooSlow):
        read(Sender(parts), seconds=0.01)


def test_a_drip_does_not_gain_time() -> None:
    class Drip(Sender):
        async def receive(self) -> dict[str, Any]:
            await asyncio.sleep(0.001)
            return {"type": "http.request", "body": b"", "more_body": True}

    with pytest.raises(TooSlow):
        read(Drip([]), seconds=0.02)


def test_bodies_that_arrive_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones are refused beyond it; short ones are not, and what ended counts no more."""
    monkeypatch.setattr(body, "HTTP_ARRIVING_BYTES_MAX", 2_500)
    monkeypatch.setattr(body, "HTTP_JSON_PLAIN_BYTES", 500)

    async def both() -> list[Any]:
        stuck = [Sender([b"x" * 900]) for _ in range(3)]
        waiting = [asyncio.ensure_future(read_body(each.receive, [], 1_000, 5)) for each in stuck]
        await asyncio.sleep(0.01)
        short = await read_body(Sender([b"x" * 400, b"end"]).receive, [], 1_000, 5)
        for each in waiting:
            each.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        return [short, *ended, await read_body(Sender([b"x" * 900, b"end"]).receive, [], 1_000, 5)]

    short, first, second, third, last = asyncio.run(both())
    assert (len(short), len(last)) == (403, 903)
    assert isinstance(first, asyncio.CancelledError)
    assert isinstance(second, asyncio.CancelledError)
    assert isinstance(third, NotReady)
    assert body._arriving.bytes == 0


def test_who_hangs_up() -> None:
    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(Gone):
        asyncio.run(read_body(gone, [], 1_000, 5))


LONG = HTTP_JSON_PLAIN_BYTES


@pytest.mark.parametrize(
    "given",
    [
        b"[" + b"{}," * LONG + b"{}]",
        b"[" + b'"",' * LONG + b'""]',
        b"[" * 2 * LONG,
        b"{" * 2 * LONG,
        b'{"a":[' + b"1," * LONG + b"1]}",
        b'{"a":"\\"' + b"x" * LONG + b'","b":[' + b"1," * LONG + b"1]}",
    ],
    ids=lambda given: repr(given[:12]),
)
def test_many_values(given: bytes) -> None:
    with pytest.raises(InvalidArgument, match="more than 1,000 values"):
        check_values(given, 1_000)


@pytest.mark.parametrize(
    "value",
    [
        json.dumps([[1, {}]] * LONG),  # JSON as a text: what is in it is not looked into
        "," * LONG,
        "\\" * LONG + '"' * LONG + "[{,",
        [1] * 900 + ["x" * LONG],
    ],
    ids=["json", "commas", "signs", "few"],
)
def test_long_texts_are_one_value(value: object) -> None:
    check_values(json.dumps({"MessageBody": value}).encode(), 1_000)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("tail", [b'\\"' * 500_000, b"\\" * 1_000_001, b'"\\' * 500_000])
def test_a_text_without_an_end_is_looked_at_once(tail: bytes) -> None:
    """To begin anew at each quote would take the square of its length: minutes."""
    check_values(b'"' + tail + b"," * 2_000, 1_000)
