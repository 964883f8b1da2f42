"""The guard: the one place that decides who somebody is. Every door asks here and nowhere else,
and gets a `Caller` that says what they may.

    development   anybody is admitted and may everything; nothing is looked at
    required      a token (RPC, UDP, HTTP) or a signature (SQS) is needed for everything
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nexo.access.audit import Audit, AuditEntry
from nexo.access.caller import ANYONE, Caller, caller_of
from nexo.access.signature import InvalidClientTokenId, SignatureRefused
from nexo.access.sigv4 import claimed, prove
from nexo.access.tokens import is_expired, parse_access_key_id, parse_token, proves
from nexo.vocabulary.errors import NexoError, RateLimited, Unauthorized
from nexo.vocabulary.limits import ACCESS_ADDRESSES_MAX, ACCESS_FAILURES_MAX, ACCESS_FAILURES_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nexo.access.signature import Scope
    from nexo.access.sigv4 import Claim, Request
    from nexo.vocabulary.changes import TokenDefined


_HINT = (
    "give one with --token or $NEXO_TOKEN, in Python with token=…, over HTTP with Authorization: "
    "Bearer; nexo token create makes one"
)
_BEARER = b"bearer "

logger = logging.getLogger("nexo.access")


class Guard:
    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        is_required: bool = False,
        audit: Audit | None = None,
    ) -> None:
        self.is_required = is_required
        self.audit = audit or Audit(None)
        self._now_ms = now_ms
        self._tokens: dict[str, TokenDefined] = {}  # by id
        self._callers: dict[str, Caller] = {}  # by id; of those who have come
        self._failures = Failures(now_ms)

    def adopt(self, tokens: Mapping[str, TokenDefined]) -> None:
        """These are the tokens now, by name. Who came with another one is shut out at once."""
        self._tokens = {defined.id: defined for defined in tokens.values()}
        for token_id in [each for each in self._callers if each not in self._tokens]:
            gone = self._callers.pop(token_id)
            gone.end(
                Unauthorized(
                    f"token {gone.name!r} was revoked", "ask an administrator for a new one"
                )
            )

    def admit(self, token: str | None, peer: str, door: str) -> Caller:
        """Who shows this token. Raises `Unauthorized`, or `RateLimited` after many failures."""
        if not self.is_required:
            return ANYONE
        if not token:
            raise self._refused("no token was given", peer, door)
        parsed = parse_token(token)
        defined = self._tokens.get(parsed[0]) if parsed else None
        if not proves(parsed[1] if parsed else "", defined) or defined is None:
            raise self._refused("the token is not known", peer, door)
        return self._caller(defined, peer, door)

    def admit_http(self, headers: list[tuple[bytes, bytes]], peer: str, door: str) -> Caller:
        """Who makes an HTTP request: by `Authorization: Bearer`. Header names are lower case."""
        if not self.is_required:
            return ANYONE
        return self.admit(bearer_of(headers), peer, door)

    def admit_head(
        self, headers: list[tuple[bytes, bytes]], query: bytes, peer: str, door: str
    ) -> Caller | Claim:
        """The head of a request of the SQS API: who makes it, if it has a bearer token; else what
        its AWS signature claims, to be proven by `admit_signed` once the body is there. Whoever
        can be neither is refused now, and their body is not read."""
        if (token := bearer_of(headers)) is not None:
            return self.admit(token, peer, door)
        try:
            return claimed(headers, query, self._secret_of, self._now_ms())
        except SignatureRefused as error:
            raise self._count(error, peer, door) from None

    def admit_signed(
        self, request: Request, claim: Claim, peer: str, door: str
    ) -> tuple[Caller, Scope]:
        """Who signed a whole request, and the account and region that are meant."""
        try:
            scope = prove(request, claim).scope
        except SignatureRefused as error:
            raise self._count(error, peer, door) from None
        defined = self._token_of(scope.access_key_id)
        if defined is None:  # it was revoked within this very call
            raise self._count(InvalidClientTokenId("The access key is not known."), peer, door)
        return self._caller(defined, peer, door), scope

    def tell(self, caller: Caller, peer: str, door: str, action: str, resource: str) -> Telling:
        """A management action begins; how it ends goes to the audit log."""
        return Telling(
            self.audit, AuditEntry(self._now_ms(), caller.name, peer, door, action, resource)
        )

    def expire(self) -> None:
        """Shut out those whose token has expired. To be called now and then: what is open but
        silent, such as a subscription, asks for nothing that would be checked."""
        now_ms = self._now_ms()
        for token_id, caller in list(self._callers.items()):
            if caller.expires_ms is not None and now_ms >= caller.expires_ms:
                del self._callers[token_id]
                caller.end(_expired(caller.name))

    # -- Inside -------------------------------------------------------------------------------

    def _caller(self, defined: TokenDefined, peer: str, door: str) -> Caller:
        if is_expired(defined, self._now_ms()):
            self.expire()
            raise self._count(_expired(defined.name), peer, door)
        caller = self._callers.get(defined.id)
        if caller is None:
            caller = self._callers[defined.id] = caller_of(defined)
        return caller

    def _token_of(self, access_key_id: str) -> TokenDefined | None:
        token_id = parse_access_key_id(access_key_id)
        defined = self._tokens.get(token_id) if token_id else None
        return defined if defined is not None and defined.aws_secret else None

    def _secret_of(self, access_key_id: str) -> str | None:
        defined = self._token_of(access_key_id)
        return defined.aws_secret if defined is not None else None

    def _refused(self, why: str, peer: str, door: str) -> NexoError:
        return self._count(Unauthorized(why, _HINT), peer, door)

    def _count(self, refusal: Unauthorized, peer: str, door: str) -> NexoError:
        """A failure: said in the log, unless there are too many of this address."""
        failures = self._failures.count(peer)
        if failures > ACCESS_FAILURES_MAX:
            return RateLimited(
                "too many failed sign-in attempts from this address", "wait a minute"
            )
        logger.warning(
            "refused a caller", extra={"peer": peer, "door": door, "reason": refusal.message}
        )
        if failures == ACCESS_FAILURES_MAX:
            logger.warning(
                "further failed attempts from this address are not logged", extra={"peer": peer}
            )
        return refusal


class Failures:
    """How often somebody may be wrong: failures are counted by address, within a bounded table.

    A right credential is admitted however often a wrong one came from the same address. Nobody
    guesses 256 bits, so nothing is gained by shutting an address out, and much is lost: a forgotten
    worker with an old token would shut out its whole machine, and whoever forges addresses (UDP)
    anybody at all. What is limited is what failures may cost: beyond the limit they are told
    `rate_limited`, which makes clients slow down, and leave no lines in the log.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._counts: dict[str, tuple[int, int]] = {}  # when the window began, and failures in it

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, address: str) -> int:
        """One more; returns how many it were within the window."""
        now_ms = self._now_ms()
        began_ms, failures = self._counts.get(address, (now_ms, 0))
        if not 0 <= now_ms - began_ms < ACCESS_FAILURES_MS:  # below 0: the clock was set back
            del self._counts[address]  # so that it stands last again
            began_ms, failures = now_ms, 0
        elif address not in self._counts and len(self._counts) >= ACCESS_ADDRESSES_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[address] = (began_ms, failures + 1)
        return failures + 1


class Telling:
    """One management action on its way into the audit log: as done, or with what stopped it."""

    __slots__ = ("_audit", "_entry")

    def __init__(self, audit: Audit, entry: AuditEntry) -> None:
        self._audit = audit
        self._entry = entry

    def __enter__(self) -> None:
        """Only the end is told."""

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        code = getattr(error, "code", None)  # of ours, and of those that speak as AWS does
        if error is None:
            self._audit.write(self._entry.ended("done"))
        elif isinstance(code, str):
            self._audit.write_refused(self._entry.ended(code))
        else:  # nobody waited for the end any more: it may have been done
            self._audit.write(self._entry.ended("interrupted"))


def bearer_of(headers: list[tuple[bytes, bytes]]) -> str | None:
    """The token of an Authorization header; None if there is none of that kind."""
    for name, value in headers:
        if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
            return value[len(_BEARER) :].strip().decode("latin-1")
    return None


def _expired(name: str) -> Unauthorized:
    return Unauthorized(f"token {name!r} has expired", "ask an administrator for a new one")
