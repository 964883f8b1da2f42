"""What the actors of one engine share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.vocabulary.limits import LEASE_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nexo.engine.catalog_actor import CatalogActor
    from nexo.engine.clock import Clock
    from nexo.engine.committer import Committer
    from nexo.engine.desk import Desk
    from nexo.engine.memory import Memory
    from nexo.engine.moves import Mover
    from nexo.engine.queues import Queues
    from nexo.engine.recorder import Recorders
    from nexo.engine.rows import SharedRows
    from nexo.engine.supervisor import Supervisor
    from nexo.engine.topics import Topics
    from nexo.engine.transfers import Transfers
    from nexo.journal.port import Journal
    from nexo.telemetry.meters import Meters
    from nexo.vocabulary.errors import NexoError


class Context:
    """Wired up once by the engine. `refusal` is why nothing new is accepted, or None; those that
    are `out_of_service` refuse everything, by owner."""

    clock: Clock
    journal: Journal
    desk: Desk
    committer: Committer
    memory: Memory
    recorders: Recorders
    meters: Meters
    rows: SharedRows
    row_numbers: Iterator[int]
    epoch: int
    first_lease: int
    refusal: NexoError | None
    out_of_service: dict[int, NexoError]
    supervisor: Supervisor
    catalog: CatalogActor
    queues: Queues
    topics: Topics
    mover: Mover
    transfers: Transfers
    # Of a shard: whether the state is still this process's to give out, and the names that may be
    # in it. A broker that is alone is never asked.
    is_held: Callable[[], bool] | None = None
    check_place: Callable[[str], None] | None = None

    def check_writable(self) -> None:
        if self.refusal is not None:
            raise self.refusal.anew()

    def boot(self, epoch: int) -> None:
        """Lease numbers carry the boot epoch, so a number never stands for two deliveries."""
        self.epoch = epoch
        self.first_lease = epoch << LEASE_BITS | 1
