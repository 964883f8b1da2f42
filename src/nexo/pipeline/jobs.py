"""The jobs that there are. Known without Spark, so that they can be listed where there is none."""

from __future__ import annotations

import difflib
from pathlib import Path

import msgspec

from nexo.vocabulary.errors import InvalidArgument


class Job(msgspec.Struct, frozen=True):
    name: str
    does: str
    reads: str
    writes: str


JOBS = (
    Job(
        "archive",
        "keeps topics, archived queues and the events in the lake",
        "topics, nexo.archive.<queue>, nexo.events",
        "LAKE/messages, LAKE/events",
    ),
    Job(
        "insights",
        "figures of each queue and minute, from the events",
        "nexo.events, or LAKE/events with --from-lake",
        "LAKE/insights",
    ),
    Job(
        "replay",
        "pushes what the lake holds once more",
        "LAKE/messages",
        "a queue or a topic",
    ),
    Job(
        "redrive",
        "sends dead letters back to work, chosen by SQL and repaired by SQL",
        "a dead-letter queue",
        "the queues that they came from",
    ),
    Job("compact", "makes few large files of many small ones", "the lake", "the lake"),
)


def unknown_job(name: str) -> InvalidArgument:
    """What to say of a job that is not there."""
    names = [each.name for each in JOBS]
    if name.endswith(".py") or "/" in name:
        return InvalidArgument(f"there is no file {name!r:.80}", "check the path of your job")
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}, or a file"
    return InvalidArgument(f"there is no job {name!r:.80}", hint)


def is_file(name: str) -> bool:
    """Whether this names a file of the user's rather than one of our jobs."""
    return name not in {each.name for each in JOBS} and Path(name).is_file()
