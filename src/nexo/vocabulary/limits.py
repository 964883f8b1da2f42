"""Every limit that has a number, in one place, with its reason.

Limits are of three kinds: what a user may ask for, what bounds the broker's memory, and what
keeps one step of work short.
"""

# -- What a user may ask for ------------------------------------------------------------------

NAME_CHARS_MAX = 80  # the SQS limit, so that every queue is reachable from every door
FULL_NAME_CHARS_MAX = 255  # a name with its account and region, or of an archive; one byte says it
PATTERN_CHARS_MAX = 256  # of a pattern of topic names
PRIORITY_MAX = 255  # one byte a message
MESSAGE_BYTES_MAX = 1024 * 1024  # the default of a queue's `max_message_bytes`, as on SQS
MESSAGE_BYTES_CEILING = 16 * 1024 * 1024  # the highest `max_message_bytes` a queue may be given
BATCH_MESSAGES_MAX = 100_000  # a batch is one step of work: it must stay short
BATCH_BYTES_MAX = 64 * 1024 * 1024  # and far below the int32 offsets of the columnar layout
POP_MESSAGES_MAX = 10_000
POP_BYTES_MAX = 64 * 1024 * 1024
PEEK_MESSAGES_MAX = 1_000
MESSAGE_ID_CHARS_MAX = 64  # of what is taken for one; ids have 36
GROUP_ID_CHARS_MAX = 128
DEDUPLICATION_ID_CHARS_MAX = 128
REASON_CHARS_MAX = 1_024  # longer reasons are cut: they are for people
CONSUMER_CHARS_MAX = 256
NODE_CHARS_MAX = 63  # of the name of a node, as of a host
PRODUCER_CHARS_MAX = 256
PERMISSION_CHARS_MAX = 512  # a pattern and the actions that it allows
FILTER_ATTRIBUTES_MAX = 50  # that a binding asks for, each compared for every message …
FILTER_CHARS_MAX = 1_024  # … and their names and values
ATTEMPTS_MAX = 1_000_000  # the highest `max_attempts`
TIMEOUT_MS_MAX = 30 * 24 * 3_600_000  # of a lease, whether its queue, a pop or a claim says it
WAIT_MS_MAX = 24 * 3_600_000  # that one request waits; who wants more asks again
TIME_MS_MAX = 2**53  # a moment: far beyond the year 9999, and a whole number in every language
INTEGER_MAX = 2**63 - 1  # offsets, leases, numbers: what a database and a JVM hold too
DELAY_MS_MAX = 10 * 365 * 24 * 3_600_000  # ten years; it must also be shorter than the retention
RETENTION_MS_MAX = 20 * 365 * 24 * 3_600_000
RETENTION_BYTES_MAX = 2**60  # of a topic
DEPTH_MAX = 10**12
BACKOFF_FACTOR_MAX = 1_000
RECEIVE_RATE_MAX = 10**9
RECEIVE_WAIT_MS_MAX = 20_000  # the SQS limit of a long poll
TAGS_MAX = 50  # of a queue or topic, as on SQS …
TAG_KEY_CHARS_MAX = 128  # … with keys …
TAG_VALUE_CHARS_MAX = 256  # … and values as long as there
AWS_SETTINGS_MAX = 32  # attributes of SQS or SNS kept for those who ask; SQS has about 20 …
AWS_SETTINGS_BYTES_MAX = 64 * 1024  # … and their names and texts together: policies are long
IN_FLIGHT_MAX = 120_000  # what SQS lets a standard queue have in flight
QUEUES_MAX = 250_000  # of a broker, aside from dead-letter queues that it makes itself
TOPICS_MAX = 250_000
BINDINGS_MAX = 250_000
TOKENS_MAX = 10_000  # tokens and access keys of a broker; they are all in memory

# -- Rules ------------------------------------------------------------------------------------

RECEIVE_BURST_MS = 100  # a rate limit lets through what 100 ms allow at once
NOISY_IN_FLIGHT_MIN = 30  # a tenant below this is never noisy (fair queues)
NOISY_SHARE = 0.1  # a tenant above this share of what is in flight is noisy
DEDUPLICATION_KEYS_MAX = 10_000_000  # of a queue, about 2 GB; 33,000 a second in five minutes
TOPIC_DEDUPLICATION_MS = 300_000  # how long a topic knows a message, as on SNS
DEDUPLICATION_KEYS_FORGOTTEN = 4_000  # dropped in one step once their window is over
PRODUCER_NUMBER_MAX = 2**64 - 1  # what a frame has room for
PRODUCER_RESULTS_KEPT = 64  # a client may have this many unconfirmed pushes
PRODUCERS_MAX = 10_000  # producers remembered by a queue, the longest silent forgotten first
PRODUCERS_FORGOTTEN = 2  # with each push at most: more than come …
PRODUCERS_PASSED_OVER = 16  # … and how many that are not to be forgotten it looks past
PRODUCER_IDLE_MS = 7 * 24 * 3_600_000  # a Spark query may come back after days
VIEWS_MAX = 16  # of one queue; each may hold what was in memory when it was taken
VIEW_IDLE_MS = 3_600_000  # a view that is not read to its end is kept this long: a slow query …
VIEW_READ_IDLE_MS = 600_000  # … and one that was, in case that a task of Spark has to run again
VIEW_SCANS_ENDED = 1_000  # scans of a queue whose view is over, so that none gets a second one
PEEK_HEAD_BYTES = 240  # of each body, where many messages are shown at once
ATTEMPTS_REMEMBERED_MAX = 10_000  # receives of a queue that may be asked for again …
ATTEMPTS_REMEMBERED_MS = 300_000  # … for as long as SQS allows
READ_RUNS_MAX = 2_000  # runs of messages (often a push each) that one claim or read takes: a step
CLAIM_BATCHES_MAX = 64  # batches one consumer may hold unacked
CLAIM_CONSUMERS_MAX = 10_000  # streaming queries that one queue remembers …
CLAIM_CONSUMER_IDLE_MS = 30 * 24 * 3_600_000  # … for so long, if they hold nothing
CLAIM_SEEN_MS = 24 * 3_600_000  # how often it is noted that one which gets nothing still asks
LEASE_BITS = 44  # leases of a boot: 5 years at 100,000 a second; the boot epoch stands above them
POP_RUNS_MAX = 1_000  # runs of messages that one pop takes: it may get fewer messages than it asks
SWEPT_AT_ONCE = 1_000  # with so many in flight outdated deadlines are dropped in one step; else …
DEADLINES_SWEPT = 4  # … so many are looked at with each deadline that comes
SEQUENCE_BITS = 48  # a lane's own counter; the priority stands above it

