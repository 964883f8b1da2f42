"""The loop of `consume` in a blocking client: handlers and their middleware, for ever."""

from __future__ import annotations

import contextlib
import queue
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from nexo.client.bodies import Reading
from nexo.client.message import HeldMessage
from nexo.client.middleware import CleanUp, FailureLogged, Layers, Outcome
from nexo.client.signals import Signals
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nexo.client.blocking.message import Message
    from nexo.client.blocking.subscription import Subscription

    Handler = Callable[..., object]


def consume(
    subscription: Subscription[Message],
    handler: Handler,
    concurrency: int,
    middleware: Iterable[Any],
    signals: bool,
) -> None:
    """In so many threads, this one included, until a signal ends it. An exception that is no
    `Exception` (as Ctrl-C is to those who handle signals themselves) ends it too, once the other
    threads have finished what they are at."""
    call = Call(handler, middleware)
    threads: list[threading.Thread] = []
    # A signal may come while this thread holds any lock: all that it may do is put something here.
    news: queue.SimpleQueue[bool] = queue.SimpleQueue()
    closer = threading.Thread(
        target=_close_when_told, args=(subscription, news), name="nexo-closer", daemon=True
    )
    try:
        with Signals(partial(news.put, True), signals), subscription:
            # All of them before anything can close it: a loop that begins would open it again.
            first, *others = [iter(subscription) for _ in range(concurrency)]
            closer.start()
            for loop in others:
                work = partial(_work_along, loop, call)
                thread = threading.Thread(target=work, name="nexo-consumer", daemon=True)
                thread.start()
                threads.append(thread)
            _work(first, call)
    finally:
        news.put(False)
        for thread in threads:
            thread.join()


def _close_when_told(subscription: Subscription[Message], news: queue.SimpleQueue[bool]) -> None:
    if news.get():
        with contextlib.suppress(NexoError):
            subscription.close()


def _work(messages: Iterator[Message], call: Call) -> None:
    """One worker of `consume`."""
    for message in messages:
        with FailureLogged(message), message:
            call(message)


def _work_along(messages: Iterator[Message], call: Call) -> None:
    """The same in another thread; what ends the subscription is raised by the first."""
    with contextlib.suppress(NexoError):
        _work(messages, call)


class Call:
    """A handler with its middleware, for one message after the other."""

    def __init__(self, handler: Handler, middleware: Iterable[Any]) -> None:
        self._handler = handler
        self._read = Reading(handler, HeldMessage)
        self._layers = Layers(middleware)

    def __call__(self, message: Message) -> None:
        if not len(self._layers):
            self._handler(*self._read(message))
            return
        opened: list[Any] = []
        with Outcome() as outcome:
            for layer, before in self._layers.open():
                if before is not None:
                    before(message)
                opened.append(layer)
            self._handler(*self._read(message))
            while opened:
                after = getattr(opened[-1], "after", None)
                if after is not None:
                    after(message)
                opened.pop()
        if outcome.error is not None:
            for layer in reversed(opened):
                if hasattr(layer, "failed"):
                    with CleanUp(layer):
                        layer.failed(message, outcome.error)
            raise outcome.error
