"""Tokens: how they are drawn, what is kept of them, and whether one that is shown is right.

A token is `nexo_<id>_<secret>`. The id is public: it finds the token, and stands in logs. The
secret is 256 bits of the system's randomness, and only its SHA-256 is kept. A slow hash, as
passwords need, would make nothing safer: it defends what people choose against lists of what they
choose, and nobody can list 2^256. It would only let strangers keep the broker busy.

An AWS access key is a token of another form: `NEXO<id>` with a secret that signs requests (SigV4).
Whoever verifies such a signature needs the secret itself, so it is kept as it is; its file is
readable by the broker's user alone.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING

import msgspec

from nexo.access.permissions import parse_permissions
from nexo.vocabulary.changes import TokenDefined
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import RETENTION_MS_MAX, TOKEN_CHARS_MAX
from nexo.vocabulary.names import check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOKEN_PREFIX = "nexo"  # noqa: S105  (public: it tells scanners of leaked secrets what this is)
ACCESS_KEY_PREFIX = "NEXO"
ID_BYTES = 10
SECRET_BYTES = 32
AWS_SECRET_BYTES = 30  # 40 characters, as AWS's own have

_TOKEN = re.compile(rf"{TOKEN_PREFIX}_([a-z2-7]{{16}})_([a-z2-7]{{52}})", re.ASCII)
_ACCESS_KEY_ID = re.compile(rf"{ACCESS_KEY_PREFIX}([A-Z2-7]{{16}})", re.ASCII)


class Minted(msgspec.Struct, frozen=True):
    """A new token: what is kept, and what is shown once to whoever asked for it."""

    defined: TokenDefined
    token: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""

    def __repr__(self) -> str:
        return f"Minted({self.defined!r})"  # not what must be seen by one person alone


def mint(
    name: str,
    allow: Sequence[str],
    now_ms: int,
    *,
    expires_ms: int | None = None,
    aws: bool = False,
    draw: Callable[[int], bytes] = secrets.token_bytes,
) -> Minted:
    """Draw a token, or with `aws` an access key. `expires_ms` is a moment, None: never."""
    check_name(name, "token")
    permissions = tuple(str(each) for each in parse_permissions(allow))
    if expires_ms is not None and not now_ms < expires_ms <= now_ms + RETENTION_MS_MAX:
        raise InvalidArgument(
            "the expiry of a token must be in the future and within 20 years",
            "leave the expiry out for a token that never expires",
        )
    token_id = _letters(draw(ID_BYTES))
    if aws:
        secret = base64.urlsafe_b64encode(draw(AWS_SECRET_BYTES)).decode()
        defined = TokenDefined(name, token_id, b"", permissions, now_ms, expires_ms, secret)
        return Minted(defined, access_key_id=access_key_id(token_id), secret_access_key=secret)
    secret = _letters(draw(SECRET_BYTES))
    defined = TokenDefined(name, token_id, digest(secret), permissions, now_ms, expires_ms)
    return Minted(defined, token=f"{TOKEN_PREFIX}_{token_id}_{secret}")


def parse_token(token: str) -> tuple[str, str] | None:
    """The id and the secret of what is shown as a token; None if it is none."""
    if len(token) > TOKEN_CHARS_MAX:
        return None
    found = _TOKEN.fullmatch(token)
    return (found[1], found[2]) if found else None


def parse_access_key_id(shown: str) -> str | None:
    """The id of the token that an access key id stands for; None if it stands for none."""
    found = _ACCESS_KEY_ID.fullmatch(shown)
    return found[1].lower() if found else None


def access_key_id(token_id: str) -> str:
    return ACCESS_KEY_PREFIX + token_id.upper()


def proves(secret: str, defined: TokenDefined | None) -> bool:
    """Whether this is the secret of the token. It takes as long whatever the answer is, also where
    there is no such token."""
    kept = defined.digest if defined is not None and defined.digest else _NOBODYS
    return hmac.compare_digest(digest(secret), kept) and kept is not _NOBODYS


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def is_expired(defined: TokenDefined, now_ms: int) -> bool:
    return defined.expires_ms is not None and now_ms >= defined.expires_ms


def _letters(drawn: bytes) -> str:
    """Lower-case letters and digits only: a double click selects the whole token."""
    return base64.b32encode(drawn).decode().rstrip("=").lower()


_NOBODYS = digest("")
