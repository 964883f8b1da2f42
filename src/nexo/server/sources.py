"""Where settings come from: flags, then the environment, then `nexo.toml`.

What is wrong is refused with the place it came from, because that is what has to be changed.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.server.configuration import (
    CONFIGURATION_FILE,
    DURATIONS,
    SIZES,
    Configuration,
    choices_of,
)
from nexo.server.durations import parse_seconds
from nexo.server.sizes import parse_size
from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "NEXO_"
# What the environment says to clients, and where the file is: not settings of a broker.
_OTHER_VARIABLES = frozenset({"NEXO_URL", "NEXO_TOKEN", "NEXO_TLS_CA", "NEXO_CONFIG"})
_FIELDS = {field.name: field for field in msgspec.structs.fields(Configuration)}


def configure(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: str | None = None
) -> Configuration:
    """The configuration of a broker. Flags that are None were not given. A `file` must exist;
    without one, `nexo.toml` is read if it is there."""
    given: dict[str, Any] = {}
    wanted = file or environment.get("NEXO_CONFIG")
    path = Path(wanted or CONFIGURATION_FILE)
    if wanted is not None or path.exists():
        for name, value in _read(path).items():
            known = _known(name, str(path))
            given[known] = _convert(known, value, f"{name} in {path}")
    for name in _FIELDS:
        variable = PREFIX + name.upper()
        if variable in environment:
            given[name] = _convert(name, environment[variable], variable)
    for name, value in flags.items():
        if value is not None:
            given[name] = _convert(name, value, "--" + name.replace("_", "-"))
    return Configuration(**given)


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Variables that look like settings but are none: most likely misspelt."""
    known = _OTHER_VARIABLES | {PREFIX + name.upper() for name in _FIELDS}
    return sorted(each for each in environment if each.startswith(PREFIX) and each not in known)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(
            f"the configuration {path} cannot be read: {error.strerror}", "check --config"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the configuration {path} is not TOML: {error}") from None


def _known(name: str, where: str) -> str:
    field = name.replace("-", "_")
    if field in _FIELDS:
        return field
    near = difflib.get_close_matches(field, _FIELDS, 1)
    hint = f"did you mean {near[0]}?" if near else "the settings are " + ", ".join(_FIELDS)
    raise InvalidArgument(f"{where}: there is no setting {name!r:.80}", hint)


def _convert(name: str, value: Any, where: str) -> Any:
    try:
        if name in SIZES and isinstance(value, str):
            value = parse_size(value)
        elif name in DURATIONS and isinstance(value, str):
            value = parse_seconds(value)
        return msgspec.convert(value, _FIELDS[name].type, strict=False)
    except msgspec.ValidationError as error:
        choices = choices_of(_FIELDS[name])
        wanted = "choose " + ", ".join(choices) if choices else _plain(str(error))
        raise InvalidArgument(f"{where} does not take {value!r:.80}", wanted) from None
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error.message}", error.hint) from None


def _plain(complaint: str) -> str:
    """msgspec speaks of Python's types."""
    words = complaint.replace("`int`", "a whole number").replace("`str`", "a text")
    return words[:1].lower() + words[1:].replace("`", "")
