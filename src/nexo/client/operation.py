"""What a caller waits for, and what travels for it.

An operation is one call of the user; it is finished or failed once. An exchange is one frame that
expects an answer: a request of one operation, or a merged frame that stands for many. Both twins
use the same operations; only how they wait differs, and `notify` is that difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.vocabulary.errors import NexoError
from nexo.wire.frame import Frame, Kind, ProtocolError, frame_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.session import Session
    from nexo.wire.commands import Refusal

    Pieces = list[bytes | memoryview]


class Operation:
    """`wait_s` is how long the broker may take on purpose, beyond the client's timeout."""

    __slots__ = ("abandoned", "done", "error", "future", "notify", "result")

    wait_s: float = 0.0

    def __init__(self) -> None:
        self.done: bool = False
        self.abandoned: bool = False  # its caller has gone: nobody wants the answer
        self.result: Any = None
        self.error: NexoError | None = None
        self.notify: Callable[[Operation], None] | None = None
        self.future: Any = None  # of asyncio, for the twin that has such

    def enter(self, session: Session) -> None:
        """Wait in the session for the next output."""
        raise NotImplementedError

    def abandon(self, session: Session) -> None:
        """Its caller has gone."""
        self.abandoned = True

    def finish(self, result: Any) -> None:
        if not self.done:
            self.result = result
            self.done = True
            if self.notify is not None:
                self.notify(self)

    def fail(self, error: NexoError) -> None:
        if not self.done:
            self.error = error
            self.done = True
            if self.notify is not None:
                self.notify(self)

    def take_result(self) -> Any:
        """The result, which is nobody else's then."""
        result, self.result = self.result, None
        return result

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class Exchange:
    """A frame under way, known by its correlation."""

    __slots__ = ()

    def answered(self, session: Session, answer: Frame) -> None:
        raise NotImplementedError

    def refused(self, session: Session, error: NexoError) -> None:
        raise NotImplementedError

    def lost(self, session: Session) -> None:
        """The connection broke before the answer: go back to where it can be sent again."""
        raise NotImplementedError

    def failed(self, error: NexoError) -> None:
        """The client is closed."""
        raise NotImplementedError


class Request(Operation, Exchange):
    """One frame for one operation. It may be sent again: what it asks for is either the same when
    done twice, or nothing was lost when its first answer was."""

    __slots__ = ("body", "decode", "head", "kind", "tries")

    def __init__(
        self,
        kind: Kind,
        head: bytes,
        decode: Callable[[Frame], Any],
        body: Pieces | None = None,
    ) -> None:
        super().__init__()
        self.kind: Kind = kind
        self.head: bytes = head
        self.body: Pieces = body or []
        self.decode: Callable[[Frame], Any] = decode
        self.tries: int = 0

    def enter(self, session: Session) -> None:
        session.requests.append(self)

    def pieces(self, correlation: int, session: Session) -> Pieces:
        self.tries += 1
        return frame_parts(self.kind, correlation, self.head, self.body)

    def answered(self, session: Session, answer: Frame) -> None:
        try:
            self.finish(self.decode(answer))
        except ProtocolError as error:
            self.fail(error)
            raise

    def refused(self, session: Session, error: NexoError) -> None:
        self.fail(error)

    def lost(self, session: Session) -> None:
        if not self.abandoned:
            session.requests.append(self)

    def failed(self, error: NexoError) -> None:
        self.fail(error)


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
