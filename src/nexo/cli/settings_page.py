"""The page `docs/reference/settings.md`, made from the code.

python -m nexo.cli.settings_page > docs/reference/settings.md
"""

import msgspec

from nexo.cli.queue_settings import BACKOFF, SETTINGS, SettingFlag
from nexo.server.configuration import (
    CONFIGURATION_FILE,
    PREFIX,
    Configuration,
    describe,
    show_setting,
)
from nexo.vocabulary.settings import Backoff, QueueSettings
from nexo.vocabulary.units import show_duration, show_size

REGENERATE = "python -m nexo.cli.settings_page > docs/reference/settings.md"


_BROKER = (
    "A setting comes from its flag of `nexo serve`, else from the environment, else from "
    f"`{CONFIGURATION_FILE}` in the working directory (or the file that `--config` or "
    f"`{PREFIX}CONFIG` names), else it has its default. None is needed to start."
)
_UNITS = (
    "Sizes are bytes, or a number with `KB`, `MB`, `GB` (steps of 1,024); durations are seconds, "
    "or a number with `ms`, `s`, `m`, `h` or `d`. A file looks so:"
)
_QUEUES = (
    "Flags of `nexo queue create` and `nexo queue edit`; the client's `create_queue` takes the "
    "same words with underscores, and `backoff` as one value. Durations are seconds, or a number "
    "with `ms`, `s`, `m`, `h` or `d`. `none` switches a limit off."
)
_BACKOFF = (
    "Without any `--backoff-…` flag there is no backoff: a failed message is ready again at "
    "once. With one of them the others have the defaults above."
)


def settings_page() -> str:
    lines = [
        "# Settings",
        f"Made from the code by `{REGENERATE}`; a test compares them.",
        "",
        "## The broker",
        _BROKER,
        "",
        "| flag | environment | in the file | default | what it is |",
        "|---|---|---|---|---|",
        *[_broker_row(field) for field in msgspec.structs.fields(Configuration)],
        "",
        _UNITS,
        "```toml",
        'data = "nexo-data"',
        "rpc_port = 9325",
        'memory_limit = "512MB"',
        "```",
        "Commands that talk to a broker read `NEXO_URL` and `NEXO_TOKEN`.",
        "",
        "## Queues",
        _QUEUES,
        "",
        "| flag | takes | default | what it is |",
        "|---|---|---|---|",
        *[_queue_row(setting) for setting in SETTINGS],
        "",
        _BACKOFF,
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


def _queue_row(setting: SettingFlag) -> str:
    dashed = setting.name.replace("_", "-")
    shown = f"--{dashed}" + (f"`, `--no-{dashed}" if setting.kind == "switch" else "")
    kind = setting.kind.replace("|", ", ") + (" or `none`" if setting.takes_none else "")
    help_text = setting.help.replace("{name}", "`{name}`")
    return f"| `{shown}` | {kind} | {_default(setting)} | {help_text} |"


def _default(setting: SettingFlag) -> str:
    is_backoff = setting.name.startswith(BACKOFF)
    defaults = Backoff() if is_backoff else QueueSettings()
    name = setting.name.removeprefix(BACKOFF) if is_backoff else setting.name
    if setting.kind == "duration":
        return f"`{show_duration(getattr(defaults, f'{name}_ms') / 1000)}`"
    value = getattr(defaults, name)
    if value is None:
        return "none"
    if setting.kind == "switch":
        return "on" if value else "off"
    if setting.kind == "size":
        return f"`{show_size(value).replace(' ', '')}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    print(settings_page(), end="")
