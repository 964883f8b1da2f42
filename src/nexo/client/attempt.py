"""One message of `consume`: what goes wrong with it must not end the work on the others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nexo.client.held import reason_of

if TYPE_CHECKING:
    from nexo.client.held import HeldMessage

_log = logging.getLogger("nexo.client")


class Attempt:
    def __init__(self, message: HeldMessage) -> None:
        self._message = message

    def __enter__(self) -> None:
        """Nothing: only what comes out matters."""

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            _log.warning("message %s failed: %s", self._message.id, reason_of(error))
            return True
        return False
