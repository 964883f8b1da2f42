"""Which service a request of the query protocol is for, where several share an address."""

from __future__ import annotations

import pytest

from nexo.doors.http.query import signed_service

HEADER = (
    b"AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/%s/aws4_request, "
    b"SignedHeaders=host, Signature=00"
)


@pytest.mark.parametrize("service", ["sns", "sqs", "sts"])
def test_by_the_signature_of_the_header(service: str) -> None:
    assert signed_service(HEADER % service.encode(), {}) == service


def test_by_the_signature_of_the_query() -> None:
    fields = {"X-Amz-Credential": "AKID/20260101/us-east-1/sns/aws4_request"}
    assert signed_service(None, fields) == "sns"


def test_the_header_counts_before_the_query() -> None:
    fields = {"X-Amz-Credential": "AKID/20260101/us-east-1/sns/aws4_request"}
    assert signed_service(HEADER % b"sqs", fields) == "sqs"


@pytest.mark.parametrize("header", [None, b"", b"Bearer token", b"AWS4-HMAC-SHA256 Credential=x"])
def test_what_is_not_signed_is_for_no_service(header: bytes | None) -> None:
    assert signed_service(header, {}) is None
