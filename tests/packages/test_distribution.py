"""The packages that are built: what is in them, and what their metadata says."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import nexo
from scripts.long_description import long_description

ROOT = Path(__file__).resolve().parents[2]
SOME_TEST = "tests/unit/vocabulary/test_attributes.py"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and a source distribution, built as `make package` does."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def wheel_names(packages: Path) -> set[str]:
    (wheel,) = packages.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def tracked(*folders: str) -> set[str]:
    """The files of the tree that git would keep; a source distribution has no git and all files."""
    return {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file_of_the_packages(packages: Path) -> None:
    names = wheel_names(packages)
    wanted = {name.removeprefix("src/") for name in tracked("src/nexo", "src/pyspark_nexo")}
    assert len(wanted) > 200
    assert not wanted - names, "these would be missing after pip install"
    assert "nexo/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "bench/"))]


def test_the_wheel_brings_the_manual_and_completion(packages: Path) -> None:
    shared = {name.partition(".data/data/")[2] for name in wheel_names(packages)}
    assert {
        "share/man/man1/nexo.1",
        "share/bash-completion/completions/nexo",
        "share/zsh/site-functions/_nexo",
        "share/fish/vendor_completions.d/nexo.fish",
    } <= shared


def test_the_metadata_is_complete(packages: Path) -> None:
    (wheel,) = packages.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
    metadata = message_from_string(archive.read(name).decode())
    assert metadata["Name"] == "nexo-broker"
    assert metadata["Version"] == nexo.__version__
    assert metadata["Author"] == "The Nexo authors"
    assert metadata["License-Expression"] == "Apache-2.0"
    urls = dict(each.split(", ") for each in metadata.get_all("Project-URL", []))
    assert urls.keys() == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    needed = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert needed
    assert not re.search("spark|arrow|pandas|numpy|duckdb", " ".join(needed)), "a broker needs none"
    text = metadata.get_payload()
    assert isinstance(text, str)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 20
    assert not [link for link in links if not link.startswith(("https://", "#"))]


def test_how_links_are_made_whole() -> None:
    text = "[a](docs/a.md#b) ![c](docs/c.png) [d](https://d.org) [e](#f)"
    assert long_description(text, "https://x.org/y") == (
        "[a](https://x.org/y/blob/main/docs/a.md#b) ![c](https://x.org/y/raw/main/docs/c.png) "
        "[d](https://d.org) [e](#f)"
    )


def test_the_source_distribution_builds_and_can_be_tested(packages: Path, tmp_path: Path) -> None:
    (archive,) = packages.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    kept = {"src", "tests", "docs", "examples", "ops", "scripts", "bench", "requirements", ".ci"}
    here = tracked(*kept)
    there = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert not here - there, "`make test` would miss these"
    for name in ("Makefile", "mkdocs.yml", "Dockerfile", "compose.yaml", "SECURITY.md"):
        assert name in there
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (again,) = (tmp_path / "again").glob("*.whl")
    assert set(zipfile.ZipFile(again).namelist()) == wheel_names(packages)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", SOME_TEST],
        cwd=tree,
        env={"PYTHONPATH": str(tree / "src"), "PATH": str(Path(sys.executable).parent)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
