"""What the actors of one engine share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.vocabulary.limits import LEASE_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nexo.engine.clock import Clock
    from nexo.engine.committer import Committer, Participant
    from nexo.engine.desk import Desk
    from nexo.engine.memory import Memory
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.rows import SharedRows
    from nexo.engine.topic_actor import TopicActor
    from nexo.journal.port import Journal
    from nexo.machine.log import Piece
    from nexo.telemetry.meters import Meters
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.errors import NexoError
    from nexo.vocabulary.events import Event


class Context:
    """Wired up once by the engine. `refusal` is why nothing new is accepted, or None; those that
    are `out_of_service` refuse everything, by owner."""

    clock: Clock
    journal: Journal
    desk: Desk
    committer: Committer
    memory: Memory
    meters: Meters
    rows: SharedRows
    row_numbers: Iterator[int]
    first_lease: int
    refusal: NexoError | None
    out_of_service: dict[int, NexoError]
    guard: Callable[[Participant, Callable[[], None]], None]
    on_doomed: Callable[[QueueActor], None]
    on_events: Callable[[list[Event], bool], None] | None
    check_fed: Callable[[QueueActor | TopicActor], None]
    queues_bound_to: Callable[[int], list[tuple[QueueActor, dict[str, str] | None]]]
    archive: Callable[[QueueActor, Batch, int, int], None]
    archive_kept: Callable[[QueueActor, Piece], None]

    def boot(self, epoch: int) -> None:
        """Lease numbers carry the boot epoch, so a number never stands for two deliveries."""
        self.first_lease = epoch << LEASE_BITS | 1
