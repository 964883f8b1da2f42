"""The page `docs/reference/settings.md`, made from the code.

python -m scripts.settings_page > docs/reference/settings.md
"""

from typing import Any

import msgspec

from nexo.cli.parameters import QUEUE_FLAGS, TOPIC_FLAGS
from nexo.server.configuration import (
    CONFIGURATION_FILE,
    PREFIX,
    Configuration,
    describe,
    show_setting,
)
from nexo.vocabulary.settings import QUEUE_SETTINGS, Setting
from nexo.vocabulary.units import show_duration, show_size

REGENERATE = "python -m scripts.settings_page > docs/reference/settings.md"


_BROKER = (
    "Set them as options of `nexo serve`, as environment variables, or in "
    f"`{CONFIGURATION_FILE}` in the working directory (or the file in `--config` or "
    f"`{PREFIX}CONFIG`). An option takes precedence over the environment, and the environment "
    "over the file. All settings have defaults."
)
_UNITS = (
    "Sizes are bytes, or a number with `KB`, `MB`, `GB` (steps of 1,024); durations are seconds, "
    "or a number with `ms`, `s`, `m`, `h` or `d`. Example of a file:"
)
_QUEUES = (
    "Options of `nexo queue create` and `nexo queue edit`. The client's `create_queue` takes the "
    "same names with underscores, and `backoff` as one value. Durations are seconds, or a number "
    "with `ms`, `s`, `m`, `h` or `d`. `none` removes a limit."
)
_WITHOUT_FLAGS = "Without an option; set them in the client, in definitions or in the admin API:"
_TOPICS = (
    "Options of `nexo topic create`. The client's `create_topic` takes the same names with "
    "underscores."
)
_FLAGS_HEAD = ("| option | values | default | meaning |", "|---|---|---|---|")
_BACKOFF = (
    "Without any `--backoff-…` option there is no backoff: a failed message is retried at once. "
    "If you set one of them, the others have the defaults above."
)


def settings_page() -> str:
    lines = [
        "# Settings",
        f"Made from the code by `{REGENERATE}`; a test compares them.",
        "",
        "## The broker",
        _BROKER,
        "",
        "| option | environment | in the file | default | meaning |",
        "|---|---|---|---|---|",
        *[_broker_row(field) for field in msgspec.structs.fields(Configuration)],
        "",
        _UNITS,
        "```toml",
        'data = "nexo-data"',
        "rpc_port = 9325",
        'memory_limit = "512MB"',
        "```",
        "Commands that connect to a broker read `NEXO_URL` and `NEXO_TOKEN`.",
        "",
        "## Queues",
        _QUEUES,
        "",
        *_FLAGS_HEAD,
        *[_flag_row(setting) for setting in QUEUE_FLAGS],
        "",
        _BACKOFF,
        "",
        _WITHOUT_FLAGS,
        *[f"- `{each.name}`: {each.about}" for each in QUEUE_SETTINGS if each.kind == "pairs"],
        "",
        "## Topics",
        _TOPICS,
        "",
        *_FLAGS_HEAD,
        *[_flag_row(setting) for setting in TOPIC_FLAGS],
    ]
    return "\n".join(lines) + "\n"


def _broker_row(field: msgspec.structs.FieldInfo) -> str:
    name = field.name
    default = "none" if field.default is None else f"`{show_setting(name, field.default)}`"
    cells = (
        f"`--{name.replace('_', '-')}`",
        f"`{PREFIX}{name.upper()}`",
        f"`{name}`",
        default,
        describe(name),
    )
    return f"| {' | '.join(cells)} |"


def _flag_row(setting: Setting) -> str:
    dashed = setting.name.replace("_", "-")
    shown = f"--{dashed}" + (f"`, `--no-{dashed}" if setting.kind == "switch" else "")
    about = setting.about.replace("{name}", "`{name}`")
    default = "none" if setting.default is None else f"`{_shown(setting, setting.default)}`"
    return f"| `{shown}` | {_taken(setting)} | {default} | {about} |"


def _taken(setting: Setting) -> str:
    """Which values a flag takes."""
    kind = ", ".join(setting.choices) or setting.kind
    if setting.kind != "name" and setting.low is not None and setting.high is not None:
        kind += f", {_shown(setting, setting.low)} to {_shown(setting, setting.high)}"
    return kind + (" or `none`" if setting.takes_none else "")


def _shown(setting: Setting, value: Any) -> str:
    """A value as it is written in a flag."""
    if setting.kind == "duration":
        return show_duration(value)
    if setting.kind == "size":
        return show_size(value).replace(" ", "")
    if setting.kind == "switch":
        return "on" if value else "off"
    return str(value) if isinstance(value, str) else f"{value:,.15g}"


if __name__ == "__main__":
    print(settings_page(), end="")
