"""The import contracts of pyproject.toml hold in the tree, and each of them can fail.

The plants go into a skeleton with every room of the design, built or not, so a contract that
guards a future room is tried today.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")

ROOMS = (
    "access",
    "cli",
    "client",
    "cluster",
    "doors",
    "doors/console",
    "doors/json_udp",
    "doors/rpc_tcp",
    "doors/sqs_http",
    "engine",
    "integrations",
    "journal",
    "machine",
    "pipeline",
    "query",
    "server",
    "simulation",
    "spark",
    "telemetry",
    "vocabulary",
    "wire",
)

LAYERS = "Rooms import downwards only"
MACHINE = "The machine has no clock, no chance, no threads and no I/O"
DOORS = "Doors see the engine, never the machine, the journal or a client"
STRANGERS = "Doors do not know each other"
CLIENT = "Client, Spark source and adapters speak to the broker over the wire alone"
SPARK = "pyspark lives in spark and pipeline, pyarrow there and in query"
DUCKDB = "duckdb lives in query"
SQLITE = "apsw lives in journal, and in simulation for its faults"
CLUSTER = "A broker that is alone never imports the cluster"
FOUND = "pyspark_nexo is there for Spark to find, and for nobody else"

# What the design lets a room import: the contracts must not stand in its way.
ALLOWED = (
    ("cli/main.py", "import nexo.server"),
    ("testing.py", "import nexo.client, nexo.engine, nexo.journal, nexo.server"),
    ("server/broker.py", "import nexo.doors.rpc_tcp, nexo.engine, nexo.journal, nexo.access"),
    ("simulation/disk.py", "import apsw, random, nexo.engine, nexo.journal, nexo.machine"),
    ("server/node.py", "import nexo.cluster.node"),
    ("cluster/node.py", "import asyncio, nexo.doors, nexo.engine, nexo.journal, nexo.wire"),
    ("doors/rpc_tcp/session.py", "import asyncio, nexo.engine.actor, nexo.wire, nexo.access"),
    ("doors/__init__.py", "import nexo.engine"),
    ("pipeline/archive.py", "import pyspark, pyarrow, nexo.spark, nexo.client"),
    ("spark/source.py", "import pyspark, pyarrow, nexo.client, nexo.wire, nexo.query"),
    ("query/rows.py", "import duckdb, pyarrow, nexo.wire"),
    ("client/chosen.py", "import nexo.query"),
    ("integrations/kombu.py", "import kombu, nexo.client"),
    ("client/__init__.py", "import asyncio, nexo.wire, nexo.vocabulary"),
    ("engine/__init__.py", "import nexo.machine.rules, nexo.journal"),
    ("engine/actor.py", "import asyncio, nexo.machine.rules, nexo.journal.sqlite, nexo.telemetry"),
    ("journal/sqlite.py", "import apsw, threading, nexo.machine"),
    ("machine/rules.py", "import heapq, msgspec, nexo.vocabulary"),
    ("vocabulary/names.py", "import re, msgspec"),
)

FORBIDDEN = (
    (LAYERS, "vocabulary/names.py", "import nexo.machine"),
    (LAYERS, "machine/rules.py", "import nexo.journal"),
    (LAYERS, "machine/rules.py", "from nexo.wire import frames"),
    (LAYERS, "journal/sqlite.py", "import nexo.engine"),
    (LAYERS, "journal/sqlite.py", "import nexo.telemetry"),
    (LAYERS, "engine/actor.py", "import nexo.client"),
    (LAYERS, "engine/actor.py", "import nexo.doors"),
    (LAYERS, "doors/rpc_tcp/session.py", "import nexo.server"),
    (LAYERS, "server/broker.py", "import nexo.simulation"),
    (LAYERS, "server/broker.py", "import nexo.testing"),
    (LAYERS, "corridor.py", "import nexo.vocabulary"),
    (MACHINE, "machine/rules.py", "import asyncio"),
    (MACHINE, "machine/rules.py", "import os.path"),
    (MACHINE, "machine/rules.py", "from random import Random"),
    (MACHINE, "machine/rules.py", "import socket"),
    (MACHINE, "machine/rules.py", "import threading"),
    (MACHINE, "machine/rules.py", "import time"),
    (MACHINE, "machine/rules.py", "from time import monotonic"),
    (MACHINE, "machine/__init__.py", "import uuid"),
    (MACHINE, "machine/rules.py", "def now():\n    import time\n    return time.time()"),
    (DOORS, "doors/rpc_tcp/session.py", "import nexo.machine.rules"),
    (DOORS, "doors/sqs_http/__init__.py", "import nexo.journal"),
    (DOORS, "doors/__init__.py", "from nexo.journal import sqlite"),
    (DOORS, "doors/rpc_tcp/session.py", "import nexo.client"),
    (STRANGERS, "doors/console/pages.py", "import nexo.doors.sqs_http"),
    (CLIENT, "client/__init__.py", "import nexo.access"),
    (CLIENT, "client/worker.py", "import nexo.machine"),
    (CLIENT, "spark/source.py", "import nexo.engine"),
    (CLIENT, "integrations/kombu.py", "import nexo.engine"),
    (LAYERS, "client/worker.py", "import nexo.integrations"),
    (SPARK, "engine/actor.py", "import pyarrow"),
    (SPARK, "client/__init__.py", "from pyspark.sql import SparkSession"),
    (SPARK, "query/rows.py", "from pyspark.sql import SparkSession"),
    (DUCKDB, "client/chosen.py", "import duckdb"),
    (SQLITE, "engine/__init__.py", "import apsw"),
    (SQLITE, "server/broker.py", "import apsw.ext"),
    (LAYERS, "doors/rpc_tcp/session.py", "import nexo.cluster"),
    (LAYERS, "cluster/node.py", "import nexo.server"),
    (CLUSTER, "server/broker.py", "import nexo.cluster.node"),
    (CLUSTER, "cli/main.py", "import nexo.cluster"),
    (FOUND, "cli/main.py", "import pyspark_nexo"),
)


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    package = tmp_path / "src" / "nexo"
    for room in ("", *ROOMS):
        (package / room).mkdir(parents=True, exist_ok=True)
        (package / room / "__init__.py").touch()
    (package / "wire" / "frames.py").touch()
    for name, source in ALLOWED:
        (package / name).write_text(source + "\n")
    return tmp_path


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "COLUMNS": "120"}
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache", "--no-logo"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )


def broken_contracts(report: str) -> list[str]:
    return re.findall(r"^(.+\S) BROKEN\b", report, flags=re.MULTILINE)


def test_tree_keeps_the_contracts() -> None:
    run = lint_imports(ROOT)
    assert run.returncode == 0, run.stdout + run.stderr


def test_contracts_allow_the_design(skeleton: Path) -> None:
    run = lint_imports(skeleton)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(("contract", "module", "source"), FORBIDDEN)
def test_contract_refuses(skeleton: Path, contract: str, module: str, source: str) -> None:
    with (skeleton / "src" / "nexo" / module).open("a") as planted:
        planted.write(source + "\n")
    run = lint_imports(skeleton)
    assert run.returncode == 1, run.stdout + run.stderr
    assert contract in broken_contracts(run.stdout), run.stdout
