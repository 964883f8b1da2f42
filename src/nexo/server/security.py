"""Who may connect, and how: access control and TLS of a broker, put together from its settings."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from nexo.access.audit import Audit
from nexo.access.guard import Guard
from nexo.access.tls import ServerTls
from nexo.journal.directory import DataDirectory
from nexo.vocabulary.errors import Forbidden, InvalidArgument
from nexo.vocabulary.limits import SECURITY_ROUND_S

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from nexo.engine.tokens import Tokens
    from nexo.server.configuration import Configuration

REQUIRED = "required"

logger = logging.getLogger("nexo.server")


class Security:
    """The guard of all doors and their TLS, with a round now and then."""

    def __init__(
        self, configuration: Configuration, wall_ms: Callable[[], int], data: Path | None
    ) -> None:
        self.guard = Guard(
            wall_ms,
            is_required=configuration.access == REQUIRED,
            audit=Audit(data, tell=configuration.journal is not None),
        )
        self._tls = _tls(configuration)
        self._round: asyncio.TimerHandle | None = None
        self._wall_ms = wall_ms
        self._is_loopback = is_loopback(configuration.host)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """For listeners; None: they speak in the clear."""
        return self._tls.context if self._tls is not None else None

    @property
    def is_for_this_machine(self) -> bool:
        """Whether anyone may do everything because only this machine can reach the broker."""
        return self._is_loopback and not self.guard.is_required

    def begin(self, tokens: Tokens | None) -> None:
        """Guard with the tokens that there are, and say what an operator should know."""
        if tokens is not None:
            tokens.guard_with(self.guard.adopt)
        if self.guard.is_required and tokens is not None and not tokens.all():
            logger.warning(
                "access is required but there are no tokens: every call will be refused",
                extra={"hint": "stop, then nexo token create admin --allow '*:*' --data DIR"},
            )
        if not self._is_loopback and self._tls is None:
            logger.warning(
                "tokens and messages are sent over the network unencrypted",
                extra={"hint": "give --tls-cert and --tls-key"},
            )
        self._go_round()

    def end(self) -> None:
        if self._round is not None:
            self._round.cancel()
        self.guard.audit.flush()

    def _go_round(self) -> None:
        self.guard.audit.flush(self._wall_ms())
        if self.guard.is_required:
            self.guard.expire()
        if self._tls is not None:
            self._tls.refresh()
        self._round = asyncio.get_running_loop().call_later(SECURITY_ROUND_S, self._go_round)


def check_exposure(configuration: Configuration) -> None:
    """Refuse to let anyone on a network do everything, unless that was said in so many words."""
    if configuration.access == REQUIRED or configuration.insecure:
        return
    if not is_loopback(configuration.host):
        raise Forbidden(
            f"on {configuration.host} anyone on the network could read and change everything",
            "add --access required (and create tokens with nexo token create), "
            "or --insecure if you want that",
        )


def warn_of_directory(data: Path | None) -> None:
    """Say if others can get at what the broker keeps."""
    if data is None:
        return
    directory = DataDirectory(data)
    if exposed := directory.exposure():
        logger.warning(exposed, extra={"hint": directory.remedy})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name is what it resolves to."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return True  # nothing can listen there; opening it says what is wrong
    return all(
        ipaddress.ip_address(str(each[4][0]).partition("%")[0]).is_loopback for each in found
    )


def _tls(configuration: Configuration) -> ServerTls | None:
    certificate, key = configuration.tls_cert, configuration.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InvalidArgument(
            "TLS needs a certificate and its private key", "give both --tls-cert and --tls-key"
        )
    return ServerTls(Path(certificate), Path(key))
