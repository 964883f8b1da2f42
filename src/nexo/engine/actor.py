"""What the actors of queues and topics have in common: whether they are in service, and parts that
do not keep them alive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import ref

from nexo.engine.clock import Timer
from nexo.vocabulary.errors import NotReady

if TYPE_CHECKING:
    from nexo.engine.context import Context
    from nexo.engine.recorder import Recorder
    from nexo.vocabulary.errors import NexoError

Whole = TypeVar("Whole")


class PartOf(Generic[Whole]):
    """Something that an actor consists of and that needs it in turn. It refers to the actor weakly:
    one that is deleted is free at once, without a search for garbage that would have to look at all
    the others. Whoever calls a part later, or waits in it, keeps the actor himself."""

    __slots__ = ("_whole",)

    def __init__(self, actor: Whole) -> None:
        self._whole = ref(actor)

    @property
    def _actor(self) -> Whole:
        actor = self._whole()
        if actor is None:
            raise NotReady(
                "the queue or topic was deleted in the meantime", "check whether it still exists"
            )
        return actor


class Actor(ABC):
    _recorder: Recorder

    def __init__(self, context: Context, owner: int) -> None:
        self.owner = owner
        self._context = context
        self._committer = context.committer
        self._timer = Timer(context.clock, self.tick)
        self._gone: NexoError | None = None  # why nothing is taken any more
        self._is_held = context.is_held

    @property
    def is_in_service(self) -> bool:
        return self._gone is None and (self._is_held is None or self._is_held())

    def check_in_service(self) -> None:
        if self._gone is not None:
            raise self._gone.anew()
        if self._is_held is not None and not self._is_held():
            raise NotReady("the node has not renewed its lease in time", "try again")

    @abstractmethod
    def tick(self) -> None:
        """The timer: do what time has made due."""

    def suspend(self, error: NexoError) -> None:
        """The state is not to be used; another is coming. Those who wait stay."""
        if self._gone is None:
            self._gone = error
            self._timer.cancel()

    def _renew(self) -> NexoError | None:
        """The state was loaded anew from the journal; returns why it is out of service, if so."""
        self._recorder = self._recorder.renewed(self._context.recorders)
        self._gone = self._context.out_of_service.get(self.owner)
        if self._gone is not None:
            self._timer.cancel()
        return self._gone

    def _end(self, gone: NexoError) -> None:
        """No more of it."""
        self._gone = gone
        self._timer.close()
        self._recorder.close()
