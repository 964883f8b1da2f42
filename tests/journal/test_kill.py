"""A real process, really killed: what it confirmed is there."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from nexo.journal.sqlite import SqliteJournal

if TYPE_CHECKING:
    from pathlib import Path

CHILD = """
import sys
from nexo.journal.port import Commit, Write
from nexo.journal.sqlite import SqliteJournal
from nexo.vocabulary.batch import batch_of

journal = SqliteJournal(sys.argv[1])
journal.open()
number = len(journal.load(1).records)
while True:
    number += 1
    batch = batch_of([b"%d" % number] * (number % 50 + 1))
    dropped = [number - 10] if number > 10 else []
    journal.commit(Commit([Write(1, b"%d" % number)], [(number, batch)], dropped, []))
    print(number, flush=True)
"""


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_everything_confirmed_before_kill_is_there(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    confirmed = 0
    for epoch in range(1, 4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(draw.uniform(0.0, 0.3))
        child.kill()
        printed = [*first.split(), *child.stdout.read().split()]
        child.stdout.close()
        child.wait()
        confirmed = max([confirmed, *map(int, printed)])
        journal = SqliteJournal(tmp_path)
        assert journal.open() == 2 * epoch
        records = journal.load(1).records
        assert records == [b"%d" % number for number in range(1, len(records) + 1)]
        assert confirmed <= len(records) <= confirmed + 1
        assert journal.last_row() == len(records)
        live = range(max(1, len(records) - 9), len(records) + 1)
        for number, batch in zip(live, journal.fetch(list(live)), strict=True):
            assert batch.bodies() == [b"%d" % number] * (number % 50 + 1)
        journal.close()
        confirmed = len(records)
    assert confirmed > 3
