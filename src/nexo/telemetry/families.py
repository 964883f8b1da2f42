"""Every metric of the broker on one page, and the text in which Prometheus reads them. The
dashboard and the alerts in `ops/` use these names, and a test holds them to it.

The text is written by hand because the client library takes ten times as long for the thousands of
lines that thousands of queues are.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from nexo.telemetry.meters import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Family(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


QUEUE_DEPTH = Family("nexo_queue_depth", "gauge", "Messages in the queue.", ("queue",))
QUEUE_READY = Family("nexo_queue_ready", "gauge", "Messages ready for delivery.", ("queue",))
QUEUE_SCHEDULED = Family(
    "nexo_queue_scheduled", "gauge", "Messages that wait for a delay or a retry.", ("queue",)
)
QUEUE_IN_FLIGHT = Family(
    "nexo_queue_in_flight",
    "gauge",
    "Messages delivered to a consumer and not acked yet.",
    ("queue",),
)
QUEUE_OLDEST_AGE = Family(
    "nexo_queue_oldest_age_seconds", "gauge", "Age of the oldest message.", ("queue",)
)
QUEUE_CONSUMERS = Family(
    "nexo_queue_consumers", "gauge", "Subscriptions and waiting pops.", ("queue",)
)
QUEUE_CLAIMED = Family(
    "nexo_queue_claimed",
    "gauge",
    "Messages claimed by a Spark query.",
    ("queue", "consumer"),
)
QUEUE_CLAIMED_AGE = Family(
    "nexo_queue_claimed_age_seconds",
    "gauge",
    "Time since a Spark query claimed the first of its messages.",
    ("queue", "consumer"),
)
MESSAGES = Family(
    "nexo_messages_total",
    "counter",
    "Messages by event: pushed, delivered, acked, nacked, timed_out, expired, dead_lettered.",
    ("queue", "event"),
)
RETRIES = Family("nexo_retries_total", "counter", "Deliveries after the first.", ("queue",))
WAIT = Family(
    "nexo_queue_wait_seconds", "histogram", "Time from push to first delivery.", ("queue",)
)
WORK = Family("nexo_queue_work_seconds", "histogram", "Time from delivery to ack.", ("queue",))
TOPIC_MESSAGES = Family("nexo_topic_messages", "gauge", "Messages kept in the topic.", ("topic",))
TOPIC_BYTES = Family(
    "nexo_topic_bytes", "gauge", "Bytes of the messages kept in the topic.", ("topic",)
)
PUBLISHED = Family("nexo_published_total", "counter", "Messages published.", ("topic",))
UNSHOWN = Family(
    "nexo_unshown_queues",
    "gauge",
    'Queues beyond the limit of series, reported together as queue="".',
)
COMMIT = Family(
    "nexo_commit_seconds", "histogram", "Time from the start of a commit until it is durable."
)
SYNC = Family(
    "nexo_sync_seconds", "histogram", "Time of the disk write of a commit, with its fsync."
)
UNSETTLED = Family(
    "nexo_unsettled_bytes", "gauge", "Bytes of message bodies that wait for the disk."
)
LOOP_LAG = Family("nexo_loop_lag_seconds", "histogram", "Delay of the event loop.")
CONNECTIONS = Family("nexo_connections", "gauge", "Open connections.", ("door",))
PAYLOAD_MEMORY = Family("nexo_payload_memory_bytes", "gauge", "Bytes of message bodies in memory.")
BOOKKEEPING = Family(
    "nexo_bookkeeping_memory_bytes",
    "gauge",
    "Estimated memory of queues and topics, without message bodies.",
)
PAYLOAD_LIMIT = Family(
    "nexo_payload_memory_limit_bytes", "gauge", "Limit for message bodies in memory."
)
STORED = Family("nexo_stored_bytes", "gauge", "Bytes that the stored data takes.")
DISK_FREE = Family("nexo_disk_free_bytes", "gauge", "Free bytes on the disk of the data directory.")
READ_ONLY = Family("nexo_read_only", "gauge", "1 while the broker refuses new messages.")
OVERDUE = Family(
    "nexo_commit_overdue_seconds", "gauge", "Time that calls have waited without any commit."
)
OUT_OF_SERVICE = Family(
    "nexo_out_of_service",
    "gauge",
    "Queues and topics that refuse calls after repeated internal errors.",
)
UNREADABLE = Family(
    "nexo_unreadable_messages", "gauge", "Messages that could not be read from disk."
)
EVENTS_WAITING = Family(
    "nexo_events_waiting", "gauge", "Events that wait to be written to nexo.events."
)
EVENTS_DROPPED = Family(
    "nexo_events_dropped_total",
    "counter",
    "Events dropped because too many were waiting.",
)
TRANSFER_BACKLOG = Family(
    "nexo_transfer_backlog",
    "gauge",
    "Messages that wait to go to a queue in another shard; nodes of a cluster only.",
    ("shard",),
)
TRANSFER_OLDEST = Family(
    "nexo_transfer_oldest_seconds",
    "gauge",
    "How long the oldest of them has waited.",
    ("shard",),
)
CLOCK_AHEAD = Family(
    "nexo_clock_ahead_seconds",
    "gauge",
    "Seconds by which the clock of the queues is ahead of the system clock; negative if behind.",
)
BUILD = Family("nexo_build_info", "gauge", "Always 1; the version is a label.", ("version",))
RESIDENT = Family("process_resident_memory_bytes", "gauge", "Memory of the process.")
CPU = Family("process_cpu_seconds_total", "counter", "CPU time of the process.")
STARTED = Family("process_start_time_seconds", "gauge", "When the process started.")

# -- Of a node of a cluster ---------------------------------------------------------------------

NODE_UP = Family("nexo_node_up", "gauge", "Whether this node holds its lease.")
NODE_SHARDS = Family("nexo_node_shards", "gauge", "Shards that this node serves.")
NODE_LEASE = Family("nexo_node_lease_seconds", "gauge", "Time left of the lease of this node.")
CLUSTER_NODES = Family(
    "nexo_cluster_nodes", "gauge", "Nodes of the cluster that live, as this node sees it."
)
CLUSTER_SHARDS = Family("nexo_cluster_shards", "gauge", "Shards of the cluster.")
CLUSTER_UNOWNED = Family(
    "nexo_cluster_shards_unowned", "gauge", "Shards without a living owner, as this node sees it."
)
CLUSTER_MOVES = Family(
    "nexo_cluster_moves_total", "counter", "Shards that changed their owner, as this node saw it."
)
CLUSTER_PASSED = Family(
    "nexo_cluster_passed_frames_total",
    "counter",
    "RPC requests and deliveries of clients of this node that were passed on to or from another.",
)
CLUSTER_REDIRECTS = Family(
    "nexo_cluster_redirects_total",
    "counter",
    "How often this node told an RPC client to connect to the node that has what it uses.",
)

# -- All of them ----------------------------------------------------------------------------------

FAMILIES: dict[str, Family] = {
    family.name: family for family in globals().values() if isinstance(family, Family)
}


def header(family: Family) -> str:
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {family.name} {text}\n# TYPE {family.name} {family.kind}\n"


def sample(family: Family, value: float, *labels: str) -> str:
    return f"{family.name}{_braces(family, labels)} {_number(value)}\n"


def histogram(family: Family, values: Histogram, *labels: str) -> str:
    pairs = [
        f'{name}="{escaped(label)}"' for name, label in zip(family.labels, labels, strict=True)
    ]
    lines = []
    bounds = [*map(repr, values.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(values.counts), strict=True):
        inside = ",".join([*pairs, f'le="{bound}"'])
        lines.append(f"{family.name}_bucket{{{inside}}} {count}\n")
    braces = _braces(family, labels)
    lines.append(f"{family.name}_sum{braces} {_number(values.sum)}\n")
    lines.append(f"{family.name}_count{braces} {values.count}\n")
    return "".join(lines)


def escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _braces(family: Family, labels: tuple[str, ...]) -> str:
    if not labels:
        return ""
    pairs = zip(family.labels, labels, strict=True)
    return "{" + ",".join(f'{name}="{escaped(label)}"' for name, label in pairs) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