# -- The shape of memory ----------------------------------------------------------------------

SMALL_PUSH_MESSAGES = 32  # below both of these a push is copied into the open chunk …
SMALL_PUSH_BYTES = 32 * 1024
CHUNK_MESSAGES_MAX = 4_096  # … which closes when it reaches either of these
CHUNK_BYTES_MAX = 256 * 1024
ROW_BLOCK_SPANS = 256  # spans in line that lie in one list: what is moved when one comes between
GROUP_RUNS_LAID = 32  # runs of a group that become spans at once when their turn comes near
PIECE_BITS = 10  # a chunk is looked through in pieces of 1,024 messages …
PIECE_LEASES_MAX = 2_048  # … each with its leases, of which no more than half can be living
CHUNK_ROWS_MAX = 512  # … or has this many rows, each of which is a read when it comes back
SHARED_CHUNK_ROWS_MAX = 32  # … or this many, of a topic: if one is unreadable, all stand aside
PACKED_ROWS_MIN = 8  # fewer rows of a full chunk are not worth packing
MEMORY_LIMIT_BYTES = 512 * 1024 * 1024  # default of `memory_limit`
CLOSED_EARLY_BYTES_MIN = 4 * 1024  # an open chunk is closed early for its memory from this size on
PAYLOAD_SHARE_MIN = 4  # payloads may always have a fourth of it, whatever else is in memory
COUNTED_NOTES = 64  # commits of queues and topics between two looks at what else that is
GIVEN_BACK_BYTES_MIN = 32 * 1024 * 1024  # less memory is kept for the next backlog
EVICTION_SPARED_MAX = 1_000  # chunks in a row that cannot leave: the rest is not looked at then
READ_AHEAD_CHUNKS = 256  # chunks read back in one call to the journal, at most …
READ_AHEAD_BYTES = 1024 * 1024  # … while they are no larger than this together, …
READ_AHEAD_SHARE = 32  # … nor than this part of the memory limit: else they push each other out
READ_CALL_ROWS = 256  # rows that one call to the journal reads: about 5 ms
RECENT_ROWS_SHARE = 8  # of the memory limit, for rows of which more is wanted soon

# -- The journal and the engine ---------------------------------------------------------------

