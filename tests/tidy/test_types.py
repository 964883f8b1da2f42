"""What users of the client can reach is fully typed: `pyright --verifytypes` knows each symbol's
type, and every other type checker would infer the same.

The tool is asked about planted packages too, so each kind of finding is seen to be one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nexo

ROOT = Path(__file__).resolve().parents[2]
PYRIGHT = Path(sys.executable).with_name("basedpyright")
REMEDY = "annotate what is assigned: `self.depth: int = 0`"

ROOMS = ("nexo.client", "nexo.testing", "nexo.vocabulary", "nexo.wire")

# A broker for tests hands out its engine, and the rooms behind the wire are not for users: they may
# leave types to be inferred. What such a symbol may be found to lack is exactly this.
BEHIND_THE_WIRE: dict[str, tuple[str, ...]] = {
    "nexo.testing.Broker": (),
    "nexo.testing.Broker.engine": (),
    "nexo.testing.broker": ('Return type is partially unknown; Return type is "Broker"',),
}


class Diagnostic(msgspec.Struct):
    message: str
    severity: str = "error"


class Symbol(msgspec.Struct, rename="camel"):
    name: str
    is_type_known: bool
    is_type_ambiguous: bool
    diagnostics: list[Diagnostic]

    @property
    def problems(self) -> tuple[str, ...]:
        """What the tool says of it; empty where the fault is in what it is made of. Warnings are
        about docstrings."""
        return tuple(
            "; ".join(line.strip() for line in each.message.splitlines())
            for each in self.diagnostics
            if each.severity == "error"
        )


class Module(msgspec.Struct):
    name: str


class Completeness(msgspec.Struct, rename="camel"):
    package_root_directory: str
    modules: list[Module] = []
    symbols: list[Symbol] = []


class Report(msgspec.Struct, rename="camel"):
    general_diagnostics: list[Diagnostic]
    type_completeness: Completeness


def verify_types(package: str, source: Path) -> Report:
    """What the tool says of a package in this folder. It asks the Python of its PATH where the
    packages are; `--pythonpath` it does not heed here."""
    environment = os.environ | {
        "PATH": f"{PYRIGHT.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(source),
    }
    command = [str(PYRIGHT), "--verifytypes", package, "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    try:
        report = msgspec.json.decode(done.stdout, type=Report)
    except msgspec.DecodeError as error:
        pytest.fail(f"no report: {error}\n{done.stdout}{done.stderr}")
    found = report.type_completeness.package_root_directory
    assert not found or Path(found) == source / package, f"another {package}: {found}"
    return report


def untyped(
    report: Report,
    is_reachable: Callable[[str], bool] = lambda name: True,
    excused: dict[str, tuple[str, ...]] | None = None,
) -> list[str]:
    """Every reachable symbol whose type is not known, or that type checkers may infer differently,
    with what the tool says of it; and every excuse that nothing needs."""
    findings = [each.message for each in report.general_diagnostics]
    excuses = dict(excused or {})
    for symbol in report.type_completeness.symbols:
        if not is_reachable(symbol.name) or (symbol.is_type_known and not symbol.is_type_ambiguous):
            continue
        if excuses.pop(symbol.name, None) != symbol.problems:
            problems = symbol.problems or ("made of parts that are not fully typed",)
            findings += [f"{symbol.name}: {problem}" for problem in problems]
    return findings + [f"{name}: is excused and needs no excuse" for name in excuses]


def is_of_the_client(name: str) -> bool:
    """A name of `nexo` itself, or anything of the rooms that users hold values of."""
    return name.count(".") == 1 or any(name.startswith(f"{room}.") for room in ROOMS)


@pytest.mark.timeout(240)
def test_the_client_is_fully_typed() -> None:
    report = verify_types("nexo", ROOT / "src")
    findings = untyped(report, is_of_the_client, BEHIND_THE_WIRE)
    assert not findings, f"{REMEDY}\n" + "\n".join(findings)

    # What the tool has not looked at it cannot find.
    symbols = {symbol.name for symbol in report.type_completeness.symbols}
    assert symbols >= {f"nexo.{name}" for name in nexo.__all__}
    modules = {module.name for module in report.type_completeness.modules}
    assert modules >= set(ROOMS)
    assert modules >= {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for room in ("client", "vocabulary", "wire")
        for path in (ROOT / "src" / "nexo" / room).rglob("[!_]*.py")
    }


# module, its source, and the symbols found in it
PLANTS: tuple[tuple[str, str, set[str]], ...] = (
    ("annotated", "class Queue:\n    def __init__(self):\n        self.depth: int = 0\n", set()),
    ("private", "class Queue:\n    def __init__(self):\n        self._depth = [0]\n", set()),
    ("struct", "import msgspec\n\nclass Queue(msgspec.Struct):\n    depth: int = 0\n", set()),
    ("inferred", "class Queue:\n    depth = max(2, 3)\n", {"Queue", "Queue.depth"}),
    ("returned", "from planted.inferred import Queue\n\ndef made() -> Queue: ...\n", {"made"}),
    ("method", "pack = str.encode\n", {"pack"}),
    ("parameter", "def push(body) -> None: ...\n", {"push"}),
    ("generic", "def names() -> list: ...\n", {"names"}),
    ("missing", "from nowhere import Queue\n\ndef queue() -> Queue: ...\n", {"queue"}),
)


@pytest.mark.timeout(120)
def test_plants(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "py.typed").touch()
    (package / "__init__.py").touch()
    for module, source, _ in PLANTS:
        (package / f"{module}.py").write_text(source)
    found = {finding.split(": ")[0] for finding in untyped(verify_types("planted", tmp_path))}
    assert found == {f"planted.{module}.{name}" for module, _, names in PLANTS for name in names}


@pytest.mark.timeout(120)
def test_package_without_marker(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").write_text("depth: int = 0\n")
    assert untyped(verify_types("planted", tmp_path)) == ["No py.typed file found"]


def reported(*symbols: dict[str, Any]) -> Report:
    completeness = {"packageRootDirectory": "", "symbols": symbols}
    whole = {"generalDiagnostics": [], "typeCompleteness": completeness}
    return msgspec.json.decode(json.dumps(whole), type=Report)


def symbol(name: str, *messages: str) -> dict[str, Any]:
    return {
        "name": name,
        "isTypeKnown": False,
        "isTypeAmbiguous": True,
        "diagnostics": [{"severity": "error", "message": message} for message in messages]
        + [{"severity": "warning", "message": "No docstring found"}],
    }


def test_only_what_users_reach_counts() -> None:
    names = ("nexo.connect", "nexo.client.queue.Queue", "nexo.testing.Broker", "nexo.engine.x")
    report = reported(*(symbol(name, "Unknown\n  really") for name in names))
    assert untyped(report, is_of_the_client) == [f"{name}: Unknown; really" for name in names[:3]]


def test_excuse_covers_nothing_else() -> None:
    excused = {"nexo.a": ("Known fault",), "nexo.b": ()}
    assert not untyped(reported(symbol("nexo.a", "Known fault"), symbol("nexo.b")), excused=excused)
    other = reported(symbol("nexo.a", "Another fault"), symbol("nexo.b"))
    assert untyped(other, excused=excused) == ["nexo.a: Another fault"]
    assert untyped(reported(symbol("nexo.b")), excused=excused) == [
        "nexo.a: is excused and needs no excuse"
    ]
