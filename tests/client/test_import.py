"""Importing the client costs little and brings nothing of the broker."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLIENT = "import nexo; nexo.connect; nexo.Client; nexo.NexoError"
MILLISECONDS_MAX = 150


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=50
    )


def test_import_time() -> None:
    """The sum of what each module takes by itself, site and interpreter start left out; the best
    of several, because the machine may be busy."""
    best = min(_import_ms() for _ in range(5))
    assert best < MILLISECONDS_MAX, f"{best:.0f} ms"


def _import_ms() -> float:
    took = 0
    counted = False
    for line in _python("-X", "importtime", "-c", CLIENT).stderr.splitlines():
        _, _, rest = line.partition("import time:")
        own, _, name = (part.strip() for part in rest.split("|"))
        if counted and own.isdigit():
            took += int(own)
        counted = counted or name == "site"
    return took / 1000


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        ("import nexo", ["msgspec", "nexo.client", "nexo.vocabulary", "socket", "threading"]),
        (CLIENT, ["apsw", "uvloop", "asyncio", "nexo.engine", "nexo.machine", "nexo.server"]),
        (
            "import nexo; nexo.connect_async",
            ["apsw", "uvloop", "nexo.engine", "nexo.machine", "nexo.journal", "nexo.doors"],
        ),
    ],
)
def test_what_is_not_needed_is_not_loaded(code: str, forbidden: list[str]) -> None:
    loaded = _python("-c", f"{code}; import sys; print(*sys.modules)").stdout.split()
    before = _python("-c", "import sys; print(*sys.modules)").stdout.split()
    assert not set(forbidden) & (set(loaded) - set(before))


def test_every_name_can_be_had() -> None:
    code = "import nexo\nfor name in nexo.__all__: getattr(nexo, name)\nprint(len(dir(nexo)))"
    assert int(_python("-c", code).stdout) > 40
    with pytest.raises(subprocess.CalledProcessError):
        _python("-c", "import nexo; nexo.no_such_name")