UNSETTLED_BYTES_MAX = 64 * 1024 * 1024  # what may wait for the disk before pushes wait
RECORD_BYTES_BEFORE_SNAPSHOT = 1024 * 1024  # records of the catalog before they are folded in
CATALOG_STEP_DEFINITIONS = 500  # encoded in one step of a snapshot: about 1 ms
UNFOLDED_BYTES_MAX = 512 * 1024  # records beyond the snapshots, of all owners: some 20,000 changes
SNAPSHOT_STEP_ENTRIES = 1_000  # that snapshots take down in one commit: about 3 ms
SNAPSHOT_BYTES_MIN = 256  # a smaller snapshot counts as this much: it takes a row all the same
SPARSE_CHUNK_RATIO = 4  # a chunk with fewer live messages than 1/4 is copied forward …
SPARSE_CHUNK_BYTES = 64 * 1024  # … if that frees at least this much
CLOCK_STEP_MS = 5_000  # a clock that is off by less is none of an operator's concern
COPY_LOOK_CHUNKS = 1_000  # chunks that are looked at for that in one step …
COPY_STEP_CHUNKS = 16  # … and chunks copied in one
LONG_COMMIT_ROWS = 250  # a commit that stores or deletes more rows never runs in the event loop
WAITERS_MAX = 100_000  # consumers waiting on one queue
MOVE_MESSAGES = 1_000  # messages moved to another queue in one transaction …
MOVE_RUNS = 200  # … if they lie in no more runs than this
TRANSFER_MESSAGES = 1_000  # messages that go to another shard in one push …
TRANSFER_RUNS = 200  # … in no more runs than this …
TRANSFER_BYTES = 4 * 1024 * 1024  # … and of no more bytes, unless one message is larger
TRANSFERS_AT_ONCE = 16  # pushes that a node has under way to the shards of another
TRANSFER_AGAIN_MS = 50  # after a push that failed, twice as long after each that follows …
TRANSFER_AGAIN_MS_MAX = 5_000  # … up to this: about what a failover takes
TRANSFER_GONE_MS = 5_000  # how often a target that was deleted is looked for
REDRIVES_KEPT = 1_000  # ended redrives that can still be asked about
REDRIVE_BURST_MS = 100  # a rate is kept by moving what this long allows, then waiting
SEARCH_STEP_MESSAGES = 1_000  # that a search looks at in one step: about 3 ms …
SEARCH_STEP_RUNS = 500  # … in no more runs than this …
SEARCH_STEP_BYTES = 4 * 1024 * 1024  # … and of no more bytes
SEARCH_CALL_MESSAGES = 200_000  # looked at before an answer: about a second; the rest is asked for
SEARCH_ANSWER_BYTES = 16 * 1024 * 1024  # of bodies in one answer
SEARCH_MESSAGES_MAX = 1_000  # shown in one answer
SEARCH_TEXT_CHARS_MAX = 1_024
CHOSEN_IDS_MAX = 10_000  # named in one request
REASON_GROUPS_MAX = 1_000  # reasons that are told apart; those beyond are counted together
ACK_RATE_WINDOW_MS = 10_000  # over which the acks of a consumer are counted
CONSUMER_STUCK_MS = 60_000  # one that holds messages and acks none for this long is stuck
READ_RETRY_MS = 200  # a read that failed is tried again, while someone waits for it
UNREADABLE_RETRY_MS = 60_000  # how often what the disk could not give is tried again
DESK_TURN_CALLS = 4  # calls to the journal in one step of the event loop
DUE_STEP_SPANS = 500  # runs of messages whose time has come, in one step
GIVE_BACK_STEP_SPANS = 500  # runs of messages that consumers who leave give back in one step
UNWRITTEN_CHANGES_MAX = 2_000  # of a queue, before what time brings, who leaves and who waits for
# messages wait for a commit: to write down all that has come until then is one step
WAITERS_TOLD = 500  # consumers that are told in one step that their queue is gone
SORTED_WITH_PUSH = 32  # messages of a push that are given to their groups with it; more of them …
SORTED_STEP_MESSAGES = 3_000  # … when they are on disk, so many in one step: 6 ms, if all differ
PURGED_STEP_THINGS = 4_000  # of what a purge has left, that are taken apart in one step
SERVE_STEP_PARTS = 500  # runs of messages that a queue hands out in one step: 10 ms, if each is for
# another consumer
ACTOR_FAILURES_MAX = 3  # after so many internal errors of a queue or topic within …
ACTOR_FAILURES_MS = 60_000  # … this long it is out of service …
OUT_OF_SERVICE_MS = 60_000  # … for so long; then it is tried again
DISK_PROBE_MS = 1_000  # how often a failed or full disk is tried again
TIDY_MS = 1_000  # how often idle work is looked for …
TIDY_AGAIN_MS = 10  # … and how soon after a step that left more
TIMER_MS_MAX = 24 * 3_600_000  # an event loop takes no arbitrary distance; a timer is set again
COMMIT_OVERDUE_MS = 5_000  # if no commit ends for so long, the broker is not healthy
CLOSE_MS = 5_000  # how long a broker that stops waits for its disk
LAZY_COMMIT_MS = 50  # deliveries alone are written after this long
POSTGRESQL_CONNECT_S = 5  # for a connection to be made, of each host in the URL
POSTGRESQL_SILENT_S = 10  # after which a server or a broker that says nothing counts as gone
POSTGRESQL_LOCK_S = 2.0  # for the server to notice that the broker before this one has ended
HOST_NAME_CHARS_MAX = 253  # of the whole name, as DNS has it (RFC 1035)
CLUSTER_LEASE_S = 5  # a node that was not heard of for so long has lost its shards
CLUSTER_MARGIN_S = 0.5  # by which a node believes less than that: clocks do not run alike
CLUSTER_RENEW_S = 1.0  # how often it is heard of
CLUSTER_SPREAD_S = 6.0  # for all nodes to know a new token: more than the lease of a silent one
CLUSTER_HEARTBEAT_MS = 2_000  # of a node, at most: silent for three of them, its lease is over
CLUSTER_JOIN_S = 8.0  # for the lease of a node of the same name to end, which was killed
TRANSPLANT_ROWS = 64  # rows of a stopped broker that are read at once to go into a cluster …
TRANSPLANT_BYTES = 8 * 1024 * 1024  # … and the payload of a commit there
CLUSTER_FOLLOW_WAIT_MS = 20_000  # that a node waits for news of another, then asks again
CLUSTER_FOLLOWED_MAX = 64  # answers of other nodes that a connection keeps for who asks again
CLUSTER_ROUTE_S = 15.0  # how long a call waits for the shard that it is for to have an owner
CLUSTER_CONNECT_S = 3.0  # to another node, for who asks it: then it counts as unreachable
CLUSTER_ASKED_S = 2.0  # for the figures of another node: who looks is not to wait for a dead one
JOURNAL_USAGE_S = 2.0  # for its size: metrics and pages are told without it while it is away
CLUSTER_REDIRECT_FRAMES = 32  # of a client, at least, before it is told to go to another node …
CLUSTER_REDIRECT_SHARE = 0.75  # … if so many of them were for that one …
CLUSTER_REDIRECT_WINDOW_S = 1.0  # … for so long at least: a burst is no habit
CLUSTER_REDIRECT_AGAIN_S = 10.0  # until it is told again: it may not be able to go there
CLUSTER_NAMES_KEPT = 10_000  # names whose shard is remembered: a hash costs as much as a call
CLUSTER_AGAIN_S = 0.1  # until nodes are asked again that knew different things about who has what
CLUSTER_FRESH_S = 0.7  # what is older is asked for anew when a page shows it: less than its tick
CLUSTER_REST_TIMES = 10  # and rest so often as long as it took, of very many queues
CLUSTER_PATIENCE_S = 2.0  # for a node to tell a page what it has: others are shown without it
CLUSTER_LOOKED_S = 30.0  # after the last look at what other nodes have it is let go of
CLUSTER_TOLD_MAX = 2_000  # queues that a node tells another of at once: some 1 MB
CLUSTER_MOVES_KEPT = 100  # the latest moves of shards that a node remembers to tell of
CLUSTER_SHARDS_MAX = 4_096  # each is an engine somewhere, with a row to be read every second
CLUSTER_HASHES_MAX = 50_000  # 50 ms of them: a plan that needs more would hold up the event loop
COMMIT_TURNS = 2  # of the event loop, from the first change to its commit: more come along
JOINING_TURNS = 4  # of the event loop: from the end of a commit to the next of who waited for it
TRACK_SHARDS_MIN = 16  # fewer cost more as a transaction of their own than they save by not waiting
TRACK_QUICK_MS = 2.0  # while transactions take less than this, half of many shards go at a time
POSTGRESQL_IDLE_MS = 2_000  # a node that leaves a transaction open for longer was stopped in it
POSTGRESQL_AGAIN_S = 0.5  # many shards have lost one connection: one of them tries, not each
INLINE_COMMIT_MS = 2.0  # while commits take less than this they run in the event loop …
INLINE_COMMIT_BYTES = 2 * 1024 * 1024  # … but none that is larger than this
FOLLOWED_TOPICS_MAX = 100_000  # topics that one pattern may stand for
FOLLOWED_TOPICS_STEP = 10_000  # of them looked at in one step, which takes a few milliseconds
FOLLOWED_MATCHES_KEPT = 200_000  # topics of patterns that are remembered: about 20 MB
FOLLOWERS_MAX = 100_000  # requests of a broker that wait for the topics of a pattern
LIST_STEP_NAMES = 100  # queues or topics that a list looks at before others get their turn
DEFINITIONS_STEP = 250  # that are imported or exported before others get their turn
LIST_PAGE_MAX = 1_000  # queues or topics that a client is told of in one answer
RESERVE_BYTES = 32 * 1024 * 1024  # kept back on the disk, for acks when it is full
VERIFIED_PROBLEMS_MAX = 100  # SQLite's own check stops here: the file is lost anyway
EVENTS_PENDING_MAX = 100_000  # events that wait for a full disk before the oldest are dropped
EVENTS_PAUSE_MS = 20  # between two publications of events: a busy broker has thousands of commits
EVENTS_SHARD_PAUSE_MS = 100  # of a shard: many shards have few commits each, and each pays a row …
EVENTS_SHARD_DUE_MS = 200  # … so they wait longer for one that comes anyway
EVENTS_PUBLISHED_MAX = 2_500  # events in one commit: telling them is a part of its step
EVENTS_RESIDENT_BYTES = 8 * 1024 * 1024  # of `nexo.events`, for those who follow it
EVENTS_RETENTION_MS = 24 * 3_600_000  # default of `events_retention` …
EVENTS_RETENTION_BYTES = 256 * 1024 * 1024  # … and of `events_retention_bytes`
LIFE_EVENTS = 20_000  # events that are looked at around a time for the life of a message
LIFE_GONE_EVENTS = 100_000  # of a message that is gone and cannot say when: the newest
LIFE_EVENTS_SHOWN_MAX = 200  # of the life of one message
LIFE_STEP_EVENTS = 2_000  # events that are looked at before others get their turn
FILTER_POLICIES_KEPT = 4_096  # of those that are compiled: a broker has a few of them

