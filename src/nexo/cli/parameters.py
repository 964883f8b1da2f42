"""Parameters that many commands share, added to the signatures that typer reads."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any


def add_parameters(
    function: Callable[..., Any],
    added: Sequence[inspect.Parameter],
    gather: Callable[[dict[str, Any]], Any],
) -> Callable[..., Any]:
    """A command with further flags. `gather` makes one value of what they were given, and that is
    what the function gets in place of its first parameter."""
    signature = inspect.signature(function)
    first, *rest = signature.parameters.values()
    parameters = [*rest, *added]

    @functools.wraps(function)
    def command(**values: Any) -> Any:
        gathered = gather({each.name: values.pop(each.name) for each in added})
        return function(**{first.name: gathered}, **values)

    # typer reads the signature and the annotations, both without the first parameter.
    del command.__dict__["__wrapped__"]
    command.__dict__["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def flag(name: str, kind: Any, default: Any = None) -> inspect.Parameter:
    """A parameter that is only ever given by its flag."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
