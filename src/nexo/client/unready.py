"""Why the broker was not ready: what a call is tried again for until its time is over. Its error is
to name that cause then, and not only that no answer came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.client.operation import error_of
from nexo.client.session import Session
from nexo.vocabulary.errors import NotReady
from nexo.wire import commands

if TYPE_CHECKING:
    from nexo.vocabulary.errors import NexoError
    from nexo.wire.frame import Frame


class PatientSession(Session):
    """A session that remembers what the broker said last of why it was not ready."""

    _unready: NexoError | None = None
    _unready_at: float = 0.0

    def note(self, error: NexoError) -> None:
        """A refusal, or why a connection was lost."""
        if isinstance(error, NotReady):
            self._unready, self._unready_at = error.anew(), self._clock()

    def unready(self, within_s: float) -> NexoError | None:
        """The cause, if it is not older than this."""
        return self._unready if self._clock() - self._unready_at <= within_s else None

    def _refuse(self, arrived: Frame) -> None:
        if arrived.head:
            self.note(error_of(commands.unpack(arrived.head, commands.Refusal)))
        super()._refuse(arrived)