# -- The RPC door -----------------------------------------------------------------------------

RPC_CONNECTIONS_MAX = 20_000
RPC_GREETING_BYTES_MAX = 16 * 1024  # of the first frame: nobody knows yet who sends it
RPC_GREETING_MS = 10_000  # how long a connection may take for it
RPC_CLOSING_MS = 10_000  # how long a client may take to read why its connection ends
RPC_REQUESTS_MAX = 10_000  # unanswered requests of a connection before it is not read from
RPC_TURN_MS = 5  # of the frames of one read, of which there may be thousands; then others are next
RPC_UNREAD_BYTES_MAX = 4 * 1024 * 1024  # a client that leaves more unread is waited for
RPC_CALL_BYTES_MAX = 1024 * 1024  # of a named call, unless it carries messages or definitions
RPC_CALL_CHARS_MAX = 64  # of its name
RPC_DELIVERY_BYTES_MAX = 4 * 1024 * 1024  # then a slow client is noticed before the next
SUBSCRIPTIONS_MAX = 1_000  # of one connection
SUBSCRIPTION_NUMBER_MAX = 2**32 - 1  # it stands in the head of each delivery
PREFETCH_MAX = 100_000  # messages that a subscription has room for
LINGER_MS_MAX = 1_000  # how long it may ask to gather what comes …
LINGER_AFTER = 8  # … which begins after so many deliveries closer than that …
LINGER_AFTER_MAX = 256  # … and after so many where it has brought nothing so far
RECEIPT_RANGES_MAX = 100_000  # of one ack, nack or extension …
RECEIPT_RANGES_STEP = 1_000  # … of which so many are applied in one step
FRAME_BYTES_MAX = BATCH_BYTES_MAX + 16 * 1024 * 1024  # the largest batch with all its columns
AHEAD_KEPT_MS = 1_000  # what was sent ahead is kept for a client that was cut off
JOINED_BYTES_MAX = 64 * 1024  # of frames in one write; above it a copy costs more than pieces do
HEARTBEATS_MISSED_MAX = 3  # before the other side of a connection counts as gone
CLAIM_WAIT_MS_MAX = 20_000  # that a claim waits for messages: as long as a pop waits on SQS

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
UDP_ERRORS_MAX = 50  # told to an address in a row for what is no request: a loop ends here …
UDP_ERRORS_SILENCE_S = 10.0  # … and a client that was silent for this long is told again
UDP_KNOWN_S = 600.0  # for this long after a request an address is known
UDP_STRANGER_FACTOR = 3  # a reply to an unproven address is at most so many times the request
UDP_COOKIE_S = 600.0  # a cookie proves an address for one to two of these
UDP_UNCONFIRMED_MAX = 50_000  # publishes that wait for the disk before others are refused
UDP_WAITING_MAX = 1_000  # requests that wait for something else, such as a read from disk
UDP_TURN_DATAGRAMS = 1_024  # read in one turn of the event loop, so that other doors get theirs
UDP_TURN_BYTES = 4 * 1024 * 1024
UDP_UNSENT_MAX = 10_000  # replies that the system could not take yet
UDP_BUFFER_BYTES = 16 * 1024 * 1024  # asked of the system for what arrives; it may give less

