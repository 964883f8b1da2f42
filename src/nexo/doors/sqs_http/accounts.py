"""Whose queues, and where: who calls, how a queue is called, and what `GetCallerIdentity` says.

Who calls is for the guard to decide: in development anybody may, signed or not, and a signature
only tells the account and the region; else it is verified, and its key says what the caller may.

A queue has a URL, an ARN, and a name inside the broker. One of the default account and region has
its plain name there, so that it is the same queue for the native client. One of another account or
region is called `123456789012/eu-west-1/orders`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from nexo.access.caller import ANYONE
from nexo.access.caller import Caller as Rights
from nexo.access.sigv4 import Claim
from nexo.access.sigv4 import Request as SignedRequest
from nexo.access.sigv4 import scope_of as signed_scope_of
from nexo.doors.sqs_http.shapes import Shape
from nexo.vocabulary import sqs
from nexo.vocabulary.limits import SQS_QUEUE_URL_CHARS_REMEMBERED
from nexo.vocabulary.names import scope_of
from nexo.vocabulary.sqs import DEFAULT_ACCOUNT, DEFAULT_REGION

if TYPE_CHECKING:
    from nexo.access.guard import Guard
    from nexo.access.signature import Scope
    from nexo.doors.http.exchange import Exchange
    from nexo.doors.sqs_http.call import Call

DOOR = "sqs"
STS_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
_RESOLVED_MAX = 10_000  # addresses whose queue is remembered
_KNOWN_MAX = 10_000  # callers that are remembered
_CREDENTIAL = b"Credential="
_CREDENTIAL_BYTES_MAX = 200  # strangers must not fill the memory with long ones
_REGION = re.compile(r"[a-z0-9-]{1,32}")


class Place(NamedTuple):
    """Whose queues, and where."""

    account: str
    region: str


class Caller(msgspec.Struct, frozen=True):
    """`is_default`: of the broker's own account, which messages need not name as their sender."""

    place: Place  # the account and the region that are meant unless an address says otherwise
    sender_id: str
    is_default: bool
    access_key_id: str = ""
    rights: Rights = ANYONE


class Callers:
    def __init__(self, default: Place, guard: Guard) -> None:
        self._default = default
        self._anyone = Caller(default, default.account, is_default=True)
        self._guard = guard
        self._known: dict[tuple[str, str], Caller] = {}
        self._spelled: dict[bytes, Caller] = {}

    def announce(self, request: Exchange) -> Caller | Claim:
        """Who makes a request, as far as its head says; raises `Unauthorized` if it cannot be
        anybody. What is claimed by a signature has to be proven with the body."""
        if not self._guard.is_required:
            authorization = request.fields.get(b"authorization")
            if authorization is None:
                scope = signed_scope_of(None, request.query)
                return self._anyone if scope is None else self._called(scope)
            # The signature differs with every request, what it is signed for does not.
            key = authorization.partition(b",")[0]
            return self._spelled.get(key) or self._unverified(authorization, key)
        found = self._guard.admit_head(request.headers, request.query, request.peer, DOOR)
        return found if isinstance(found, Claim) else replace(self._anyone, rights=found)

    def prove(self, request: Exchange, announced: Claim, body: bytes) -> Caller:
        """The caller of a request that is there as a whole, before anything is made of it."""
        signed = SignedRequest(
            request.method, request.raw_path, request.query, request.headers, body
        )
        rights, scope = self._guard.admit_signed(signed, announced, request.peer, DOOR)
        return replace(self._called(scope), rights=rights)

    def _unverified(self, authorization: bytes, key: bytes) -> Caller:
        """By what a request says of itself; `key` is what of it is remembered."""
        scope = signed_scope_of(authorization)
        caller = self._anyone if scope is None else self._called(scope)
        if len(self._spelled) >= _KNOWN_MAX:
            self._spelled.clear()
        if _CREDENTIAL in key and len(key) < _CREDENTIAL_BYTES_MAX:
            self._spelled[key] = caller  # only the first credential counts, and this holds it
        return caller

    def _called(self, scope: Scope) -> Caller:
        key = (scope.access_key_id, scope.region)
        known = self._known.get(key)
        if known is None:
            account = scope.account or self._default.account
            region = scope.region if _REGION.fullmatch(scope.region) else self._default.region
            is_default = account == self._default.account
            known = Caller(Place(account, region), account, is_default, scope.access_key_id)
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[key] = known
        return known


class Addresses:
    def __init__(self, account: str = DEFAULT_ACCOUNT, region: str = DEFAULT_REGION) -> None:
        self.default = Place(account, region)
        self.resolved: dict[tuple[str, Place], str] = {}  # what `name_of` found of late

    def name_of(self, queue_url: str, caller: Place) -> str:
        """The queue that a URL means, whatever its host; or a plain name of the caller's."""
        # Only what stands last counts: a long one is not parted into millions of pieces.
        path = queue_url.split("?", 1)[0].rstrip("/")
        segments = [part for part in path.rsplit("/", 2) if part]
        account = segments[-2] if len(segments) > 1 else ""
        if not (len(account) == 12 and account.isdecimal()):
            account = caller.account
        plain = segments[-1] if segments else ""
        name = self.scoped(plain, Place(account, caller.region))
        # What is longer is nobody's queue, and must not fill the memory.
        if len(queue_url) <= SQS_QUEUE_URL_CHARS_REMEMBERED:
            if len(self.resolved) >= _RESOLVED_MAX:
                self.resolved.clear()
            self.resolved[queue_url, caller] = name
        return name

    def scoped(self, plain: str, place: Place) -> str:
        return plain if place == self.default else f"{place.account}/{place.region}/{plain}"

    def place_of(self, name: str) -> tuple[Place, str]:
        """Where a queue of this name lives, and its plain name."""
        scope = scope_of(name)
        if scope is None:
            return self.default, name
        return Place(scope[0], scope[1]), scope[2]

    def arn_of(self, name: str) -> str:
        place, plain = self.place_of(name)
        return sqs.arn_of(place.account, place.region, plain)

    def named_by(self, arn: str) -> str | None:
        """The queue that an ARN means; None if it is no ARN of a queue."""
        parts = arn.split(":", 6)
        if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sqs" or not all(parts):
            return None
        return self.scoped(parts[5], Place(parts[4], parts[3]))

    def url_of(self, name: str, origin: str) -> str:
        """The URL under which a client that came to `origin` reaches the queue."""
        place, plain = self.place_of(name)
        return f"{origin}/{place.account}/{plain}"


class GetCallerIdentityRequest(Shape, frozen=True):
    """`sts:GetCallerIdentity`: many tools ask who they are before they do anything else."""


class GetCallerIdentityResult(Shape, frozen=True):
    arn: str | None = None
    user_id: str | None = None
    account: str | None = None


async def get_caller_identity(call: Call, request: GetCallerIdentityRequest) -> Shape:
    place = call.caller.place
    return GetCallerIdentityResult(
        arn=f"arn:{sqs.partition(place.region)}:iam::{place.account}:root",
        user_id=call.caller.access_key_id or place.account,
        account=place.account,
    )
