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
RECEIVE_WAIT_MS_MAX = 20_000  # the SQS limit of a long poll
TAGS_MAX = 50  # as on SQS
IN_FLIGHT_MAX = 120_000  # what SQS lets a standard queue have in flight
TOKENS_MAX = 10_000  # tokens and access keys of a broker; they are all in memory

# -- Rules ------------------------------------------------------------------------------------

RECEIVE_BURST_MS = 100  # a rate limit lets through what 100 ms allow at once
NOISY_IN_FLIGHT_MIN = 30  # a tenant below this is never noisy (fair queues)
NOISY_SHARE = 0.1  # a tenant above this share of what is in flight is noisy
PRODUCER_RESULTS_KEPT = 64  # a client may have this many unconfirmed pushes
PRODUCERS_MAX = 10_000  # producers remembered by a queue, the longest silent forgotten first
PRODUCER_IDLE_MS = 7 * 24 * 3_600_000  # a Spark query may come back after days
SNAPSHOTS_MAX = 16  # of one queue; each may hold what was in memory when it was taken
ATTEMPTS_REMEMBERED_MAX = 10_000  # receives of a queue that may be asked for again …
ATTEMPTS_REMEMBERED_MS = 300_000  # … for as long as SQS allows
CLAIM_BATCHES_MAX = 64  # batches one consumer may hold unacked
LEASE_BITS = 44  # leases of a boot: 5 years at 100,000 a second; the boot epoch stands above them
SEQUENCE_BITS = 48  # a lane's own counter; the priority stands above it

# -- The shape of memory ----------------------------------------------------------------------

SMALL_PUSH_MESSAGES = 32  # below both of these a push is copied into the open chunk …
SMALL_PUSH_BYTES = 32 * 1024
CHUNK_MESSAGES_MAX = 4_096  # … which closes when it reaches either of these
CHUNK_BYTES_MAX = 256 * 1024
MEMORY_LIMIT_BYTES = 512 * 1024 * 1024  # default of `memory_limit`
GIVEN_BACK_BYTES_MIN = 32 * 1024 * 1024  # less memory is kept for the next backlog
READ_AHEAD_CHUNKS = 256  # chunks read back in one call to the journal, at most …
READ_AHEAD_BYTES = 1024 * 1024  # … while they are no larger than this together, …
READ_AHEAD_SHARE = 32  # … nor than this part of the memory limit: else they push each other out

# -- The journal and the engine ---------------------------------------------------------------

UNSETTLED_BYTES_MAX = 64 * 1024 * 1024  # what may wait for the disk before pushes wait
RECORD_BYTES_BEFORE_SNAPSHOT = 1024 * 1024  # state rows of a queue before they are folded in
SPARSE_CHUNK_RATIO = 4  # a chunk with fewer live messages than 1/4 is copied forward …
SPARSE_CHUNK_BYTES = 64 * 1024  # … if that frees at least this much
COPY_LOOK_CHUNKS = 1_000  # chunks that are looked at for that in one step …
COPY_STEP_CHUNKS = 16  # … and chunks copied in one
LONG_COMMIT_ROWS = 1_000  # a commit that stores or deletes more rows never runs in the event loop
WAITERS_MAX = 100_000  # consumers waiting on one queue
MOVE_MESSAGES = 1_000  # messages moved to another queue in one transaction
UNREADABLE_RETRY_MS = 60_000  # how often what the disk could not give is tried again
DESK_TURN_CALLS = 4  # calls to the journal in one step of the event loop
EXPIRE_STEP_SPANS = 1_000  # runs of messages whose time has come, in one step
SERVE_STEP_PARTS = 1_000  # runs of messages that a queue hands out in one step
ACTOR_FAILURES_MAX = 3  # after so many internal errors of a queue or topic within …
ACTOR_FAILURES_MS = 60_000  # … this long it is out of service …
OUT_OF_SERVICE_MS = 60_000  # … for so long; then it is tried again
COMMIT_OVERDUE_MS = 5_000  # if no commit ends for so long, the broker is not healthy
CLOSE_MS = 5_000  # how long a broker that stops waits for its disk
INLINE_COMMIT_MS = 2.0  # while commits take less than this they run in the event loop
FOLLOWED_TOPICS_MAX = 100_000  # topics that one pattern may stand for
EVENTS_PENDING_MAX = 100_000  # events that wait for a full disk before the oldest are dropped
EVENTS_PAUSE_MS = 20  # between two publications of events: a busy broker has thousands of commits
EVENTS_PUBLISHED_MAX = 10_000  # events in one batch, which is one step of work
EVENTS_RESIDENT_BYTES = 8 * 1024 * 1024  # of `nexo.events`, for those who follow it
EVENTS_RETENTION_MS = 24 * 3_600_000  # default of `events_retention` …
EVENTS_RETENTION_BYTES = 256 * 1024 * 1024  # … and of `events_retention_bytes`

