"""The function of a worker: found by name, and known to its handlers as Lambda would tell it."""

from __future__ import annotations

import difflib
import importlib
import inspect
from typing import TYPE_CHECKING, Any, Self

import msgspec

from nexo.client.message import reason_of
from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

ACCOUNT = "000000000000"  # the SQS door's default, as the region is
REGION = "us-east-1"


class Function(msgspec.Struct, frozen=True):
    """What a handler can ask about itself."""

    name: str
    timeout_s: float
    account: str = ACCOUNT
    region: str = REGION


class Caught:
    """What a handler raises is an outcome of the work, never the end of the worker.

    For the length of a `with` block; `error` is what was raised in it, be it `sys.exit()` or the
    panic of an extension. Only what is named here goes on: what others raise to stop this."""

    error: BaseException | None = None

    def __init__(self, *goes_on: type[BaseException]) -> None:
        self._goes_on = goes_on

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, self._goes_on):
            return False
        self.error = error
        return True


def find_handler(reference: str) -> Callable[..., Any]:
    """The function that `MODULE:HANDLER` names."""
    module_name, colon, path = reference.partition(":")
    if not (module_name and colon and path):
        raise InvalidArgument(
            f"{reference!r:.80} does not name a handler",
            "write MODULE:HANDLER, such as app:handler for the function handler in app.py",
        )
    found: Any = _module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise InvalidArgument(
                f"there is no {name!r} in {module_name}", _near(name, dir(found), module_name)
            )
        found = getattr(found, name)
    return check_handler(found, reference)


def check_handler(handler: Any, name: str) -> Callable[..., Any]:
    """Refuse what cannot be called as `handler(event, context)`."""
    if not callable(handler):
        raise InvalidArgument(
            f"{name} is not a function but {type(handler).__name__}",
            "a handler is called as handler(event, context)",
        )
    try:
        inspect.signature(handler).bind({}, None)
    except TypeError as error:
        raise InvalidArgument(
            f"{name} cannot be called with (event, context): {error}",
            "a handler is called as handler(event, context)",
        ) from None
    except ValueError:
        pass  # a built-in that does not tell its parameters
    called: Callable[..., Any] = handler
    return called


def is_coroutine_function(handler: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine, also for an object with an `async def __call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    )


def _module(name: str) -> Any:
    with Caught(KeyboardInterrupt) as caught:
        return importlib.import_module(name)
    error = caught.error
    if isinstance(error, ModuleNotFoundError) and name.startswith(error.name or "\0"):
        raise InvalidArgument(
            f"there is no module {error.name!r}",
            "run the worker in the folder that holds it, or install it",
        )
    assert error is not None
    raise InvalidArgument(
        f"importing {name} failed: {reason_of(error)}",
        f"python -c 'import {name}' shows where",
    )


def _near(name: str, names: list[str], module_name: str) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"define it in {module_name}"
