"""Writes the blocking client from the asyncio one: the two differ in a few words.

    python scripts/twins.py            write src/nexo/client/blocking
    python scripts/twins.py --check    say which files are not what they would be, and fail

What `SOURCES` names is edited in `aio` alone. What the twins do otherwise is written by hand, in
files that stand in both folders under the same names: `connection`, `handle`, `subscription`.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLIENT = Path("src/nexo/client")
SOURCES = ("client", "message", "queue", "topic")
HEADER = "# Generated from {source}: edit that file and run scripts/twins.py."

# Words of the code; what begins with Async is a class of ours and loses that.
DROPPED = frozenset({"async", "await"})
NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
    "aio": "blocking",
}
# Words of docstrings and comments, the longer first. Other strings are left alone.
PHRASES = (
    ("# noqa: ASYNC109", ""),
    ("an asyncio", "a blocking"),
    ("(and await) ", ""),
    ("async with", "with"),
    ("connect_async", "connect"),
    ("Any task", "Any thread"),
    ("tasks", "threads"),
)
CLASS_NAME = re.compile(r"\bAsync(?=[A-Z])")

Edit = tuple[int, int, str]  # from, to, and what is there then


def translated(source: str) -> str:
    """The blocking half of a module; it still has to be sorted and formatted."""
    line_starts = [0]
    for line in source.splitlines(keepends=True):
        line_starts.append(line_starts[-1] + len(line))
    edits: list[Edit] = []
    f_strings = 0  # how deep in them; newer Pythons give their names as tokens too
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        f_strings += (kind == "FSTRING_START") - (kind == "FSTRING_END")
        if f_strings:
            continue
        start = line_starts[token.start[0] - 1] + token.start[1]
        end = line_starts[token.end[0] - 1] + token.end[1]
        if token.type == tokenize.NAME and token.string in DROPPED:
            edits.append((start, end + 1, ""))  # with the blank behind it
        elif token.type == tokenize.NAME:
            edits.append((start, end, _name(token.string)))
        elif token.type == tokenize.COMMENT or token.string.startswith('"""'):
            edits.append((start, end, _phrases(token.string)))
    for start, end, text in reversed(edits):
        source = source[:start] + text + source[end:]
    return source


def _name(name: str) -> str:
    return NAMES.get(name) or CLASS_NAME.sub("", name)


def _phrases(text: str) -> str:
    for theirs, ours in PHRASES:
        text = text.replace(theirs, ours)
    return CLASS_NAME.sub("", text)


def generated(name: str, root: Path = ROOT) -> str:
    """What `blocking/{name}.py` is to hold."""
    source = root / CLIENT / "aio" / f"{name}.py"
    header = HEADER.format(source=source.relative_to(root).as_posix())
    text = f"{header}\n{translated(source.read_text(encoding='utf-8'))}"
    text = _ruff(text, name, "check", "--select", "I", "--fix", "--quiet")
    return _ruff(text, name, "format", "--quiet")


def _ruff(text: str, name: str, *command: str) -> str:
    place = (CLIENT / "blocking" / f"{name}.py").as_posix()
    ruff = str(Path(sys.executable).with_name("ruff"))
    done = subprocess.run(
        [ruff, *command, "--stdin-filename", place, "-"],
        input=text,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    if done.returncode:
        raise SystemExit(f"{place}: {done.stderr or done.stdout}")
    return done.stdout


def outdated(root: Path = ROOT) -> list[Path]:
    """Files that are not what they would be, from the root."""
    found = []
    for name in SOURCES:
        path = CLIENT / "blocking" / f"{name}.py"
        place = root / path
        if not place.is_file() or place.read_text(encoding="utf-8") != generated(name, root):
            found.append(path)
    return found


def main(arguments: list[str]) -> int:
    stale = outdated()
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path} is not what its twin gives: run python scripts/twins.py")
        return 1 if stale else 0
    if arguments:
        print(__doc__)
        return 2
    for path in stale:
        (ROOT / path).write_text(generated(path.stem), encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
