"""What a datagram calls a topic or a group, and what the broker calls it.

A datagram may name a topic with any text. What is a topic's name elsewhere too stays as it is; any
other text becomes a name that is readable and cannot be mistaken for that of another text.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import NAME_CHARS_MAX
from nexo.vocabulary.names import RESERVED_PREFIX, check_name

PREFIX = "udp."
_READABLE_CHARS = 32
_DIGEST_BYTES = 16
# The name of a group's queue must leave room for that of its dead-letter queue.
_GROUP_CHARS_MAX = NAME_CHARS_MAX - len("_dlq")
_STRANGE = re.compile(r"[^A-Za-z0-9_.-]")


@lru_cache(maxsize=4_096)
def topic_name(said: str) -> str:
    """The broker's name of a topic. The broker's own topics keep theirs: they can be read."""
    return said if said.startswith(RESERVED_PREFIX) or _is_name(said) else _made(said, said)


@lru_cache(maxsize=4_096)
def group_queue(topic: str, group: str) -> str:
    """The queue of a consumer group: the native client's `subscribe(group=…)` uses the same."""
    plain = f"{topic}.{group}"
    if "." not in group and len(plain) <= _GROUP_CHARS_MAX and _is_name(plain):
        return plain  # what stands behind the last dot is the group
    return _made(plain, f"{topic}\0{group}")


def _is_name(text: str) -> bool:
    try:
        check_name(text, "topic")
    except InvalidArgument:
        return False
    return True


def _made(text: str, unique: str) -> str:
    readable = _STRANGE.sub("-", text)[:_READABLE_CHARS]
    digest = hashlib.blake2b(unique.encode(), digest_size=_DIGEST_BYTES).digest()
    return f"{PREFIX}{readable}.{base64.b32encode(digest).decode().rstrip('=').lower()}"