# -- HTTP -------------------------------------------------------------------------------------
# Who has not shown a token yet gets little: of time, of memory and of work.

HTTP_CONNECTIONS_MAX = 20_000
HTTP_DESCRIPTORS_SHARE = 0.75  # of the file descriptors that are not kept back; the rest is for RPC
HTTP_HEAD_BYTES_MAX = 64 * 1024  # a queue's URL, a signature and a cookie are a tenth of this
HTTP_HEADERS_MAX = 200
HTTP_QUERY_FIELDS_MAX = 2_000  # of a signed query; as many as a form of SQS may have
HTTP_HEAD_S = 20.0  # how long the head of a request may take, from its first byte or the connection
HTTP_BODY_S = 60.0  # how long any body may take as a whole; apps that expect little allow less
HTTP_ARRIVING_BYTES_MAX = 256 * 1024 * 1024  # of all bodies that are being sent, together
HTTP_IDLE_S = 75.0  # an idle connection is closed after this long; SDKs open another
HTTP_UNREAD_S = 30.0  # how long a client may leave an answer unread
HTTP_LEAVING_S = 2.0  # how long a refused client may go on sending before it is cut off: who is cut
# off at once loses the answer, and tries again
HTTP_STALLED_S = 1.0  # when connections run out, who has kept us waiting for this long goes first
HTTP_TOLD_S = 10.0  # between two lines in the log about connections that were refused
HTTP_BODY_AHEAD_BYTES = 64 * 1024  # of a body that nobody has taken yet; then no more is read
HTTP_STEP_CONNECTIONS = 64  # whose requests begin in one step: 2 ms
HTTP_TURN_REQUESTS = 16  # of one connection in a row; then others get their turn: it may send
# thousands at once
HTTP_JSON_PLAIN_BYTES = 64 * 1024  # what is shorter cannot hold enough values to matter

SQS_BODY_BYTES_MAX = 8 * 1024 * 1024  # a message of 1 MiB is up to six times as long in JSON …
SQS_FORM_BYTES_MAX = 4 * 1024 * 1024  # … and three times in a form; a batch is no longer
SQS_FORM_FIELDS_MAX = 2_000  # ten entries with ten attributes each are 500
SQS_POLLS_APART_MS = 50  # long polls in which nothing came end at such moments, together
SQS_RECEIVES_STEP = 64  # of those that came in one turn: 2 ms …
SQS_RECEIVES_STEP_BYTES = 256 * 1024  # … and what they may bring; a larger one is done alone
SQS_BODY_S = 20.0
SQS_JSON_VALUES_MAX = 20_000  # ten entries with ten attributes each are 1,000
SQS_QUEUE_URL_CHARS_REMEMBERED = 512  # longer ones are read each time
SQS_CLIENTS_MAX = 1_000  # told in the list of consumers; anybody can bring about more
SQS_CLIENT_QUEUES_MAX = 100  # of one of them
SQS_CLIENT_CHARS_MAX = 200  # of the name of its software
SQS_CLIENT_SILENT_MS = 300_000  # one that has not called for this long has gone
SQS_TRACE_CHARS_MAX = 1_024  # of a trace header; a real one has about 100
SYSTEM_ATTRIBUTES_BYTES_FREE = 2 * 1_024  # a trace header and a sender: they count for nothing
SNS_MESSAGE_BYTES_MAX = 256 * 1024  # as on AWS: of a message, and of all in a batch
SNS_RETENTION_MS = 3_600_000  # what a topic made by SNS keeps for those who read it natively: …
SNS_RETENTION_BYTES = 64 * 1024 * 1024  # … SNS itself keeps nothing, so it is not to fill a disk
SQS_TOLD_CHARS_MAX = 1_000  # of what a request said, in the error that names it
SQS_POLICY_DEPTH_MAX = 16  # levels of a policy; real ones have five
HTTP_GOODBYE_S = 3  # requests under way may take this long when the broker stops
HTTP_HANDSHAKE_S = 10.0  # of TLS; until it is done nobody knows of the connection
HTTP_BACKLOG = 1_024  # connections that the system takes while we are busy
HTTP_ROUND_S = 1.0  # how often the date in answers is written anew, and who is late is sent away
HTTP_ONE_PART_BYTES = 64 * 1024  # a longer body is written for itself: to copy it would cost more
HTTP_ORIGIN_BYTES_MAX = 300  # a name has at most 253 characters; strangers fill no memory
HTTP_FORM_DEPTH_MAX = 8  # levels in the name of a form's field; a batch of SNS has eight

