"""Reasons of failures without what differs from message to message, so that those of one kind are
counted together: `order 4711 not found` and `order 4712 not found` are both `order # not found`.
"""

from __future__ import annotations

import re

_BOUND = "[0-9A-Za-z]"  # of a word
_IDS = (
    "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",  # a UUID
    "0x[0-9a-fA-F]+",
    "(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}",  # hexadecimal, if there is a digit in it
    "(?=[A-Za-z]*[0-9]+[A-Za-z]+[0-9])[0-9A-Za-z]{6,}",  # letters and digits by turns
)
_NUMBER = "[0-9]+(?:[.,:][0-9]+)*"  # also a time, an amount, an address of IPv4
_VARYING = re.compile(f"(?<!{_BOUND})(?:{'|'.join(_IDS)})(?!{_BOUND})|{_NUMBER}")
PLACE = "#"  # stands for each of them


def folded(reason: str) -> str:
    """The reason with a `#` for each number and id. Folded again it stays as it is."""
    return " ".join(_VARYING.sub(PLACE, reason).split())
