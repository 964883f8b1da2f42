"""Whatever comes over the wire: a signature is accepted, or refused with a typed error."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexo.access.signature import Scope, SignatureRefused
from nexo.access.sigv4 import Request, scope_of, verify
from tests.unit.access.signing import SIGNED_AT_MS, changed, presigned, secret_of, signed

HEADER = signed(headers={"X-Amz-Target": "AmazonSQS.SendMessage"})
URL = presigned()
(AUTHORIZATION,) = [value for key, value in HEADER.headers if key == b"authorization"]

names = st.sampled_from(["authorization", "x-amz-date", "date", "x-amz-content-sha256", "host"])
values = st.binary(max_size=80) | st.text(max_size=40).map(lambda text: text.encode())
moments = st.integers(min_value=0, max_value=253_402_300_799_000)  # to the year 9999


@st.composite
def spoiled(draw: st.DrawFn, whole: bytes) -> bytes:
    """The same bytes with a piece taken out, put in or replaced."""
    first, end = sorted(draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    return whole[:first] + draw(values) + whole[end:]


def judge(request: Request, now_ms: int) -> None:
    with suppress(SignatureRefused):
        accepted = verify(request, secret_of, now_ms)
        assert abs(accepted.signed_at_ms - now_ms) <= 3_600_000


@given(st.lists(st.tuples(names.map(str.encode), values), max_size=6), values, values, moments)
def test_garbage(
    headers: list[tuple[bytes, bytes]], path: bytes, query: bytes, now_ms: int
) -> None:
    judge(Request("POST", path, query, headers, b"body"), now_ms)


@given(spoiled(AUTHORIZATION))
def test_a_spoiled_header(authorization: bytes) -> None:
    assert isinstance(scope_of(authorization), Scope | None)
    judge(changed(HEADER, "authorization", authorization), SIGNED_AT_MS)


@given(names, values)
def test_another_value(name: str, value: bytes) -> None:
    judge(changed(HEADER, name, value), SIGNED_AT_MS)


@given(spoiled(URL.query))
def test_a_spoiled_url(query: bytes) -> None:
    assert isinstance(scope_of(None, query), Scope | None)
    judge(msgspec.structs.replace(URL, query=query), SIGNED_AT_MS)


@given(values, values, st.text(max_size=4))
def test_another_request(path: bytes, body: bytes, method: str) -> None:
    """The signature of one request never counts for another."""
    other = Request(method, path, HEADER.query, HEADER.headers, body)
    with pytest.raises(SignatureRefused):
        verify(other, secret_of, SIGNED_AT_MS)
