"""Refusals of the broker as exceptions: the code decides which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from nexo.wire.commands import Refusal


def _tree(root: type[NexoError]) -> list[type[NexoError]]:
    return [root, *[each for child in root.__subclasses__() for each in _tree(child)]]


# A subclass that shares its parent's code (a broken protocol is an invalid argument) stands behind.
_KINDS = {kind.code: kind for kind in reversed(_tree(NexoError))}


def error_of(refusal: Refusal) -> NexoError:
    """The exception for a refusal. A code that this client does not know stays readable."""
    return error_with(refusal.code, refusal.message, refusal.hint)


def error_with(code: str, message: str, hint: str = "") -> NexoError:
    kind = _KINDS.get(code)
    if kind is None:
        return NexoError(f"{code}: {message}", hint or "upgrade the client to know this error")
    return kind(message, hint)
