"""Small limits, so that short lives reach what takes thousands of messages otherwise."""

from nexo.machine import chunk, groups, line, log, pop, producers, queue, snapshot
from nexo.vocabulary import limits

NOISY_IN_FLIGHT_MIN = 3
PRODUCER_RESULTS_KEPT = 2
CLAIM_BATCHES_MAX = 3

# Where each limit is looked up, and what it is here.
SMALL = (
    (log, "SMALL_PUSH_MESSAGES", 5),
    (log, "SMALL_PUSH_BYTES", 60),
    (log, "CHUNK_MESSAGES_MAX", 7),
    (log, "CHUNK_BYTES_MAX", 90),
    (log, "CHUNK_ROWS_MAX", 3),
    (chunk, "PACKED_ROWS_MIN", 2),
    (groups, "NOISY_IN_FLIGHT_MIN", NOISY_IN_FLIGHT_MIN),
    (groups, "GROUP_RUNS_LAID", 2),
    (groups, "SORTED_WITH_PUSH", 2),
    (line, "ROW_BLOCK_SPANS", 2),
    (producers, "PRODUCER_RESULTS_KEPT", PRODUCER_RESULTS_KEPT),
    *[(module, "PIECE_BITS", 2) for module in (chunk, pop, queue, snapshot, limits)],
    (limits, "CLAIM_BATCHES_MAX", CLAIM_BATCHES_MAX),
    (limits, "SORTED_STEP_MESSAGES", 2),
)
