"""Writes the settings as users see them from their declaration in `nexo.vocabulary.settings`.

    python -m scripts.user_settings

writes src/nexo/vocabulary/user_settings.py, and a test compares them. Type checkers read no
declaration that is data, so the types stand there in full.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nexo.vocabulary.settings import BACKOFF_SETTINGS, QUEUE_SETTINGS, TOPIC_SETTINGS, Setting

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("src/nexo/vocabulary/user_settings.py")

_HEAD = '''\
# Generated from src/nexo/vocabulary/settings.py: edit it and run python -m scripts.user_settings.
"""The settings of queues and topics as users see them, with times in seconds.

`QueueSettings` and the like have them all, with their defaults. `QueueOptions` are some, as the
clients take them. `GivenQueueSettings` are some, as a JSON document gives them: what is not given
is not there, so that an edit changes only what it names; what is no setting, or out of range, is
refused by name.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType
'''
_WHOLE = "Struct, frozen=True"
_SOME = "Struct, frozen=True, forbid_unknown_fields=True"
_OPTIONS = "TypedDict, total=False"
_BACKOFF_ABOUT = """How long a failed message waits, in seconds: `initial`, then times `factor` up
    to `max`; `jitter` is the share of the wait that is spread out."""

_TYPES = {
    "duration": "float",
    "count": "int",
    "size": "int",
    "rate": "float",
    "number": "float",
    "name": "str",
    "switch": "bool",
    "pairs": "dict[str, str]",
    "parts": "Backoff",
}


def user_settings() -> str:
    """What the module is to hold."""
    classes = [
        _class("Backoff", _WHOLE, _BACKOFF_ABOUT, map(_whole, BACKOFF_SETTINGS)),
        _class(
            "QueueSettings",
            _WHOLE,
            "What a queue does; times in seconds.",
            map(_whole, QUEUE_SETTINGS),
        ),
        _class(
            "TopicSettings",
            _WHOLE,
            "What a topic keeps; None is without limit.",
            map(_whole, TOPIC_SETTINGS),
        ),
        _class(
            "QueueOptions",
            _OPTIONS,
            "What `create_queue` and `edit` take: some of the fields of `QueueSettings`.",
            map(_option, QUEUE_SETTINGS),
        ),
        _class(
            "TopicOptions",
            _OPTIONS,
            "What `create_topic` takes: some of the fields of `TopicSettings`.",
            map(_option, TOPIC_SETTINGS),
        ),
        _class("GivenBackoff", _SOME, _BACKOFF_ABOUT, map(_given, BACKOFF_SETTINGS)),
        _class(
            "GivenQueueSettings",
            _SOME,
            "Some settings of a queue; times in seconds.",
            map(_given, QUEUE_SETTINGS),
        ),
        _class(
            "GivenTopicSettings",
            _SOME,
            "Some settings of a topic; null is without limit.",
            map(_given, TOPIC_SETTINGS),
        ),
    ]
    return _formatted("\n\n".join([_HEAD, *classes]))


def _class(name: str, parents: str, about: str, fields: Iterable[str]) -> str:
    lines = [f"class {name}({parents}):", f'    """{about}"""', ""]
    return "\n".join([*lines, *[f"    {field}" for field in fields]]) + "\n"


def _whole(setting: Setting) -> str:
    return f"{setting.name}: {_type(setting)}{_or_none(setting)} = {setting.default!r}"


def _option(setting: Setting) -> str:
    plain = _type(setting) + (" | dict[str, float]" if setting.kind == "parts" else "")
    return f"{setting.name}: {plain}{_or_none(setting)}"


def _given(setting: Setting) -> str:
    plain = "GivenBackoff" if setting.kind == "parts" else _type(setting)
    if setting.low is not None and setting.high is not None:
        bounds = ("min_length", "max_length") if setting.kind == "name" else ("ge", "le")
        low, high = _number(setting.low), _number(setting.high)
        plain = f"Annotated[{plain}, Meta({bounds[0]}={low}, {bounds[1]}={high})]"
    described = f"Meta(description={setting.about!r})"
    union = f"{plain} | UnsetType{_or_none(setting)}"
    return f"{setting.name}: Annotated[{union}, {described}] = UNSET"


def _type(setting: Setting) -> str:
    if setting.choices:
        return f"Literal[{', '.join(map(repr, setting.choices))}]"
    return _TYPES[setting.kind]


def _or_none(setting: Setting) -> str:
    return " | None" if setting.takes_none else ""


def _number(value: float) -> str:
    return f"{int(value):_}" if value == int(value) else repr(value)


def _formatted(text: str) -> str:
    ruff = str(Path(sys.executable).with_name("ruff"))
    done = subprocess.run(
        [ruff, "format", "--quiet", "--stdin-filename", PAGE.as_posix(), "-"],
        input=text,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    if done.returncode:
        raise SystemExit(f"{PAGE}: {done.stderr or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    (ROOT / PAGE).write_text(user_settings(), encoding="utf-8")