# -- The process ------------------------------------------------------------------------------

DESCRIPTORS_MAX = 1_048_576  # the limit is raised to the hard one, which may be absurdly high
COLLECTED_OBJECTS_MAX = 10_000  # that a search for garbage looks at again and again: about 2 ms
DESCRIPTORS_RESERVED = 64  # kept back from connections, for the journal, backups and logs
MMAP_THRESHOLD_BYTES = 512 * 1024  # of a buffer whose memory is kept: above what a socket brings
GOODBYE_S = 5.0  # how long clients may take to hang up when the broker stops
SECURITY_ROUND_S = 1.0  # how often expiries and the files of the certificate are looked at
DISK_WATCH_S = 0.5  # how often the broker is asked whether its disk is well
STOP_S = 20.0  # from the signal to the end, at most; the systemd unit allows a little more
LAST_WORDS_S = 1.0  # for the log: whoever reads it may be what is stuck

# -- The admin API ----------------------------------------------------------------------------

ADMIN_BODY_BYTES_MAX = 32 * 1024 * 1024  # a message of the highest size, as base64 in JSON
ADMIN_BODY_S = 60.0  # how long a body may take to arrive
ADMIN_PAGE_MAX = 1_000  # queues, topics, tokens or entries of one answer
ADMIN_PUSH_MESSAGES_MAX = 1_000
ADMIN_SHOWN_BYTES = 64 * 1024  # of each body, unless more is asked for; the rest is cut off
ADMIN_ANSWER_BYTES_MAX = 32 * 1024 * 1024  # of all bodies in one answer
ADMIN_QUERY_FIELDS_MAX = 20
FILTER_POLICY_BYTES_MAX = 256 * 1024  # as on SNS, like the next two
FILTER_POLICY_KEYS_MAX = 5
FILTER_POLICY_COMBINATIONS_MAX = 150
FILTER_POLICY_DEPTH_MAX = 20  # levels of a policy on bodies; with depth the combinations grow
FILTERED_ELEMENTS_MAX = 20_000  # of lists in a body, looked at for all policies: about 3 ms
# What one policy may take of one message, and what is done before others get their turn, in units
# of about 50 ns: 10 ms. That is 50,000 plain comparisons, or 1,600 of addresses.
FILTERED_WORK_MAX = 200_000
FILTERED_STEP_WORK = 200_000
WHERE_MAX = 20  # attributes that a binding asks for
WHERE_NAME_CHARS_MAX = 256
WHERE_VALUE_CHARS_MAX = 1_024
ADMIN_PERMISSION_CHARS_MAX = 256  # a pattern with all its actions
DEFINITIONS_MAX = 1_000_000  # queues, topics or bindings of one document; its bytes are fewer
ADMIN_JSON_VALUES_MAX = 200_000  # in one request: 1,000 messages with 200 values each
ADMIN_TURN_BYTES = 256 * 1024  # that are looked at before others get their turn
ADMIN_MESSAGE_BYTES = 1024  # what a message costs in an answer besides its body
ADMIN_TOPIC_CHARS_MAX = 160  # the name of an archive is longer than that of its queue
ADMIN_STEP_QUEUES = 1_000  # that are summed before others get their turn
ADMIN_TURN_QUEUES = 100  # that are described before others get their turn

# -- Backups --------------------------------------------------------------------------------------
BACKUP_PIECE_BYTES_MAX = 1024 * 1024  # a copy is fetched in pieces of this size
BACKUP_SILENCE_MS = 5_000  # after this long without a question another may be begun in its place
BACKUP_IDLE_MS = 60_000  # one that nobody asks for any more is forgotten after this long
BACKUP_READ_BYTES = 4 * 1024 * 1024  # of a file that is copied at once
BACKUP_STEP_PAGES = 128  # copied in one step: about a millisecond

# -- Metrics --------------------------------------------------------------------------------------
METRICS_QUEUES_MAX = 10_000  # queues with series of their own; the rest is told together
METRICS_HISTOGRAMS_MAX = 100  # the busiest queues, each with histograms of its own
METRICS_TOPICS_MAX = 1_000
METRICS_CLAIMS_MAX = 1_000  # consumers of Spark that hold messages, each with series of its own
LOOP_TICK_S = 0.25  # how often the event loop is asked how late it is
METERS_COMMITS = 64  # commits whose events are counted at once …
METERS_EVENTS = 1_000  # … or fewer that have so many of them, which is a step of work by itself
METRICS_STEP_QUEUES = 250  # queues that are rendered before others get their turn …
METRICS_STEP_LINES = 2_000  # … and lines that are put together
METRICS_RANKED_STEP = 250  # queues by which those that are shown are found anew

# -- Access ------------------------------------------------------------------------------------

