"""Random commits, reopenings, crashes and idle work against a model of a few dicts."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from nexo.journal.memory import MemoryDisk, MemoryJournal
from nexo.journal.port import Commit, Write
from nexo.journal.sqlite import SqliteJournal
from nexo.simulation.disk import SimulatedDisk
from nexo.vocabulary.batch import Batch, batch_of
from tests.journal.places import OnPostgresql
from tests.journal.workload import SMALL, Model, assert_same, shown_by

if TYPE_CHECKING:
    from nexo.journal.port import Journal
    from nexo.journal.postgresql import PostgresqlJournal
    from tests.postgresql import PostgresqlServer

OWNERS = st.integers(0, 3)
WRITES = st.builds(
    Write, OWNERS, st.binary(max_size=200), st.none() | st.none() | st.binary(max_size=3_000)
)
BATCHES = st.lists(st.binary(max_size=1_500), min_size=1, max_size=5).map(batch_of)


class JournalMachine(RuleBasedStateMachine):
    """The journal on the simulated disk and the one in memory walk side by side."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.disk = SimulatedDisk(Random(seed))
        self.journal: Journal = self._new_journal()
        self.memory_disk = MemoryDisk()
        self.memory = MemoryJournal(self.memory_disk)
        self.model = Model()
        self.last = 0
        self.epoch = 0
        self._open()

    @rule(
        writes=st.lists(WRITES, max_size=4),
        batches=st.lists(BATCHES, max_size=3),
        skip=st.integers(1, 3),
        dropped=st.sets(st.integers(1, 60), max_size=12),
        gone=st.lists(OWNERS, max_size=1),
    )
    def commit(
        self,
        writes: list[Write],
        batches: list[Batch],
        skip: int,
        dropped: set[int],
        gone: list[int],
    ) -> None:
        rows = [(self.last + skip + index, batch) for index, batch in enumerate(batches)]
        commit = Commit(writes, rows, list(dropped), gone)
        self.last = rows[-1][0] if rows else self.last
        self.journal.commit(commit)
        self.memory.commit(commit)
        self.model.apply(commit)

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.memory.close()
        self._open()

    @rule()
    def lose_power(self) -> None:
        self.disk.restart()
        self.journal.close()
        self.journal = self._new_journal()
        self.memory = MemoryJournal(self.memory_disk)
        self._open()

    @rule()
    def tidy(self) -> None:
        self.journal.tidy()

    @invariant()
    def shows_what_the_model_holds(self) -> None:
        if hasattr(self, "model"):
            assert_same(shown_by(self.journal), self.model.state, "on the simulated disk")
            assert_same(shown_by(self.memory), self.model.state, "in memory")

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.journal.close()
            self.disk.close()

    def _new_journal(self) -> Journal:
        return SqliteJournal("data", vfs=self.disk.name, tuning=SMALL, reserve_bytes=16 * 1024)

    def _open(self) -> None:
        self.epoch += 1
        assert self.journal.open() == self.epoch
        assert self.memory.open() == self.epoch


class PostgresqlMachine(JournalMachine):
    """The same in PostgreSQL. Of its own crashes it knows more than we do: here a broker vanishes,
    and another comes."""

    url = ""

    def _new_journal(self) -> PostgresqlJournal:
        if not hasattr(self, "place"):
            self.place = OnPostgresql(self.url)
        return self.place.journal()

    def teardown(self) -> None:
        if hasattr(self, "place"):
            self.place.leave()
        super().teardown()


def test_in_postgresql(postgresql: PostgresqlServer) -> None:
    class Machine(PostgresqlMachine):
        url = postgresql.url

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=12, stateful_step_count=15, deadline=None)
    )


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
