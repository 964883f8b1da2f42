"""SigV4: what botocore signs is accepted, and whatever is changed afterwards is refused."""

import msgspec
import pytest

from nexo.access.signature import (
    IncompleteSignature,
    InvalidClientTokenId,
    MissingAuthenticationToken,
    RequestExpired,
    Scope,
    SignatureDoesNotMatch,
    SignatureRefused,
)
from nexo.access.sigv4 import Request, scope_of, verify
from nexo.vocabulary.errors import Unauthorized
from nexo.vocabulary.limits import SIGNATURE_SKEW_MS
from tests.unit.access.signing import (
    KEY_ID,
    SECRET,
    SIGNED_AT_MS,
    URL,
    changed,
    presigned,
    secret_of,
    signed,
)

SCOPE = Scope(KEY_ID, "20150830", "eu-central-1", "sqs")
JSON_HEADERS = {
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "AmazonSQS.SendMessage",
    "User-Agent": "Boto3/1.44",
}


def with_query(request: Request, query: bytes) -> Request:
    return msgspec.structs.replace(request, query=query)


@pytest.mark.parametrize(
    "request_",
    [
        signed(headers=JSON_HEADERS),
        signed(body=b""),
        signed("GET", URL + "?Action=SendMessage&MessageBody=a%20b%2Bc&Version=2012-11-05", b""),
        signed("GET", "http://localhost:9324/?b=2&a=1&a=0&empty=&B=3", b""),
        signed(url="http://localhost:9324"),
        signed(url="http://localhost:9324/a//b/./c/../d/"),
        signed(url="http://localhost:9324/a%20b/caf%C3%A9~"),
        signed(headers={"Date": "Sun, 30 Aug 2015 12:36:00 GMT"}),
        signed(headers={"My-Header": "  two   spaces  "}),
        signed(body="grüße".encode() * 100_000),
        presigned(URL + "?Action=ReceiveMessage&WaitTimeSeconds=20"),
        presigned(expires=60),
    ],
)
def test_what_botocore_signs_is_accepted(request_: Request) -> None:
    accepted = verify(request_, secret_of, SIGNED_AT_MS)
    assert accepted.scope == SCOPE
    assert accepted.signed_at_ms == SIGNED_AT_MS
    assert "host" in accepted.signed_headers


def test_any_region_and_the_services_of_the_door() -> None:
    assert verify(signed(region="mars-1"), secret_of, SIGNED_AT_MS).scope.region == "mars-1"
    assert verify(signed(service="sts"), secret_of, SIGNED_AT_MS).scope.service == "sts"
    with pytest.raises(SignatureDoesNotMatch, match="correct service: 'sns' or 'sqs' or 'sts'"):
        verify(signed(service="s3"), secret_of, SIGNED_AT_MS)


