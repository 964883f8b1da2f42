"""Sizes in bytes as people write them: `512MB`, `64KiB`, `1048576`."""

from __future__ import annotations

import re

from nexo.vocabulary.errors import InvalidArgument

# 1 KB is 1,024 bytes here, with or without the i: memory and pages come in such steps.
_FACTORS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """A number of bytes from a text; refuses what is not one."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InvalidArgument(f"{text!r:.40} is not a size", "write bytes, or 64KB, 512MB, 2GB")
    return int(float(found[1]) * _FACTORS[found[2].lower()])


def show_size(size_bytes: int) -> str:
    """The shortest way to write a size: whole if it is, else with one digit."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"
