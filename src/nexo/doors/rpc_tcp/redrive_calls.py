"""The named call that moves chosen dead letters, with other bodies if they are given."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from nexo.engine.types import Chosen
from nexo.vocabulary import allowed
from nexo.vocabulary.errors import InvalidArgument, WrongState
from nexo.vocabulary.limits import POP_MESSAGES_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine

    Calling = Callable[[Engine, Any], Awaitable[Any]]


_Seqs = Annotated[list[allowed.Number], Meta(min_length=1, max_length=POP_MESSAGES_MAX)]
_Bodies = Annotated[list[bytes], Meta(max_length=POP_MESSAGES_MAX)]


class RedriveChosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    incarnation: int  # of the queue in which they were seen
    seqs: _Seqs
    to: allowed.Name | None = None
    bodies: _Bodies | None = None


async def _redrive_chosen(engine: Engine, wanted: RedriveChosen) -> dict[str, int]:
    seqs = wanted.seqs
    if any(low >= high for low, high in pairwise(seqs)):
        raise InvalidArgument("the sequence numbers are not in order")
    if wanted.bodies is not None and len(wanted.bodies) != len(seqs):
        raise InvalidArgument(f"there are {len(wanted.bodies)} bodies for {len(seqs)} messages")
    if engine.queue(wanted.name).queue.incarnation != wanted.incarnation:
        raise WrongState(
            f"queue {wanted.name!r} was deleted and created anew meanwhile",
            "look at its messages again",
        )
    task = await engine.redrive(wanted.name, wanted.to, chosen=Chosen(seqs, wanted.bodies))
    moved = await task.finished
    skipped = task.progress().skipped
    return {"moved": moved, "skipped": skipped, "missing": len(seqs) - moved - skipped}


REDRIVE_CALLS: dict[str, tuple[type[msgspec.Struct], Calling]] = {
    "redrive_chosen": (RedriveChosen, _redrive_chosen),
}