# -- The UDP door -----------------------------------------------------------------------------

UDP_REPLY_BYTES_MAX = 65_507  # the largest datagram that IPv4 carries
UDP_PAYLOAD_BYTES_MAX = 60 * 1024  # a payload must fit a reply with its topic and group around it
UDP_NAME_CHARS_MAX = 256  # of a topic or group as a datagram names it
UDP_ACTION_CHARS_SHOWN = 256  # of an unknown action, in the error that names it
UDP_REF_CHARS_MAX = 64
UDP_NESTING_MAX = 128  # far below what any JSON reader gives up at
UDP_GET_MESSAGES_MAX = 2_000  # more never fit a datagram
UDP_GROUP_MESSAGES = 100  # that a group's `get` takes if it does not say how many
UDP_ACK_IDS_MAX = 2_000
UDP_RETENTION_MESSAGES = 100  # of a topic first named over UDP, as in the original protocol
UDP_TOPICS_MAX = 10_000  # with this many topics in the broker no datagram creates another
UDP_SUBSCRIPTION_IDLE_S = 3_600.0  # an address that is silent for this long is forgotten
UDP_SUBSCRIBERS_MAX = 20_000  # addresses with a subscription
UDP_SUBSCRIPTIONS_MAX = 100  # topics that one address subscribes to
UDP_RATE_PER_S = 100_000  # datagrams a second from one address, on average …
UDP_BURST = 100_000  # … and at once
UDP_RATES_MAX = 20_000  # addresses whose rate is known; beyond, the longest silent is forgotten
UDP_STRANGER_FACTOR = 3  # a reply to an unproven address is at most so many times the request
UDP_COOKIE_S = 600.0  # a cookie proves an address for one to two of these
UDP_UNCONFIRMED_MAX = 50_000  # publishes that wait for the disk before others are refused
UDP_WAITING_MAX = 1_000  # requests that wait for something else, such as a read from disk
UDP_TURN_DATAGRAMS = 1_024  # read in one turn of the event loop, so that other doors get theirs
UDP_TURN_BYTES = 4 * 1024 * 1024
UDP_UNSENT_MAX = 10_000  # replies that the system could not take yet
UDP_BUFFER_BYTES = 16 * 1024 * 1024  # asked of the system for what arrives; it may give less

# -- The admin API ----------------------------------------------------------------------------

ADMIN_BODY_BYTES_MAX = 32 * 1024 * 1024  # a message of the highest size, as base64 in JSON
ADMIN_BODY_S = 60.0  # how long a body may take to arrive
ADMIN_PAGE_MAX = 1_000  # queues, topics, tokens or entries of one answer
ADMIN_PUSH_MESSAGES_MAX = 1_000
ADMIN_SHOWN_BYTES = 64 * 1024  # of each body, unless more is asked for; the rest is cut off
ADMIN_ANSWER_BYTES_MAX = 32 * 1024 * 1024  # of all bodies in one answer
ADMIN_QUERY_FIELDS_MAX = 20

# -- Backups --------------------------------------------------------------------------------------
BACKUP_PIECE_BYTES_MAX = 1024 * 1024  # a copy is fetched in pieces of this size
BACKUP_IDLE_MS = 600_000  # one that nobody asks for any more is forgotten after this long

# -- Metrics --------------------------------------------------------------------------------------
METRICS_QUEUES_MAX = 10_000  # queues with series of their own; the rest is told together
METRICS_HISTOGRAMS_MAX = 100  # the busiest queues, each with histograms of its own
METRICS_TOPICS_MAX = 1_000
