"""Requests signed by botocore, as they come over the wire."""

from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import botocore.auth
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from nexo.access.sigv4 import Request

KEY_ID = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SIGNED_AT_MS = 1_440_938_160_000  # 2015-08-30 12:36:00 UTC, as in AWS's own examples
URL = "http://127.0.0.1:9324/000000000000/orders"


def secret_of(key_id: str) -> str | None:
    return SECRET if key_id == KEY_ID else None


def signed(
    method: str = "POST",
    url: str = URL,
    body: bytes = b"{}",
    headers: dict[str, str] | None = None,
    signer: type[SigV4Auth] = SigV4Auth,
    region: str = "eu-central-1",
    service: str = "sqs",
    secret: str = SECRET,
    **options: Any,
) -> Request:
    """A request that botocore signed at `SIGNED_AT_MS`."""
    request = AWSRequest(method, url, headers or {}, body)
    moment = datetime.fromtimestamp(SIGNED_AT_MS / 1000, UTC)
    with patch.object(botocore.auth, "get_current_datetime", lambda: moment):
        signer(Credentials(KEY_ID, secret), service, region, **options).add_auth(request)
    return on_the_wire(request)


def presigned(url: str = URL, **options: Any) -> Request:
    return signed("GET", url, b"", signer=SigV4QueryAuth, **options)


def on_the_wire(request: AWSRequest) -> Request:
    prepared = request.prepare()
    parts = urlsplit(prepared.url)
    headers = {"host": parts.netloc, **{k.lower(): v for k, v in prepared.headers.items()}}
    return Request(
        prepared.method,
        parts.path.encode(),
        parts.query.encode(),
        [(name.encode(), _bytes(value)) for name, value in headers.items()],
        prepared.body or b"",
    )


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def changed(request: Request, name: str, value: bytes | None) -> Request:
    """The same request with another value for one header, or without it."""
    headers = [(key, each) for key, each in request.headers if key != name.encode()]
    if value is not None:
        headers.append((name.encode(), value))
    return Request(request.method, request.path, request.query, headers, request.body)
