"""No word that only this house uses is shown to users: in the help of commands, settings, errors,
the console, metrics, the README and the pages.

`docs/glossary.md` and the pages about the inside may use them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typer.main import get_command

from nexo.cli.main import app
from nexo.server.configuration import Configuration, describe
from nexo.spark.options import TABLE
from nexo.telemetry.families import FAMILIES
from nexo.vocabulary import errors
from nexo.vocabulary.settings import BACKOFF_SETTINGS, QUEUE_SETTINGS, TOPIC_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "nexo"

# Each with what to write instead.
WORDS = {
    r"doors?": "protocol, port or API",
    r"rooms?": "space, or the name of the package",
    r"strangers?": "untrusted, unverified or unknown client",
    r"doomed": "dead letter",
    r"desks?": "say what it does",
    r"(?<!dead )(?<!dead-)letters?": "message, or dead letter",
    r"anew": "again",
    r"in line": "in the queue, or ready",
    r"for ever": "endless, or until Ctrl-C",
    r"for good": "permanently",
    r"so many": "this many, or a maximum",
    r"who has none": "if you have none",
    r"taken up": "used, or reloaded",
    r"its (?:birth|life|tale)": "its history",
    r"is no (?:setting|file|function|middleware|type)": "is not a ...",
    r"(?:a|each) second, at most": "maximum per second",
    r"may be given (?:again|often)": "repeatable",
    r"nobody was ever": "not allowed",
}
HOUSE = {re.compile(rf"(?<![\w-]){each}(?![\w-])", re.IGNORECASE): each for each in WORDS}

# Pages about the inside, and the glossary, which explains such words.
INSIDE = ("ARCHITECTURE.md", "glossary.md", "internals/", "decisions/")
PAGES = [
    ROOT / "README.md",
    ROOT / "ops" / "README.md",
    *[
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if not page.relative_to(ROOT / "docs").as_posix().startswith(INSIDE)
    ],
]
TEMPLATES = sorted((SOURCE / "doors" / "console" / "templates").glob("*.html"))

ERRORS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.NexoError)
} | {"BadParameter"}


def found_in(text: str) -> list[str]:
    """The words of the house in a text, each with where it stands and what to write."""
    return [
        f"{text[max(0, found.start() - 30) : found.end() + 30]!r}: write {WORDS[word]!r}"
        for pattern, word in HOUSE.items()
        for found in pattern.finditer(text)
    ]


def prose(page: str) -> str:
    """A page without its code, comments and addresses: names of fields are what they are."""
    page = re.sub(r"^```.*?^```", " ", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"<!--.*?-->", " ", page, flags=re.DOTALL)
    page = re.sub(r"`[^`\n]*`", " ", page)
    return re.sub(r"\]\([^)\s]*\)|https?://\S+", " ", page)


def visible(template: str) -> str:
    """What a page of the console shows: without statements, classes and addresses."""
    template = re.sub(r"{#.*?#}|<(script|style)\b.*?</\1>", " ", template, flags=re.DOTALL)
    told = re.findall(r'(?:title|placeholder|aria-label|alt)="([^"]*)"', template)
    for each in re.findall(r"{[{%].*?[}%]}", template, re.DOTALL):
        told += [text for text in re.findall(r'"([^"]*)"', each) if " " in text]
    bare = re.sub(r"{[{%].*?[}%]}", " ", template, flags=re.DOTALL)
    return "\n".join([re.sub(r"<[^>]*>", " ", bare), *told])


def helps(command: Any, path: str = "nexo") -> Iterator[tuple[str, str]]:
    """Every command with what its help says: of itself, and of each option and argument."""
    yield path, command.help or ""
    for each in command.params:
        yield f"{path} {each.name}", getattr(each, "help", None) or ""
    for name, inner in getattr(command, "commands", {}).items():
        yield from helps(inner, f"{path} {name}")


def refusals(source: str) -> Iterator[tuple[int, str]]:
    """The texts that errors are made with, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        if name in ERRORS:
            for argument in node.args:
                texts = [
                    each.value
                    for each in ast.walk(argument)
                    if isinstance(each, ast.Constant) and isinstance(each.value, str)
                ]
                yield node.lineno, " ".join(texts)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages(page: Path) -> None:
    assert not found_in(prose(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_the_console(template: Path) -> None:
    assert not found_in(visible(template.read_text(encoding="utf-8")))


def test_the_help_of_every_command() -> None:
    found = dict(helps(get_command(app)))
    assert len(found) > 300, "commands are looked at with their options"
    assert not {path: words for path, text in found.items() if (words := found_in(text))}


def test_settings_options_and_metrics() -> None:
    texts = {
        **{each.name: each.about for each in (*QUEUE_SETTINGS, *BACKOFF_SETTINGS, *TOPIC_SETTINGS)},
        **{field.name: describe(field.name) for field in msgspec.structs.fields(Configuration)},
        **{each.name: each.meaning for each in TABLE},
        **{each.name: each.help for each in FAMILIES.values()},
    }
    assert not {name: words for name, text in texts.items() if (words := found_in(text))}


def test_errors() -> None:
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        if "simulation" in file.parts:
            continue
        for line, text in refusals(file.read_text(encoding="utf-8")):
            if words := found_in(text):
                found[f"{file.relative_to(ROOT)}:{line}"] = words
    assert not found


def test_what_is_found_and_what_is_not() -> None:
    for text in ("Through the UDP door", "no room left", "Doomed", "5 letters"):
        assert found_in(text), text
    for text in ("5 dead letters in the dead-letter queue", "indoors, roomy"):
        assert not found_in(text), text
    page = "a `door` [page](door.md)\n```\nroom\n```\n<!-- a room -->\n"
    assert prose(page).split() == ["a", "[page"]
    shown = visible('{# room #}<p class="door" title="a title">{{ "a b" if door }}text</p>')
    assert shown.split() == ["text", "a", "title", "a", "b"]
    planted = 'raise QueueFull(f"no room for {n}", "buy one")\nprint("a room")\n'
    assert [text for _, text in refusals(planted)] == ["no room for ", "buy one"]
