"""Who calls. The guard decides it: in development anybody may, signed or not, and a signature only
tells the account and the region; else it is verified, and its key says what the caller may."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from nexo.access.caller import ANYONE
from nexo.access.sigv4 import Claim, scope_of
from nexo.access.sigv4 import Request as SignedRequest
from nexo.doors.sqs_http.addresses import Place

if TYPE_CHECKING:
    from nexo.access.caller import Caller as Rights
    from nexo.access.guard import Guard
    from nexo.access.signature import Scope
    from nexo.doors.sqs_http.request import Request

DOOR = "sqs"
_KNOWN_MAX = 10_000  # callers that are remembered
_CREDENTIAL = b"Credential="
_CREDENTIAL_BYTES_MAX = 200  # strangers must not fill the memory with long ones
_REGION = re.compile(r"[a-z0-9-]{1,32}")


class Caller(NamedTuple):
    place: Place  # the account and the region that are meant unless an address says otherwise
    sender_id: str
    access_key_id: str = ""
    rights: Rights = ANYONE


class Callers:
    def __init__(self, default: Place, guard: Guard) -> None:
        self._default = default
        self._anyone = Caller(default, default.account)
        self._guard = guard
        self._known: dict[tuple[str, str], Caller] = {}
        self._spelled: dict[bytes, Caller] = {}

    def announce(self, request: Request) -> Caller | Claim:
        """Who makes a request, as far as its head says; raises `Unauthorized` if it cannot be
        anybody. What is claimed by a signature has to be proven with the body."""
        if not self._guard.is_required:
            return self._unverified(request)
        found = self._guard.admit_head(request.headers, request.query, request.peer, DOOR)
        return found if isinstance(found, Claim) else self._anyone._replace(rights=found)

    def prove(self, request: Request, announced: Caller | Claim) -> Caller:
        """The caller of a request that is there as a whole, before anything is made of it."""
        if not isinstance(announced, Claim):
            return announced
        signed = SignedRequest(
            request.method, request.raw_path, request.query, request.headers, request.body
        )
        rights, scope = self._guard.admit_signed(signed, announced, request.peer, DOOR)
        return self._called(scope)._replace(rights=rights)

    def _unverified(self, request: Request) -> Caller:
        """By what the request says of itself. The signature differs with every request, what it
        is signed for does not: that is remembered."""
        authorization = request.authorization
        if authorization is None:
            scope = scope_of(None, request.query)
            return self._anyone if scope is None else self._called(scope)
        key = authorization[authorization.find(_CREDENTIAL) : authorization.find(b",")]
        caller = self._spelled.get(key)
        if caller is None:
            scope = scope_of(authorization)
            caller = self._anyone if scope is None else self._called(scope)
            if len(self._spelled) >= _KNOWN_MAX:
                self._spelled.clear()
            if key.startswith(_CREDENTIAL) and len(key) < _CREDENTIAL_BYTES_MAX:
                self._spelled[key] = caller
        return caller

    def _called(self, scope: Scope) -> Caller:
        key = (scope.access_key_id, scope.region)
        known = self._known.get(key)
        if known is None:
            account = scope.account or self._default.account
            region = scope.region if _REGION.fullmatch(scope.region) else self._default.region
            known = Caller(Place(account, region), account, scope.access_key_id)
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[key] = known
        return known
