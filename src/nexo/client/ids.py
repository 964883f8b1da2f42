"""The ids of pushed messages, made when they are asked for: most producers never look."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, overload

from nexo.vocabulary.identity import message_id
from nexo.vocabulary.limits import SEQUENCE_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COUNTER = (1 << SEQUENCE_BITS) - 1
_DIGITS = SEQUENCE_BITS // 4  # of an id, at its end; inside a range only they change


class MessageIds(Sequence[str]):
    """What `push_batch` gives: a sequence of ids in the order of the bodies."""

    __slots__ = ("_count", "_incarnation", "_made", "_ranges")

    def __init__(self, incarnation: int, ranges: tuple[int, ...]) -> None:
        self._incarnation = incarnation
        self._ranges = ranges
        self._count = sum(ranges[1::2]) - sum(ranges[::2])
        self._made: list[str] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._all()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, str):
            return self._all() == list(other)
        return NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __add__(self, other: Iterable[str]) -> list[str]:
        return [*self, *other]

    def __radd__(self, other: Iterable[str]) -> list[str]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> list[str]:
        if self._made is None:
            self._made = list_of_ids(self._incarnation, self._ranges)
        return self._made


def list_of_ids(incarnation: int, ranges: tuple[int, ...]) -> list[str]:
    ids: list[str] = []
    for first, end in zip(ranges[::2], ranges[1::2], strict=True):
        prefix = message_id(incarnation, first)[:-_DIGITS]
        low = first & _COUNTER
        counters = array("Q", range(low, low + end - first))
        counters.byteswap()  # the most significant digit first
        digits = counters.tobytes().hex()
        ids += [prefix + digits[at : at + _DIGITS] for at in range(16 - _DIGITS, len(digits), 16)]
    return ids
