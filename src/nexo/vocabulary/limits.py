"""Every limit that has a number, in one place, with its reason.

Limits are of three kinds: what a user may ask for, what bounds the broker's memory, and what
keeps one step of work short.
"""

# -- What a user may ask for ------------------------------------------------------------------

NAME_CHARS_MAX = 80  # the SQS limit, so that every queue is reachable from every door
PRIORITY_MAX = 255  # one byte a message
MESSAGE_BYTES_MAX = 1024 * 1024  # the default of a queue's `max_message_bytes`, as on SQS
MESSAGE_BYTES_CEILING = 16 * 1024 * 1024  # the highest `max_message_bytes` a queue may be given
BATCH_MESSAGES_MAX = 100_000  # a batch is one step of work: it must stay short
BATCH_BYTES_MAX = 64 * 1024 * 1024  # and far below the int32 offsets of the columnar layout
POP_MESSAGES_MAX = 10_000
POP_BYTES_MAX = 64 * 1024 * 1024
PEEK_MESSAGES_MAX = 1_000
GROUP_ID_CHARS_MAX = 128
DEDUPLICATION_ID_CHARS_MAX = 128
REASON_CHARS_MAX = 1_024  # longer reasons are cut: they are for people
CONSUMER_CHARS_MAX = 256
ATTEMPTS_MAX = 1_000_000  # the highest `max_attempts`
TIMEOUT_MS_MAX = 30 * 24 * 3_600_000
DELAY_MS_MAX = 10 * 365 * 24 * 3_600_000  # ten years; it must also be shorter than the retention
RETENTION_MS_MAX = 20 * 365 * 24 * 3_600_000
DEPTH_MAX = 10**12
RECEIVE_RATE_MAX = 10**9

# -- Rules ------------------------------------------------------------------------------------

RECEIVE_BURST_MS = 100  # a rate limit lets through what 100 ms allow at once
NOISY_IN_FLIGHT_MIN = 30  # a tenant below this is never noisy (fair queues)
NOISY_SHARE = 0.1  # a tenant above this share of what is in flight is noisy
PRODUCER_RESULTS_KEPT = 64  # a client may have this many unconfirmed pushes
PRODUCERS_MAX = 10_000  # producers remembered by a queue, the longest silent forgotten first
PRODUCER_IDLE_MS = 7 * 24 * 3_600_000  # a Spark query may come back after days
CLAIM_BATCHES_MAX = 64  # batches one consumer may hold unacked
LEASE_BITS = 44  # leases of a boot: 5 years at 100,000 a second; the boot epoch stands above them
SEQUENCE_BITS = 48  # a lane's own counter; the priority stands above it

# -- The shape of memory ----------------------------------------------------------------------

SMALL_PUSH_MESSAGES = 32  # below both of these a push is copied into the open chunk …
SMALL_PUSH_BYTES = 32 * 1024
CHUNK_MESSAGES_MAX = 4_096  # … which closes when it reaches either of these
CHUNK_BYTES_MAX = 256 * 1024
MEMORY_LIMIT_BYTES = 512 * 1024 * 1024  # default of `memory_limit`
READ_AHEAD_CHUNKS = 4  # evicted chunks read back before their turn

# -- The journal and the engine ---------------------------------------------------------------

UNSETTLED_BYTES_MAX = 64 * 1024 * 1024  # what may wait for the disk before pushes wait
RECORD_BYTES_BEFORE_SNAPSHOT = 1024 * 1024  # state rows of a queue before they are folded in
SPARSE_CHUNK_RATIO = 4  # a chunk with fewer live messages than 1/4 is copied forward …
SPARSE_CHUNK_BYTES = 64 * 1024  # … if that frees at least this much
WAITERS_MAX = 100_000  # consumers waiting on one queue
MOVE_MESSAGES = 1_000  # messages moved to another queue in one transaction
INLINE_COMMIT_MS = 2.0  # while commits take less than this they run in the event loop
EVENTS_PENDING_MAX = 100_000  # events kept for the next commit before the oldest are dropped
