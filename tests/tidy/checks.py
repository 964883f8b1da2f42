"""The house rules that a program can read, each a function from a root folder to its findings.

A check knows nothing of this repository beyond where things are, so tests plant small trees and
show that it can fail. A finding says where, what, and what to do about it.
"""

import ast
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 600
DECISION_LINES_MAX = 70

CODE_FOLDERS = ("src", "tests", "bench", "examples", "scripts")
# Built, fetched or private to one machine: not ours to lint. Vendored files keep their own style.
SKIPPED_FOLDERS = frozenset({"__pycache__", "build", "dist", "node_modules", "vendor"})
HIDDEN_FOLDERS_READ = frozenset({".ci", ".github"})
TEXT_SUFFIXES = frozenset(
    {".css", ".html", ".ini", ".js", ".json", ".md", ".py", ".sh", ".sql", ".toml", ".txt", ".yml"}
)
NAMES_THAT_SAY_NOTHING = frozenset({"utils", "helpers", "common", "misc", "base", "manager2"})
ROOM_CARD_PARTS = ("Lives here:", "May import:", "Never:", "Enter at:", "Tests:")
# A file is named after what it holds: `message`, not `held`. These only look like participles.
NOUNS = frozenset({"binding", "formatting", "listing", "seed", "testing", "tracing"})
PARTICIPLE = re.compile(r"\w+(ing|ed)|caught|given|held|sent|spoken|told")
# A number with one of these at its end is a limit or a time …
LIMIT = re.compile(r"_?[A-Z][A-Z0-9_]*_(S|MS|MAX|MIN|KEPT)")
ROOMS_WITH_LIMITS = frozenset(
    {
        "access",
        "client",
        "doors",
        "engine",
        "journal",
        "machine",
        "server",
        "telemetry",
        "vocabulary",
        "wire",
    }
)
# … unless it is a unit, a mark, a version, or the room in a format. AWS's limits stand beside its
# words.
NO_LIMITS = frozenset(
    {
        "HEAD_BYTES_MAX",
        "VERSION_MIN",
        "_DAY_MS",
        "_MS_MAX",
        "_PASSED_OVER_MS",
        "_SEQ_MAX",
        "_SOON_S",
    }
)
LIMITS_OF_OTHERS = ("src/nexo/doors/sqs_http/", "src/nexo/doors/sns_http/")
# Declared where they are used before there was this rule. The list only gets shorter.
LIMITS_LEFT = frozenset({"src/nexo/server/lake.py"})
# The supervisor is where an actor's failure must stop, whatever it is.
MAY_CATCH_EVERYTHING = frozenset({"src/nexo/engine/supervisor.py", "src/nexo/engine/outcome.py"})

# Put together from parts, so that this file passes its own checks.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.$~/:-])/(home|root|Users|work)/[\w.]")
# The formatter joins a line that fits without its pragma, so it could not be broken by hand.
PRAGMA = re.compile(r"\s+# (type: ignore|noqa)\S*( .*)?$")
LINK = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
OUTSIDE_LINK = re.compile(r"[a-z][a-z0-9+.-]*:|#")
DECISION_NAME = re.compile(r"(\d{4})-[a-z0-9]+(-[a-z0-9]+)*\.md")
PINNED = re.compile(
    r"[A-Za-z0-9._-]+==\S+( ; [^\\]+)? \\|\s+(--hash=sha256:[0-9a-f]{64}( \\)?|#.*)|#.*|"
)
MAKE_TARGET = re.compile(r"([a-z][a-z0-9_-]*)\s*:(?![=:])(.*)")
MAKE_QUOTED = re.compile(r"`make ([a-z][a-z0-9_-]*)")
MAKE_COMMAND = re.compile(r"^\s*(?:\$ )?make ([a-z][a-z0-9_-]*)")


class Finding(NamedTuple):
    path: str
    line: int
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}; {self.remedy}"


Findings = Iterator[Finding]
Check = Callable[[Path], Findings]


def files(root: Path, *patterns: str) -> Iterator[tuple[str, Path]]:
    """Files below the root that we wrote, as (path from the root, path), in a stable order."""
    found: list[Path] = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [each for each in subfolders if _is_ours(each)]
        found += [Path(folder, name) for name in names if name != ".git"]  # a file in a worktree
    for path in sorted(each for each in found if each.is_file()):  # a link may lead nowhere
        relative = path.relative_to(root)
        if not patterns or any(relative.match(pattern) for pattern in patterns):
            yield relative.as_posix(), path


def _is_ours(folder: str) -> bool:
    hidden = folder.startswith(".") and folder not in HIDDEN_FOLDERS_READ
    return not hidden and folder not in SKIPPED_FOLDERS


def modules(root: Path) -> Iterator[tuple[str, str]]:
    """Python modules of the code folders, as (path from the root, source)."""
    for relative, path in files(root, "*.py"):
        if relative.split("/")[0] in CODE_FOLDERS:
            yield relative, path.read_text(encoding="utf-8")