def test_payload_hash_in_a_header() -> None:
    headers = {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
    unsigned = signed(body=b"one", headers=headers)
    verify(msgspec.structs.replace(unsigned, body=b"two"), secret_of, SIGNED_AT_MS)
    # Whoever changes the body must not be able to say so in a header that is not signed.
    claimed = changed(signed(body=b"one"), "x-amz-content-sha256", b"UNSIGNED-PAYLOAD")
    with pytest.raises(SignatureDoesNotMatch):
        verify(msgspec.structs.replace(claimed, body=b"two"), secret_of, SIGNED_AT_MS)
    with pytest.raises(SignatureDoesNotMatch, match="x-amz-content-sha256"):
        verify(changed(signed(), "x-amz-content-sha256", b"0" * 64), secret_of, SIGNED_AT_MS)


@pytest.mark.parametrize(
    "request_",
    [
        msgspec.structs.replace(signed(), body=b"{ }"),
        msgspec.structs.replace(signed(), method="PUT"),
        msgspec.structs.replace(signed(), path=b"/000000000000/other"),
        with_query(signed("GET", URL + "?a=1", b""), b"a=2"),
        with_query(signed("GET", URL + "?a=1", b""), b""),
        changed(signed(), "host", b"elsewhere:9324"),
        changed(signed(headers=JSON_HEADERS), "x-amz-target", b"AmazonSQS.DeleteQueue"),
        changed(signed(headers=JSON_HEADERS), "content-type", None),
        changed(signed(), "x-amz-date", b"20150830T123601Z"),
        signed(secret=SECRET.lower()),
    ],
)
def test_whatever_is_changed_is_refused(request_: Request) -> None:
    with pytest.raises(SignatureDoesNotMatch, match="The request signature we calculated does not"):
        verify(request_, secret_of, SIGNED_AT_MS)


def test_headers_that_decide_must_be_signed() -> None:
    added = changed(signed(), "x-amz-target", b"AmazonSQS.DeleteQueue")
    with pytest.raises(SignatureDoesNotMatch, match="'X-Amz-Target' is present and was not signed"):
        verify(added, secret_of, SIGNED_AT_MS)
    (authorization,) = [v for k, v in signed().headers if k == b"authorization"]
    without_host = changed(signed(), "authorization", authorization.replace(b"host;", b""))
    with pytest.raises(SignatureDoesNotMatch, match="'Host' or ':authority' must be"):
        verify(without_host, secret_of, SIGNED_AT_MS)
    # What is not signed may be anything.
    verify(changed(signed(), "user-agent", b"curl"), secret_of, SIGNED_AT_MS)


@pytest.mark.parametrize("off_ms", [0, -SIGNATURE_SKEW_MS, SIGNATURE_SKEW_MS])
def test_clocks_may_be_15_minutes_off(off_ms: int) -> None:
    verify(signed(), secret_of, SIGNED_AT_MS + off_ms)


def test_clocks_may_not_be_further_off() -> None:
    with pytest.raises(RequestExpired) as late:
        verify(signed(), secret_of, SIGNED_AT_MS + SIGNATURE_SKEW_MS + 1_000)
    assert late.value.message == (
        "Signature expired: 20150830T123600Z is now earlier than 20150830T123601Z "
        "(20150830T125101Z - 15 min.)"
    )
    with pytest.raises(RequestExpired) as early:
        verify(signed(), secret_of, SIGNED_AT_MS - SIGNATURE_SKEW_MS - 1_000)
    assert early.value.message == (
        "Signature not yet current: 20150830T123600Z is still later than 20150830T123559Z "
        "(20150830T122059Z + 15 min.)"
    )


def test_a_presigned_url_lives_as_long_as_it_says() -> None:
    url = presigned(expires=120)
    verify(url, secret_of, SIGNED_AT_MS + 120_000)
    verify(presigned(expires=3_600), secret_of, SIGNED_AT_MS + 3_600_000)
    with pytest.raises(RequestExpired, match="Signature expired"):
        verify(url, secret_of, SIGNED_AT_MS + 121_000)
    longer = with_query(url, url.query.replace(b"Expires=120", b"Expires=9999"))
    with pytest.raises(SignatureDoesNotMatch):
        verify(longer, secret_of, SIGNED_AT_MS)
    for wrong in (b"0", b"604801", b"-1", b"soon", b"1e3", b"%D9%A1"):
        broken = with_query(url, url.query.replace(b"Expires=120", b"Expires=" + wrong))
        with pytest.raises(IncompleteSignature, match="X-Amz-Expires"):
            verify(broken, secret_of, SIGNED_AT_MS)


def test_unknown_key_and_no_signature() -> None:
    with pytest.raises(InvalidClientTokenId, match="The security token included in the request is"):
        verify(signed(), lambda key_id: None, SIGNED_AT_MS)
    with pytest.raises(MissingAuthenticationToken, match="Request is missing Authentication Token"):
        verify(changed(signed(), "authorization", None), secret_of, SIGNED_AT_MS)


def test_a_new_secret_counts_at_once() -> None:
    """Whatever is remembered of the old one."""
    request = signed()
    verify(request, secret_of, SIGNED_AT_MS)
    with pytest.raises(SignatureDoesNotMatch):
        verify(request, lambda key_id: "changed", SIGNED_AT_MS)
    verify(signed(secret="changed"), lambda key_id: "changed", SIGNED_AT_MS)


def test_the_parts_of_the_header_in_any_order() -> None:
    (authorization,) = [v for k, v in signed().headers if k == b"authorization"]
    algorithm, _, rest = authorization.partition(b" ")
    credential, names, signature = rest.split(b", ")
    for parts in ((signature, names, credential), (names, signature, credential)):
        shuffled = algorithm + b" " + b",".join(parts)
        verify(changed(signed(), "authorization", shuffled), secret_of, SIGNED_AT_MS)


AUTHORIZATION = (
    f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20150830/eu-central-1/sqs/aws4_request, "
    "SignedHeaders=host;x-amz-date, Signature=" + "0" * 64
)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("Basic dXNlcjpwYXNz", "Unsupported AWS 'algorithm': 'Basic'"),
        (AUTHORIZATION.replace("HMAC-SHA256", "ECDSA-P256-SHA256"), "Unsupported AWS 'algorithm'"),
        ("AWS4-HMAC-SHA256", "requires 'Credential' parameter.*requires 'Signature' parameter"),
        (AUTHORIZATION.replace("Signature=", "Signatur="), "requires 'Signature' parameter"),
        (AUTHORIZATION.replace("/sqs/", "/"), "exactly 5 slash-delimited elements"),
        (AUTHORIZATION.replace(KEY_ID, ""), "exactly 5 slash-delimited elements"),
        (AUTHORIZATION.replace("aws4_request", "aws5"), "valid terminator: 'aws4_request'"),
        (AUTHORIZATION.replace("20150830", "2015083"), "form YYYYMMDD"),
        (AUTHORIZATION.replace("host;x", ";x"), "SignedHeaders must be"),
    ],
)
def test_incomplete_signatures(wrong: str, told: str) -> None:
    with pytest.raises(IncompleteSignature, match=told):
        verify(changed(signed(), "authorization", wrong.encode()), secret_of, SIGNED_AT_MS)


