"""Importing the client brings nothing of the broker. What it takes is measured in the bench."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLIENT = "import nexo; nexo.connect; nexo.Client; nexo.NexoError"


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=50
    )


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