AUDIT_FILE_BYTES_MAX = 16 * 1024 * 1024  # of one file of the audit log; then the next is begun …
AUDIT_FILES_KEPT = 5  # … and so many are kept besides it
AUDIT_ENTRIES_IN_MEMORY = 1_000  # where there is no data directory
AUDIT_RESOURCE_CHARS_MAX = 200  # names come from strangers too
AUDIT_REFUSED_WINDOW_MS = 60_000  # within which refusals that are alike …
AUDIT_REFUSED_LINES_MAX = 10  # … have this many lines of their own
AUDIT_REFUSED_KINDS_MAX = 100  # that are told apart within a window; beyond, they are told together
AUDIT_TAIL_BYTES = 64 * 1024  # where the last entry of a file is: one has a few hundred bytes
ACCESS_DECISIONS_MAX = 10_000  # that are remembered of one caller
ACCESS_NAME_CHARS_REMEMBERED = 256  # strangers must not fill the memory with long names
ACCESS_FAILURES_MAX = 10  # wrong tokens of one address within …
ACCESS_FAILURES_MS = 60_000  # … this long; then it has to wait
ACCESS_ADDRESSES_MAX = 10_000  # that are remembered; beyond, the one that began first is forgotten
PERMISSION_PATTERN_CHARS_MAX = 160  # a name with its account and region, and some wildcards
TOKEN_PERMISSIONS_MAX = 100  # of one token: each is looked at when a name is first used
TOKEN_CHARS_MAX = 128  # what is longer is not looked at
SIGNED_CONSTANTS_MAX = 1024  # what is remembered of clients that sign alike all day
SIGNED_CONSTANT_CHARS_MAX = 1024  # longer ones are read each time: strangers fill no memory
PRESIGNED_URL_S_MAX = 7 * 24 * 3600  # the longest life of a presigned URL, as on AWS
SIGNATURE_SKEW_MS = 15 * 60_000  # how far the clock of a client that signs may be off, as on AWS
SIGNING_KEYS_MAX = 1024  # a key is of one secret, day, region and service
SIGNED_CREDENTIAL_BYTES_MAX = 512  # an access key id of 128 characters, twice encoded, and a scope

# -- The console -------------------------------------------------------------------------------

CONSOLE_LOGIN_BYTES_MAX = 8 * 1024  # a token, a proof and the address of a page
CONSOLE_LOGIN_S = 10.0
CONSOLE_FORM_BYTES_MAX = 1024 * 1024  # settings with all tags, or a selection of 1,000 messages
CONSOLE_MESSAGE_FORM_BYTES_MAX = 49 * 1024 * 1024  # a body of the highest size, each byte as %00
CONSOLE_FORM_FIELDS_MAX = 2_000  # a selection of messages and some more
CONSOLE_QUERY_FIELDS_MAX = 50
CONSOLE_STREAMS_MAX = 200  # open pages; one more takes the place of the longest open
CONSOLE_DIGITS_MAX = 20  # of a number in an address: more are as good as these
CONSOLE_ROWS_SHOWN = 100  # queues on one page of their table
CONSOLE_CHOSEN_MS = 2_000  # for this long an open page takes the order of its table for granted
CONSOLE_FILTER_CHARS_MAX = 100  # of the text that names are searched by
CONSOLE_SORTED_MAX = 5_000  # rows that can be paged through by a figure; by name all can
CONSOLE_PEEKED = 20  # messages on the page of a queue, unless more are asked for
CONSOLE_FOLLOWED_MAX = 100  # a longer list of messages stays as it was when the page was opened
CONSOLE_LIST_BYTES_MAX = 16 * 1024 * 1024  # of bodies that a list of messages looks at
CONSOLE_LIST_MS = 2_000  # between two looks whether a list of messages has changed
CONSOLE_CONSUMERS_SHOWN = 100  # those that need a look first: a row takes about 0.1 ms
CONSOLE_LETTERS_SHOWN = 50  # dead letters on one page …
CONSOLE_REASONS_LOOKED = 20_000  # letters that are looked at for the list of reasons: about 60 ms
CONSOLE_REASONS_SHOWN = 12  # … the most frequent reasons …
CONSOLE_TASKS_SHOWN = 5  # … and the latest redrives
CONSOLE_TOPICS_SHOWN = 500  # topics on one page
CONSOLE_TOPIC_MESSAGES_SHOWN = 20  # of one topic
CONSOLE_TAIL_READ_MAX = 50  # messages that a tick of a tail shows; the page counts the others
CONSOLE_TAIL_BYTES_MAX = 1024 * 1024  # that such a tick reads
CONSOLE_POLICY_CHARS_SHOWN = 200  # of a filter policy, which may be very long
CONSOLE_NOTICES_MAX = 200  # that wait for the next page of somebody; the oldest goes first
CONSOLE_NOTICE_CHARS_MAX = 500  # a notice may name what somebody typed
CONSOLE_COOKIE_S = 12 * 3_600  # a working day; then the token is asked for again
CONSOLE_BATCHES_SHOWN = 20  # micro-batches of one query
CONSOLE_BATCHES_KEPT = 1_000  # micro-batches that are remembered, of all queries
CONSOLE_EVENTS_READ = 10_000  # what is further behind than this is passed over
CONSOLE_RATE_OVER_MS = 60_000  # the rate of a query is that of the last minute
CONSOLE_RATE_OVER_MS_MIN = 1_000  # a rate over less is noise
CONSOLE_AUDIT_SHOWN = 100  # entries of the audit log, unless more are asked for …
CONSOLE_AUDIT_SHOWN_MAX = 1_000  # … and at most
CONSOLE_NOTICE_S = 60  # what was done is told for so long, where another node may have to tell it
CONSOLE_MOVES_SHOWN = 20  # of shards of a cluster, the latest
CONSOLE_TICK_S = 0.8  # a change is seen within a second
CONSOLE_REST_TICKS = 10  # rest ten times as long as a tick: pages take a tenth of the time
CONSOLE_ALIVE_TICKS = 18  # silent ticks before a word of life: proxies keep the connection then
CONSOLE_IDLE_S = 10.0  # between two samples while nobody looks
CONSOLE_USAGE_S = 5.0  # between two looks at the size of the journal
CONSOLE_POINTS_MAX = 2_400  # of one line
CONSOLE_POINTS_SHOWN = 600  # that a page is sent: more than it has pixels to tell apart
CONSOLE_LINES_MAX = 100  # queues with lines of their own; the longest not looked at goes first
CONSOLE_LINE_KEPT_MS = 600_000  # a queue's line goes on for this long after the last look
CONSOLE_FRESH_MS = 900  # totals that are older are taken anew for a page
CONSOLE_NAMES_KEPT_MS = 5_000  # for this long it is known which queues hold dead letters
CONSOLE_RATE_S_MIN = 0.5  # between two points: a rate over less is noise
CONSOLE_STEP_QUEUES = 1_000  # that are looked at in one step; more of them in several
CONSOLE_DEEPEST_SHOWN = 8  # queues on the overview
CONSOLE_EXAMPLE_DEPTH_MAX = 4  # of a body on the page of the API: deeper ones nobody reads
CONSOLE_BODY_SHOWN_BYTES = 64 * 1024  # the rest is for the download
CONSOLE_HEX_SHOWN_BYTES = 4 * 1024  # of a body that is no text
CONSOLE_PREVIEW_CHARS = 120  # of a body in a list