def test_incomplete_times() -> None:
    with pytest.raises(IncompleteSignature, match="either a 'X-Amz-Date' or a 'Date' header"):
        verify(changed(signed(), "x-amz-date", None), secret_of, SIGNED_AT_MS)
    for wrong in (b"now", b"20151330T000000Z", b"2015-08-30T12:36:00Z", b""):
        with pytest.raises(IncompleteSignature, match="basic format"):
            verify(changed(signed(), "x-amz-date", wrong), secret_of, SIGNED_AT_MS)
    with pytest.raises(SignatureDoesNotMatch, match="Date in Credential scope does not match"):
        verify(changed(signed(), "x-amz-date", b"20150831T000000Z"), secret_of, SIGNED_AT_MS)


def test_incomplete_presigned_urls() -> None:
    url = presigned()
    for pair in url.query.split(b"&"):
        rest = b"&".join(each for each in url.query.split(b"&") if each != pair)
        with pytest.raises(IncompleteSignature, match=pair.partition(b"=")[0].decode()):
            verify(with_query(url, rest), secret_of, SIGNED_AT_MS)


def test_refusals_tell_what_aws_tells() -> None:
    told = {
        kind.__name__: (kind("x").aws_code, kind.http_status)
        for kind in SignatureRefused.__subclasses__()
    }
    assert told == {
        "MissingAuthenticationToken": ("MissingAuthenticationToken", 403),
        "IncompleteSignature": ("IncompleteSignature", 400),
        "InvalidClientTokenId": ("InvalidClientTokenId", 403),
        "SignatureDoesNotMatch": ("SignatureDoesNotMatch", 403),
        "RequestExpired": ("RequestExpired", 400),
    }
    assert issubclass(SignatureRefused, Unauthorized)


def test_scope_without_verification() -> None:
    (authorization,) = [value for key, value in signed().headers if key == b"authorization"]
    assert scope_of(authorization) == SCOPE
    assert scope_of(None, presigned().query) == SCOPE
    assert scope_of(AUTHORIZATION.replace(" ", "").encode()) == SCOPE
    nothing: list[tuple[bytes | None, bytes]] = [
        (None, b""),
        (b"", b""),
        (b"Bearer token", b""),
        (b"AWS4-HMAC-SHA256 Credential=a/b/c", b""),
        (None, b"Action=ListQueues"),
        (b"AWS4-HMAC-SHA256 Credential=" + b"k" * 10_000 + b"/20150830/r/sqs/aws4_request", b""),
    ]
    assert [scope_of(*each) for each in nothing] == [None] * len(nothing)


def test_an_access_key_of_twelve_digits_is_an_account() -> None:
    assert Scope("123456789012", "20150830", "us-east-1", "sqs").account == "123456789012"
    for other in ("AKIDEXAMPLE", "12345678901", "1234567890123", "\u0967" * 12):
        assert Scope(other, "20150830", "us-east-1", "sqs").account is None
