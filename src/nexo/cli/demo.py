"""`nexo demo`: the whole product at work, in the program `examples.gps`, or a cluster whose node is
killed, in `examples.failover`.

These programs are written with the public names alone, as a user's would be, so they live among the
examples and not in a room of their own. A wheel carries a copy of them, since who installs with pip
has no examples.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from nexo.cli.parameters import parse_duration

PROGRAM, CLUSTER_PROGRAM = "examples.gps", "examples.failover"


def demo(
    seconds: Annotated[
        float,
        typer.Option(
            metavar="DURATION",
            parser=parse_duration,
            help="Stop after this time and check that no message was lost. Default: run until "
            "Ctrl-C.",
            show_default=False,
        ),
    ] = 0.0,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Kill the broker and the Spark driver during the run.")
    ] = False,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster",
            help="Run three nodes over a PostgreSQL instead, kill one, and check every message. "
            "Only --seconds (default 45), --folder and --json apply.",
        ),
    ] = False,
    vehicles: Annotated[
        int, typer.Option(min=3, help="Number of vehicles; each reports once a second.")
    ] = 240,
    folder: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Keep data, lake and logs in this folder. Default: a temporary folder.",
        ),
    ] = None,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Use any free ports instead of 9324 to 9326.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run the demo: a broker, a vehicle fleet, Spark jobs and workers, shown live.

    \b
    Examples
      nexo demo                          run until Ctrl-C
      nexo demo --seconds 60             then check that no message was lost
      nexo demo --seconds 60 --chaos     with broker and Spark killed on the way
      nexo demo --folder fleet           keep the lake for later
      nexo demo --cluster                three nodes, one of which is killed

    Exit codes: 0 if no accepted message was lost, 1 otherwise.
    """
    from nexo.vocabulary.errors import NexoError

    root = program_root()
    if root is None:
        raise NexoError(
            "the demo is missing from this installation",
            "install again: pip install --force-reinstall nexo-broker",
        )
    asked = ["--seconds", str(seconds), *(["--folder", folder] if folder is not None else [])]
    flags = [("--json", as_json)]
    if not cluster:
        asked += ["--vehicles", str(vehicles)]
        flags += [("--chaos", chaos), ("--free-ports", free_ports)]
    asked += [flag for flag, is_set in flags if is_set]
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", CLUSTER_PROGRAM if cluster else PROGRAM, *asked]
    # It takes the place of this process: signals and the exit code are its own.
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path})  # noqa: S606


def program_root() -> Path | None:
    """The folder that has `examples`: beside the sources, or the copy in a wheel."""
    package = Path(__file__).resolve().parents[1]
    for root in (package / "program", package.parents[1]):
        if (root / "examples" / "gps" / "__main__.py").is_file():
            return root
    return None