def text_lines(root: Path, *patterns: str) -> Iterator[tuple[str, int, str]]:
    """Lines of what people read and write here; scripts and Makefiles have no suffix."""
    for relative, path in files(root, *patterns):
        if path.suffix in TEXT_SUFFIXES or not path.suffix:
            text = path.read_text(encoding="utf-8")
            for number, line in enumerate(text.splitlines(), start=1):
                yield relative, number, line


def line_width(root: Path) -> Findings:
    # Prose wraps in the reader's window, tables cannot, and locks are written by a tool.
    for relative, number, line in text_lines(root):
        columns = len(PRAGMA.sub("", line))
        if not relative.endswith((".md", ".txt", ".json")) and columns > COLUMNS_MAX:
            problem = f"{columns} columns, at most {COLUMNS_MAX}"
            yield Finding(relative, number, problem, "break the line")


def function_length(root: Path) -> Findings:
    for relative, source in modules(root):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = (node.end_lineno or node.lineno) - node.lineno + 1
                if count > FUNCTION_LINES_MAX:
                    problem = f"{node.name} has {count} lines, at most {FUNCTION_LINES_MAX}"
                    yield Finding(relative, node.lineno, problem, "give its parts names")


def module_length(root: Path) -> Findings:
    for relative, source in modules(root):
        count = len(source.splitlines())
        if count > MODULE_LINES_MAX:
            problem = f"{count} lines, at most {MODULE_LINES_MAX}"
            yield Finding(relative, MODULE_LINES_MAX + 1, problem, "split it: one noun a file")


def telling_names(root: Path) -> Findings:
    for relative, path in files(root):
        folder, *folders = path.relative_to(root).parts[:-1] or ("",)
        for part in (*folders, path.stem) if folder in CODE_FOLDERS else ():
            if part.strip("_").removeprefix("test_") in NAMES_THAT_SAY_NOTHING:
                remedy = "name it after the noun that lives there"
                yield Finding(relative, 1, f"the name '{part}' says nothing", remedy)


def noun_names(root: Path) -> Findings:
    for relative, path in files(root, "*.py"):
        word = path.stem.rpartition("_")[2]
        if not relative.startswith("src/nexo/") or word in NOUNS:
            continue
        if PARTICIPLE.fullmatch(word):
            remedy = "name it after the noun that it holds"
            yield Finding(relative, 1, f"'{word}' is a participle", remedy)


def limits(root: Path) -> Findings:
    for relative, source in modules(root):
        parts = relative.split("/")
        is_held = parts[:2] == ["src", "nexo"] and parts[2] in ROOMS_WITH_LIMITS
        is_left = relative in LIMITS_LEFT or relative.startswith(LIMITS_OF_OTHERS)
        if not is_held or is_left or parts[-1] == "limits.py":
            continue
        for node in ast.parse(source).body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            name = node.targets[0].id
            if LIMIT.fullmatch(name) and name not in NO_LIMITS and _is_number(node.value):
                remedy = "move it to vocabulary/limits.py, with its reason"
                yield Finding(relative, node.lineno, f"{name} is a limit", remedy)


def _is_number(node: ast.expr) -> bool:
    """Whether it is written in digits alone, such as 64 * 1024."""
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def room_cards(root: Path) -> Findings:
    inside = (path for relative, path in files(root, "*.py") if relative.startswith("src/nexo/"))
    for room in sorted({path.parent for path in inside}):
        card = room / "__init__.py"
        relative = card.relative_to(root).as_posix()
        if not card.is_file():
            yield Finding(relative, 1, "package without __init__.py", "add it, with its room card")
            continue
        text = ast.get_docstring(ast.parse(card.read_text(encoding="utf-8"))) or ""
        lines = text.splitlines()
        missing = [p for p in ROOM_CARD_PARTS if not any(line.startswith(p) for line in lines)]
        if missing:
            problem = f"room card lacks {', '.join(missing)}"
            yield Finding(relative, 1, problem, "open the package's docstring with all five parts")


def card_imports(root: Path) -> Findings:
    cards: dict[tuple[str, ...], set[str]] = {}
    sources = [each for each in modules(root) if each[0].startswith("src/nexo/")]
    for relative, source in sources:
        room = tuple(relative.split("/")[2:-1])
        if relative.endswith("/__init__.py") and room:
            cards[room] = _may_import(source)
    for relative, source in sources:
        room = tuple(relative.split("/")[2:-1])
        is_held = room in cards
        for line, imported in _rooms_imported(source, cards) if is_held else ():
            is_own = imported[: len(room)] == room
            if not is_own and not cards[room].intersection(imported):
                problem = f"imports {'.'.join(imported)}, which is not on the card of its room"
                yield Finding(relative, line, problem, "add it to 'May import', or do without")


