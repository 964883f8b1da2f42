"""TLS of a client: whom to trust, and what to say when trust fails.

`ssl` takes a while to import, so only those who speak TLS do.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from nexo.vocabulary.errors import InvalidArgument, Unreachable

if TYPE_CHECKING:
    import ssl


class Tls(NamedTuple):
    """`ca` is a PEM file of whom to trust, None: whom this machine trusts. Without `verify` anyone
    is taken for the broker."""

    ca: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        return _context(self)


class Untrusted(Unreachable):
    """What answers has not proved to be the broker that is meant, so nothing was said to it."""


@lru_cache(maxsize=16)
def _context(tls: Tls) -> ssl.SSLContext:
    import ssl

    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgument(
            f"{tls.ca} is no file of certificates: {reason}", "tls_ca takes a PEM file"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def tls_failure(where: str, error: OSError) -> Unreachable | None:
    """The failure of a handshake in words; None if the error is of another kind."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return Untrusted(
            f"the certificate of {where} is not trusted: {error.verify_message}",
            "give the CA's certificate with tls_ca, --tls-ca or $NEXO_TLS_CA, and name the broker "
            "as its certificate does",
        )
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return Untrusted(
            f"what listens at {where} does not speak TLS", "write nexo:// instead of nexos://"
        )
    if isinstance(error, ssl.SSLError):
        return Unreachable(f"TLS with {where} failed: {error.reason or error}")
    return None


_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"})
