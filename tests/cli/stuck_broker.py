"""A broker whose journal gets stuck, for the tests of its end: `stuck_broker.py HOW DATA PORTS`.

    loop      a commit never ends, in the thread of the event loop
    thread    a commit never ends, in the thread of the journal
    silent    no commit ever begins
    logs      a commit never ends, and nobody reads the log

It works as any broker until `DATA/stuck` is there; `DATA/waits` says that a commit has met that.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from nexo.engine.committer import Committer
from nexo.engine.desk import AdaptiveRunner
from nexo.journal.sqlite import SqliteJournal
from nexo.server import service
from nexo.server.configuration import Configuration
from nexo.server.logs import set_up_logs
from nexo.server.service import serve

STOP_S = 1.0  # short, for a test


replace: Any = setattr  # a method, and no type minds


def seem_slow(runner: AdaptiveRunner, _: float) -> None:
    runner._average_ms = 1e9


def main(how: str, data: Path, ports: str) -> None:
    replace(service, "STOP_S", STOP_S)
    commit, begin = SqliteJournal.commit, Committer.begin

    def stuck_commit(journal: SqliteJournal, wanted: Any) -> float:
        while (data / "stuck").exists():
            (data / "waits").touch()
            if how == "logs":
                sys.stderr.write("x" * 100_000)  # more than a pipe holds
            time.sleep(3_600)
        return commit(journal, wanted)

    def silent_begin(committer: Committer) -> None:
        if (data / "stuck").exists():
            (data / "waits").touch()
        else:
            begin(committer)

    if how == "silent":
        replace(Committer, "begin", silent_begin)
    else:
        replace(SqliteJournal, "commit", stuck_commit)
    if how == "thread":
        replace(AdaptiveRunner, "_learn", seem_slow)
    set_up_logs("json", "info")
    configuration = Configuration(
        data=str(data), http_port=0, rpc_port=0, udp_port=0, ports_file=ports
    )
    serve(configuration, lambda broker, ports: None)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
