"""TLS of the broker: a certificate and its key from files, taken up anew when the files change.

What listens holds one context for good; which certificate a handshake uses is decided when it
begins. So a new pair is loaded whole beside the old one, and only then put in its place: open
connections keep theirs, and a bad file changes nothing.
"""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Any

from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

    Stamp = tuple[tuple[int, int, int], ...]

logger = logging.getLogger("nexo.access")


class ServerTls:
    """`context` is what listeners take. Raises `InvalidArgument` where the files are no pair."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._stamp = self._look()
        self._current = self._load()
        self.context = _context()
        self.context.sni_callback = self._choose
        self._refused: Stamp | None = None

    def refresh(self) -> bool:
        """Take the files up if they have changed; to be called now and then. A pair that does not
        fit, such as one that is half written, is refused and said once; the old one stays."""
        try:
            stamp = self._look()
            if stamp in (self._stamp, self._refused):
                return False
            self._current = self._load()
        except InvalidArgument as error:
            self._refused = self._stamp_now()
            logger.error(
                "cannot load the new TLS certificate, keeping the old one",
                extra={"reason": error.message, "hint": error.hint},
            )
            return False
        self._stamp, self._refused = stamp, None
        logger.info("reloaded the TLS certificate", extra={"file": str(self._certificate)})
        return True

    def _choose(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _look(self) -> Stamp:
        try:
            return tuple(_stamp(each) for each in (self._certificate, self._key))
        except OSError as error:
            raise InvalidArgument(
                f"{error.filename} cannot be read: {error.strerror}",
                "check --tls-cert and --tls-key",
            ) from None

    def _stamp_now(self) -> Stamp | None:
        try:
            return self._look()
        except InvalidArgument:
            return None

    def _load(self) -> ssl.SSLContext:
        context = _context()
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise InvalidArgument(
                f"{self._certificate} and {self._key} do not work: {reason}",
                "use a matching certificate and key in PEM format, the key without a password",
            ) from None
        return context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would bring back the certificate, and the ticket key, of an older context.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def _stamp(path: Path) -> tuple[int, int, int]:
    """What changes when a file does; links are followed, as renewals swap them."""
    seen = path.stat()
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _no_password() -> str:
    raise ValueError("the private key is protected by a password")
