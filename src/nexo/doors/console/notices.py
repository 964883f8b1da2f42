"""Notices: what a page says once after something was done. The text stays here and only its number
travels in the address, so that nobody can make the console say something by a link."""

from __future__ import annotations

import secrets

NOTICES_MAX = 200
NOTICE_CHARS_MAX = 500  # a notice may name what somebody typed


class Notices:
    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def put(self, text: str) -> str:
        number = secrets.token_hex(8)
        self._texts[number] = text[:NOTICE_CHARS_MAX]
        if len(self._texts) > NOTICES_MAX:
            del self._texts[next(iter(self._texts))]
        return number

    def take(self, number: str) -> str | None:
        return self._texts.pop(number, None)
