"""What runs around the handler of `consume`: for traces, metrics, database sessions.

    class Session(nexo.Middleware):
        def before(self, message): ...         # raising fails the message, without a handler
        def after(self, message): ...          # the handler has returned; raising fails the message
        def failed(self, message, error): ...  # what this raises is only logged

They nest as they are given: `before` from the first to the last, `after` and `failed` from the last
to the first, and only of those whose `before` was done. The message is acked or nacked behind all
of them. In the asyncio client each may be `async def`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self

from nexo.client.message import log_failure
from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nexo.client.message import HeldMessage

_log = logging.getLogger("nexo.client")
STEPS = ("before", "after", "failed")


class Middleware:
    """A base class; methods that you do not override do nothing. Any object with some of these
    methods works as well."""

    def before(self, message: Any) -> Any:
        """Called before the body is decoded and the handler is called."""

    def after(self, message: Any) -> Any:
        """Called after the handler has returned, before the ack."""

    def failed(self, message: Any, error: Exception) -> Any:
        """Called after a failure, before the nack."""


class Layers:
    """The middleware of one `consume`."""

    def __init__(self, middleware: Iterable[Any]) -> None:
        self._layers: list[Any] = list(middleware)
        for each in self._layers:
            if isinstance(each, type) or not any(hasattr(each, step) for step in STEPS):
                raise InvalidArgument(
                    f"{each!r:.80} is not a middleware", "give objects with before, after or failed"
                )

    def __len__(self) -> int:
        return len(self._layers)

    def open(self) -> Iterator[tuple[Any, Callable[..., Any] | None]]:
        """Each with its step before, the first to the last."""
        for each in self._layers:
            yield each, getattr(each, "before", None)


class Outcome:
    """For the length of a `with` block: an exception stays in it, as `error`. What others raise to
    stop this, as Ctrl-C does, goes on."""

    error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


class FailureLogged(Outcome):
    """Around the work on one message of `consume`: what goes wrong with it is logged, and must not
    end the work on the others."""

    def __init__(self, message: HeldMessage) -> None:
        self._message = message

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        goes_on = super().__exit__(_, error, trace)
        if self.error is not None:
            log_failure(self._message, self.error)
        return goes_on


class CleanUp(Outcome):
    """Around `failed` of one middleware: the failure that it is told of is the one that counts."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        goes_on = super().__exit__(_, error, trace)
        if self.error is not None:
            told = "failed() of middleware %s raised"
            _log.error(told, type(self._layer).__name__, exc_info=self.error)
        return goes_on
