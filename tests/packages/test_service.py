"""The systemd unit does what its header says: everything it names is there, and what it runs runs
as another user, without a configuration, and says when it is ready."""

from __future__ import annotations

import configparser
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import NEXO, TIME_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "ops" / "systemd" / "nexo.service"
SOMEBODY = "nobody"


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    read = configparser.ConfigParser(interpolation=None, strict=False)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read(UNIT)
    return read


def header() -> str:
    lines = UNIT.read_text().splitlines()
    return "\n".join(line[1:].strip() for line in lines if line.startswith("#"))


def test_what_it_names_is_made_by_its_header_or_by_systemd(unit: configparser.ConfigParser) -> None:
    service, commands = unit["Service"], header()
    program, *arguments = shlex.split(service["ExecStart"])
    assert f"ln -s /opt/nexo/bin/nexo {program}" in commands
    assert arguments == ["serve", "--data", f"/var/lib/{service['StateDirectory']}"]
    user = [line for line in commands.splitlines() if line.startswith("useradd ")]
    assert len(user) == 1
    assert user[0].split()[-1] == service["User"] == service["Group"]
    assert "--user-group" in user[0]
    assert service["WorkingDirectory"] == f"/etc/{service['ConfigurationDirectory']}"
    assert service["EnvironmentFile"].startswith("-"), "it may be missing"


def test_its_manual_comes_with_the_package(unit: configparser.ConfigParser) -> None:
    assert unit["Unit"]["Documentation"] == "man:nexo(1)"
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    shared = build["targets"]["wheel"]["shared-data"]
    assert "share/man/man1/nexo.1" in shared.values()
    assert "ln -s /opt/nexo/share/man/man1/nexo.1 /usr/local/share/man/man1/nexo.1" in header()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user may enter, which those of pytest are not."""
    made = Path(tempfile.mkdtemp(prefix="nexo-service-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def may_run_as_somebody() -> bool:
    """Only root may be somebody else, and the environment may be where others cannot look."""
    if os.geteuid() != 0:
        return False
    try:
        command = [NEXO, "--version"]
        tried = subprocess.run(command, user=SOMEBODY, capture_output=True, check=False)
    except PermissionError:
        return False
    return tried.returncode == 0


def test_what_it_runs_runs(unit: configparser.ConfigParser, folder: Path) -> None:
    user = SOMEBODY if may_run_as_somebody() else None
    state, configuration = folder / "state", folder / "etc"
    for each in (state, configuration):
        each.mkdir(mode=0o700 if each is state else 0o755)
    if user is not None:
        os.chown(state, pwd.getpwnam(user).pw_uid, -1)
    (configuration / "nexo.toml").write_text('memory_limit = "64MB"\n')  # it is read, if there
    command = shlex.split(unit["Service"]["ExecStart"])
    command = [NEXO, *command[1:-1], str(state)]
    name = f"nexo-service-{os.getpid()}"
    environment = {
        "PATH": os.environ["PATH"],
        "NOTIFY_SOCKET": f"@{name}",
        **{f"NEXO_{each}_PORT": "0" for each in ("HTTP", "RPC", "UDP")},
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}")
        systemd.settimeout(TIME_LIMIT_S)
        with subprocess.Popen(
            command,
            cwd=configuration,
            env=environment,
            user=user,
            umask=int(unit["Service"]["UMask"], 8),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as broker:
            try:
                assert systemd.recv(100) == b"READY=1"
                broker.send_signal(signal.SIGTERM)
                out, err = broker.communicate(timeout=int(unit["Service"]["TimeoutStopSec"]))
            finally:
                broker.kill()
    assert broker.returncode == 0, err
    assert "64 MB for messages" in out
    assert list(state.iterdir())
    assert sys.platform != "linux" or state.stat().st_mode & 0o077 == 0
