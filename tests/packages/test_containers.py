"""Dockerfile and compose.yaml: what can be said about them without building an image.

The wheel is built from just the files that the image gets, the health check is run against a
broker, and every file, setting and variable that they name exists.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]

from nexo.server.configuration import PREFIX, Configuration
from tests.cli.commands import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
SETTINGS = {f"{PREFIX}{field.name.upper()}" for field in msgspec.structs.fields(Configuration)}


def admitted() -> list[str]:
    """What .dockerignore lets into the image."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines, "everything else stays out"
    return [line[1:] for line in lines if line.startswith("!")]


def instructions(word: str) -> list[str]:
    return re.findall(rf"^{word} +(.*)$", DOCKERFILE, re.MULTILINE)


def test_the_image_is_built_from_what_it_gets(tmp_path: Path) -> None:
    for name in admitted():
        target = tmp_path / "all" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    copied = [each for each in instructions("COPY") if not each.startswith("--from")]
    assert len(copied) > 4
    build = tmp_path / "build"
    for each in copied:
        *sources, place = each.split()
        for name in sources:
            found = tmp_path / "all" / name
            assert found.exists(), f"COPY {name}: .dockerignore does not let it in"
            target = build / place if found.is_dir() else build / place / found.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if found.is_dir():
                shutil.copytree(found, target)
            else:
                shutil.copy(found, target)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")],
        cwd=build,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_image_is_careful() -> None:
    assert instructions("USER") == ["nexo"]
    (volume,) = instructions("VOLUME")
    assert f"NEXO_DATA={volume}" in DOCKERFILE
    assert f"-o nexo -g nexo -m 0700 {volume}" in DOCKERFILE
    assert "NEXO_ACCESS=required" in DOCKERFILE
    assert set(re.findall(r"NEXO_\w+(?==)", DOCKERFILE)) <= SETTINGS
    assert "--require-hashes" in DOCKERFILE


def test_the_health_check_says_what_health_is(tmp_path: Path) -> None:
    (check,) = re.findall(r"^HEALTHCHECK .*? CMD (.*)$", DOCKERFILE, re.MULTILINE)
    broker = BrokerProcess(tmp_path, data=":memory:").start()
    command = check.replace("9324", str(broker.http_port)).replace("python3", sys.executable)
    try:
        assert subprocess.run(["sh", "-c", command], check=False).returncode == 0
    finally:
        broker.kill()
    gone = subprocess.run(["sh", "-c", command], check=False, capture_output=True)
    assert gone.returncode != 0


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_compose_opens_nothing_to_others(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} opens {port}"


def test_compose_names_what_exists(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert services["broker"].get("profiles") is None, "a broker, without a word"
    assert {profile for each in services.values() for profile in each.get("profiles", [])} == {
        "postgresql",
        "monitoring",
        "cluster",
    }
    nodes = {name: each["environment"] for name, each in services.items() if name[:5] == "node-"}
    assert {f"node-{each['NEXO_NODE']}" for each in nodes.values()} == nodes.keys()
    assert len(nodes) == 3
    assert {each["NEXO_ADVERTISE"] for each in nodes.values()} == nodes.keys()
    assert len({each["NEXO_JOURNAL"] for each in nodes.values()}) == 1
    assert services["cluster-create"]["command"] == ["cluster", "create", "--if-missing"]
    mounted = {}
    for name, service in services.items():
        for variable in service.get("environment", {}):
            assert not variable.startswith(PREFIX) or variable in SETTINGS, variable
        for volume in service.get("volumes", []):
            source, target = volume.split(":")[:2]
            mounted[target] = source
            known = (ROOT / source).exists() if source[0] == "." else source in compose["volumes"]
            assert known, f"{name} mounts {source}, which is not there"
        for other in service.get("depends_on", []):
            assert other in services
    prometheus = yaml.safe_load((ROOT / mounted["/etc/prometheus/prometheus.yml"]).read_text())
    assert all(rules in mounted for rules in prometheus["rule_files"])
    (job,) = prometheus["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["broker:9324"]}]
    dashboards = yaml.safe_load((ROOT / "ops/compose/grafana-dashboards.yml").read_text())
    folder = dashboards["providers"][0]["options"]["path"]
    assert f"{folder}/nexo.json" in mounted