# -- The client --------------------------------------------------------------------------------

CLIENT_AGAIN_S = 0.1  # a broker that is not ready yet is asked again after this long
CLIENT_TASK_WAIT_MS = 5_000  # one question after a redrive or discard; many may be asked
CLIENT_BACKUP_WAIT_MS = 200  # one question after the progress of a backup
CLIENT_RANGES_MAX = 10_000  # of one frame of acks
CLIENT_RECEPTIONS_KEPT = 1_024  # of pops, that are said again on the next connection …
CLIENT_RECEPTIONS_KEPT_S = 30.0  # … if they are not older than this
CLIENT_MERGED_MESSAGES_MAX = 10_000  # single pushes that travel as one batch …
CLIENT_MERGED_BYTES_MAX = 4 * 1024 * 1024  # … and their bodies: others wait behind them
CLIENT_READ_MESSAGES = 1_000  # that one read of a subscription to a topic takes …
CLIENT_READ_BYTES_MAX = 8 * 1024 * 1024  # … of this size together …
CLIENT_POLL_MS = 20_000  # … and how long it waits
WORKER_LOOK_UP_S = 1.0  # how long a wait may take no notice of a `stop` that came just then
WORKER_CLOSE_S = 5.0  # for what handlers left behind to notice that it is cancelled
WORKER_START_S = 60.0  # for a process to import its handler
WORKER_END_S = 5.0  # for a process to end before it is killed
WORKER_STUCK_MAX = 32  # handlers left to themselves before the worker takes no more
WORKER_BATCH_MAX = 10_000  # messages of one call of a handler: Lambda's limit
WORKER_CONCURRENCY_MAX = 1_000  # subscriptions of one connection; a FIFO queue needs one each
WORKER_TIMEOUT_S = 900.0  # the longest that Lambda lets a function take
CLIENT_CONNECT_S = 5.0  # one try to connect
CLIENT_STEADY_S = 1.0  # a connection that lasted this long was a good one
# For answers of the node that it leaves; calls are held back meanwhile. What a pop brings later is
# seen by nobody until its visibility timeout.
CLIENT_LEAVE_S = 3.0
CLIENT_MOVES_S = 10.0  # between two changes of the node: a client that uses two stays put
CLIENT_UNREACHED_S = 600.0  # a node that could not be reached is not tried again for this long
CLIENT_UNACKED_MS = 20_000  # bytes that are not confirmed for this long: the other side is gone
CLIENT_CLOSE_S = 1.0  # the last bytes of a connection may take this long
CLIENT_DECODERS_KEPT = 1_000  # one for each type of body; a program has a few
CLIENT_WRONG_CHARS_MAX = 300  # of what is wrong with a body
CLIENT_BUSY_S = 0.005  # from an ack to the next pop, in a busy loop
CLIENT_AHEAD_S = 0.005  # how long a message that came ahead waits for the user
CLIENT_AHEAD_LATE_S = 0.05  # after this long it is not handed out: this process stood still
CLIENT_CANCEL_S = 1.0  # how long an answer that is not wanted any more is waited for
CLIENT_RECEIVE_S = 1.0  # a read that brings nothing for this long looks around
CLIENT_BUFFER_BYTES = 256 * 1024  # that one read from a socket may bring
CLIENT_RECORD_BYTES = 64 * 1024  # sealed by TLS or read from the network at once
CLIENT_HOT_S = 0.05  # receptions that follow each other closer travel with what comes next …
CLIENT_RECEPTION_S = 0.025  # … or at the latest after this long: each frame wakes the broker
CLIENT_TICK_S = 0.005  # between two looks at messages that came ahead
CLIENT_SLACK_S = 0.001  # nobody is woken to come by this little earlier
CLIENT_IDLE_READ_S = 0.25  # how often a thread reads for subscriptions that nobody reads for
