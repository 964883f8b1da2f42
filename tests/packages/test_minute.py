"""From nothing to the first message: a wheel into a fresh environment, a broker, a push, the
console. In less than a minute and 100 MB, with the index of packages that pip has here.

It asks the network and measures time, so it is marked soak: `pytest -m soak tests/packages`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 60
MEGABYTES_MAX = 100
PLAIN = {name: value for name, value in os.environ.items() if name[:5] != "NEXO_"}


def run(folder: Path, *command: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=PLAIN,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def megabytes(folder: Path) -> float:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(path.stat().st_blocks * 512 for path in files) / 1024**2


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_from_nothing_to_the_first_message(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    run(ROOT, sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    started = time.monotonic()
    run(tmp_path, sys.executable, "-m", "venv", "fresh")
    fresh = tmp_path / "fresh"
    run(tmp_path, fresh / "bin/pip", "install", "--quiet", "--no-cache-dir", wheel)
    installed = time.monotonic()
    nexo, ports = fresh / "bin/nexo", tmp_path / "ports.json"
    free = ("--http-port", "0", "--rpc-port", "0", "--udp-port", "0", "--ports-file", str(ports))
    with subprocess.Popen(
        [nexo, "serve", *free], cwd=tmp_path, env=PLAIN, stdout=subprocess.PIPE, text=True
    ) as broker:
        try:
            while not ports.exists():
                assert broker.poll() is None, "the broker did not start"
                time.sleep(0.02)
            found = json.loads(ports.read_text())
            url = f"nexo://127.0.0.1:{found['rpc']}"
            run(tmp_path, nexo, "push", "orders", "hello", "--create", "--url", url)
            assert run(tmp_path, nexo, "pop", "orders", "--url", url).split() == ["hello"]
            console = f"http://127.0.0.1:{found['http']}/console"
            with urllib.request.urlopen(console, timeout=30) as page:
                assert b"<html" in page.read()
        finally:
            broker.terminate()
            broker.communicate(timeout=30)
    seconds, size = time.monotonic() - started, megabytes(fresh)
    figures = f"{seconds:.1f} s, {installed - started:.1f} s of it to install; {size:.0f} MB"
    record_property("figures", figures)  # `--junit-xml` shows it
    assert not list(fresh.rglob("pyspark"))
    assert (fresh / "share/man/man1/nexo.1").is_file()
    assert size < MEGABYTES_MAX, figures
    assert seconds < SECONDS_MAX, figures