def _may_import(source: str) -> set[str]:
    """The words after "May import", up to the next part of the card."""
    text = ast.get_docstring(ast.parse(source)) or ""
    part = text.partition("May import:")[2].partition("\nNever:")[0]
    return set(re.findall(r"\w+", part))


def _rooms_imported(
    source: str, cards: dict[tuple[str, ...], set[str]]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The room of everything that a module imports, at any place, with the line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "nexo":
            # What the package itself offers is for everyone.
            names = [f"nexo.{alias.name}" for alias in node.names if (alias.name,) in cards]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, *room = name.split(".")
            while len(room) > 1 and tuple(room) not in cards:
                room.pop()
            if first == "nexo" and room:
                yield node.lineno, tuple(room)


def catches_everything(handler: ast.ExceptHandler) -> bool:
    if isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None:
        return False  # it cleans up and passes the error on
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))
        for kind in kinds
    )


def caught_errors(root: Path) -> Findings:
    for relative, source in modules(root):
        if relative in MAY_CATCH_EVERYTHING:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ExceptHandler) and catches_everything(node):
                remedy = "name the errors you expect; the supervisor handles the rest"
                yield Finding(relative, node.lineno, "catches every error", remedy)


def unfinished_work(root: Path) -> Findings:
    for relative, number, line in text_lines(root):
        if found := UNFINISHED.search(line):
            yield Finding(relative, number, f"'{found[0]}'", "do it, or open an issue")


def machine_paths(root: Path) -> Findings:
    for relative, number, line in text_lines(root):
        if MACHINE_PATH.search(line):
            remedy = "name it from the root of the tree, or by an argument"
            yield Finding(relative, number, "path of one machine", remedy)


def markdown_lines(root: Path) -> Iterator[tuple[str, int, str, bool]]:
    """Lines of the Markdown files, and whether they stand in a fenced block."""
    fenced = False
    for relative, number, line in text_lines(root, "*.md"):
        fence = line.lstrip().startswith("```")
        fenced = fence if number == 1 else fenced ^ fence
        yield relative, number, line, fenced


def links(root: Path) -> Findings:
    for relative, number, line, fenced in markdown_lines(root):
        for target in () if fenced else LINK.findall(line):
            if OUTSIDE_LINK.match(target):
                continue
            path = target.partition("#")[0]
            place = root / path.lstrip("/") if path[0] == "/" else (root / relative).parent / path
            if not place.exists():
                remedy = "mend the path or write the page"
                yield Finding(relative, number, f"link to '{target}' leads nowhere", remedy)


def decisions(root: Path) -> Findings:
    taken: dict[str, str] = {}
    for relative, path in files(root, "docs/decisions/*"):
        if path.name == "README.md":
            continue
        name = DECISION_NAME.fullmatch(path.name)
        if name is None:
            yield Finding(relative, 1, "not named NNNN-title.md", "rename it: 0007-one-writer.md")
            continue
        if other := taken.get(name[1]):
            yield Finding(relative, 1, f"number taken by {other}", "take the next free number")
        taken.setdefault(name[1], path.name)
        count = len(path.read_text(encoding="utf-8").splitlines())
        if count > DECISION_LINES_MAX:
            problem = f"{count} lines, at most {DECISION_LINES_MAX}"
            yield Finding(relative, DECISION_LINES_MAX + 1, problem, "a decision fits one page")


def locks(root: Path) -> Findings:
    for relative, number, line in text_lines(root, "requirements/*.txt"):
        if not PINNED.fullmatch(line):
            remedy = "run `make lock`: a lock holds versions and hashes, no index and no address"
            yield Finding(relative, number, f"'{line:.60}' is not a hashed pin", remedy)


def make_targets(root: Path) -> dict[str, tuple[int, str]]:
    """Targets that people call, each with its line and what follows the colon."""
    makefile = root / "Makefile"
    lines = makefile.read_text(encoding="utf-8").splitlines() if makefile.is_file() else []
    rules = ((number, MAKE_TARGET.match(line)) for number, line in enumerate(lines, start=1))
    return {rule[1]: (number, rule[2]) for number, rule in rules if rule}


def make_help(root: Path) -> Findings:
    for name, (number, rest) in make_targets(root).items():
        if not re.search(r"## \S", rest):
            problem = f"target '{name}' has no help text"
            yield Finding("Makefile", number, problem, "add '## what it does' after its colon")


def make_mentions(root: Path) -> Findings:
    targets = make_targets(root)
    for relative, number, line, fenced in markdown_lines(root):
        for name in (MAKE_COMMAND if fenced else MAKE_QUOTED).findall(line):
            if name not in targets:
                remedy = "write the target, or take the words out"
                yield Finding(relative, number, f"'make {name}' does not exist", remedy)


CHECKS: tuple[Check, ...] = (
    line_width,
    function_length,
    module_length,
    telling_names,
    noun_names,
    limits,
    room_cards,
    card_imports,
    caught_errors,
    unfinished_work,
    machine_paths,
    links,
    decisions,
    locks,
    make_help,
    make_mentions,
)
