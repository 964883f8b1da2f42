"""AWS's own examples of signed requests: the same requests must lead to the same signatures."""

import pytest

from nexo.access.sigv4 import Request, verify
from tests.unit.access.signing import SIGNED_AT_MS, secret_of

HOST = (b"host", b"example.amazonaws.com")
DATE = (b"x-amz-date", b"20150830T123600Z")
FORM = (b"content-type", b"application/x-www-form-urlencoded")
SESSION = (
    b"AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPf"
    b"IeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7W"
    b"Z0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8F"
    b"DrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)
TOKEN = (b"x-amz-security-token", SESSION)
UNRESERVED = b"-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# name: method, path, query, headers beside host and time, body, signature
VECTORS = {
    "get-vanilla": (
        *("GET", b"/", b"", [], b""),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "get-vanilla-empty-query-key": (
        *("GET", b"/", b"Param1=value1", [], b""),
        "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb",
    ),
    "get-vanilla-query-order-key-case": (
        *("GET", b"/", b"Param2=value2&Param1=value1", [], b""),
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    "get-vanilla-query-unreserved": (
        *("GET", b"/", UNRESERVED + b"=" + UNRESERVED, [], b""),
        "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
    ),
    "get-vanilla-utf8-query": (
        *("GET", b"/", "ሴ=bar".encode(), [], b""),
        "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
    ),
    "get-utf8": (
        *("GET", "/ሴ".encode(), b"", [], b""),
        "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
    ),
    "get-relative": (
        *("GET", b"/example/..", b"", [], b""),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "get-slashes": (
        *("GET", b"//example//", b"", [], b""),
        "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
    ),
    "get-header-key-duplicate": (
        "GET",
        b"/",
        b"",
        [(b"my-header1", value) for value in (b"value2", b"value2", b"value1")],
        b"",
        "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
    ),
    "get-header-value-order": (
        "GET",
        b"/",
        b"",
        [(b"my-header1", value) for value in (b"value4", b"value1", b"value3", b"value2")],
        b"",
        "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01",
    ),
    "get-header-value-trim": (
        "GET",
        b"/",
        b"",
        [(b"my-header1", b" value1"), (b"my-header2", b' "a   b   c"')],
        b"",
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
    "post-vanilla": (
        *("POST", b"/", b"", [], b""),
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    "post-x-www-form-urlencoded": (
        *("POST", b"/", b"", [FORM], b"Param1=value1"),
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
    "post-sts-header-before": (
        *("POST", b"/", b"", [TOKEN], b""),
        "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str) -> None:
    method, path, query, more, body, signature = VECTORS[name]
    names = sorted({b"host", b"x-amz-date", *(each for each, _ in more)})
    authorization = (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={b';'.join(names).decode()}, Signature={signature}"
    )
    headers = [HOST, DATE, *more, (b"authorization", authorization.encode())]
    request = Request(method, path, query, headers, body)
    accepted = verify(request, secret_of, SIGNED_AT_MS, services={"service"})
    assert accepted.scope.region == "us-east-1"
