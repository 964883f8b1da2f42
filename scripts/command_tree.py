"""The commands of `nexo` as plain values, read from the code that runs them. The page of commands
and the manual page are made from these."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import typer.main

from nexo.cli.main import app

SHARED_PANEL = "Broker and output"  # the options that every command has
# What an option takes, where it does not say so itself, by the name of its type.
_METAVARS = {"text": "TEXT", "int": "N", "int range": "N", "float": "N", "float range": "N"}
_CELLS = re.compile(r"\s{2,}")
_MARKUP = re.compile(r"\[/?(?:bold|dim|cyan|green|red|yellow)\]")


@dataclass(frozen=True)
class Option:
    names: tuple[str, ...]
    metavar: str  # empty for a switch
    about: str
    is_shared: bool


@dataclass(frozen=True)
class Command:
    name: str  # with the names above it: "nexo queue create"
    arguments: tuple[tuple[str, str], ...]  # as they stand in the usage, and what they are
    summary: str
    text: str  # what else its help says, examples left out
    examples: str
    options: tuple[Option, ...]

    @property
    def usage(self) -> str:
        options = " [OPTIONS]" if self.options else ""
        return f"{self.name}{options}{''.join(f' {word}' for word, _ in self.arguments)}"


def commands() -> list[Command]:
    """Every command that does something, in the order of the help."""
    return _below(typer.main.get_command(app), "nexo")


def _below(group: Any, name: str) -> list[Command]:
    found = []
    for word, each in group.commands.items():
        if each.hidden:
            continue
        path = f"{name} {word}"
        found += _below(each, path) if hasattr(each, "commands") else [_command(each, path)]
    return found


def _command(command: Any, name: str) -> Command:
    arguments, options = [], []
    for each in command.params:
        if each.param_type_name == "argument":
            word = each.metavar or each.name.upper()
            word = f"{word}…" if each.nargs != 1 else word
            arguments.append((word if each.required else f"[{word}]", _plain(each.help or "")))
        elif not each.hidden:
            options.append(_option(each))
    summary, text, examples = _parts(_plain(command.help or ""))
    return Command(name, tuple(arguments), summary, text, examples, tuple(options))


def _option(option: Any) -> Option:
    names = (*option.opts, *option.secondary_opts)
    if option.is_flag or option.metavar:
        metavar = option.metavar or ""
    elif option.type.name == "choice":
        metavar = "|".join(option.type.choices)
    else:
        metavar = _METAVARS[option.type.name]
    about = _plain(option.help or "").rstrip(".")
    if option.required:
        about += " (required)"
    has_default = isinstance(option.default, int | float | str) and bool(option.default)
    if has_default and not option.is_flag and "default" not in about.lower():
        default = option.show_default if isinstance(option.show_default, str) else option.default
        about += f" (default: {default})"
    return Option(names, metavar, about, option.rich_help_panel == SHARED_PANEL)


def _parts(text: str) -> tuple[str, str, str]:
    """The first sentence, what follows, and the examples without their indentation."""
    paragraphs = [part.strip("\n") for part in text.replace("\b", "").split("\n\n")]
    paragraphs = [part for part in paragraphs if part.strip()]
    summary = " ".join(paragraphs[0].split()) if paragraphs else ""
    told, examples = [], ""
    for part in paragraphs[1:]:
        head, _, rest = part.partition("\n")
        if head.strip() in ("Examples", "Example"):
            examples = "\n".join(line.removeprefix("  ") for line in rest.splitlines())
        elif head.strip() == "Keys":
            cells = [cell for line in rest.splitlines() for cell in _CELLS.split(line.strip())]
            keys = zip(cells[::2], cells[1::2], strict=True)
            told.append("Keys: " + "; ".join(f"`{key}` {does}" for key, does in keys) + ".")
        else:
            told.append(" ".join(part.split()))
    return summary, "\n\n".join(told), examples


def _plain(text: str) -> str:
    """Without the markup of a terminal."""
    return " ".join(_MARKUP.sub("", text).replace("\\[", "[").split(" ")).strip()
