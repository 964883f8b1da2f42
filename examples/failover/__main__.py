"""`python -m examples.failover`: three nodes over a PostgreSQL, one of which is killed under load.
`nexo demo --cluster` runs this."""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from examples.failover.nodes import Nodes
    from examples.failover.traffic import Traffic
    from examples.failover.verdict import Verdict

DONE, UNBALANCED, USAGE, INTERRUPTED = 0, 1, 2, 130
SECONDS = 45.0  # of traffic, unless told otherwise
LEAST_S = 15.0  # a failover takes up to ten of them
LEFT_S = 60.0  # for what waits to be delivered, once nothing is pushed any more


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("nexo demo --cluster", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of traffic")
    parser.add_argument("--folder", type=Path, help="to keep logs in")
    parser.add_argument("--json", action="store_true", help="the accounting as JSON")
    asked = parser.parse_args(given)
    asked.seconds = asked.seconds or SECONDS
    if asked.seconds < LEAST_S:
        parser.error(f"a failover needs {LEAST_S:.0f} seconds or more")
    if asked.folder is not None and asked.folder.exists() and any(asked.folder.iterdir()):
        parser.error(f"{asked.folder} is not empty")
    return asked


def main(given: list[str] | None = None) -> int:
    asked = arguments(given)
    if util.find_spec("psycopg") is None:
        print('this demo needs PostgreSQL: pip install "nexo-broker[postgresql]"', file=sys.stderr)
        return USAGE
    from examples.failover.nodes import Broken
    from examples.failover.postgresql import NoPostgresql

    folder = asked.folder or Path(tempfile.mkdtemp(prefix="nexo-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=folder / "clients.log")  # whoever loses a connection says so
    try:
        verdict = run(asked.seconds, folder.resolve(), sys.stderr if asked.json else sys.stdout)
    except (Broken, NoPostgresql) as error:
        print(f"nexo demo: {error}", file=sys.stderr)
        return UNBALANCED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if asked.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    tell(verdict, as_json=asked.json)
    return DONE if verdict.holds else UNBALANCED


def tell(verdict: Verdict, *, as_json: bool) -> None:
    from examples.failover.verdict import told

    if as_json:
        print(json.dumps({"holds": verdict.holds, **verdict._asdict()}))
    else:
        print(f"\n{told(verdict)}")


def run(seconds: float, folder: Path, out) -> Verdict:
    from examples.failover.nodes import Nodes
    from examples.failover.postgresql import postgresql_server
    from examples.failover.traffic import Traffic
    from examples.failover.verdict import verdict_of

    say(out, "starting a PostgreSQL and three nodes")
    with postgresql_server(durable=True) as server:
        nodes = Nodes(folder, server.url)
        try:
            nodes.create()
            say(out, f"the nodes are ready: {nodes.address}")
            traffic = Traffic(nodes.address)
            traffic.begin()
            try:
                play(nodes, traffic, seconds, out)
                waiting = drain(traffic, out)
            finally:
                traffic.end()
            return verdict_of(traffic.ledger, waiting, nodes.kills)
        finally:
            nodes.end()


def play(nodes: Nodes, traffic: Traffic, seconds: float, out) -> None:
    """Traffic for so long; a node is killed after a third of it, and back after two thirds."""
    began_s = time.monotonic()
    victim, is_back = None, False
    while (past_s := time.monotonic() - began_s) < seconds:
        if victim is None and past_s > seconds / 3:
            victim = max(
                (name for name in nodes.shards().values() if name),
                key=Counter(nodes.shards().values()).__getitem__,
            )
            say(out, f"node {victim} (process {nodes.pid(victim)}) is killed with -9")
            nodes.kill(victim)
        elif victim is not None and not is_back and past_s > seconds * 2 / 3:
            is_back = True
            say(out, f"node {victim} is started again")
            nodes.start(victim)
        look(nodes, traffic, past_s, out)
        time.sleep(1)


def drain(traffic: Traffic, out) -> int:
    """Stop the producers and wait until everything is delivered; returns what is left."""
    say(out, "the producers stop; what waits is delivered")
    traffic.stop_producers()
    until_s = time.monotonic() + LEFT_S
    while (waiting := traffic.waiting()) and time.monotonic() < until_s:
        time.sleep(0.5)
    return waiting


def look(nodes: Nodes, traffic: Traffic, past_s: float, out) -> None:
    ledger = traffic.ledger
    held = Counter(nodes.shards().values())
    names = (f"{name} {held[name]:2}" for name in sorted(filter(None, held)))
    say(
        out,
        f"{past_s:3.0f} s  confirmed {len(ledger.confirmed):7,}  acked {len(ledger.acked):7,}"
        f"  shards: {'  '.join(names)}",
    )


def say(out, text: str) -> None:
    print(text, file=out, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))
    sys.exit(main())
