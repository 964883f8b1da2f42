"""The image of a topic, and how snapshots and restarts work on it. See `image` and `snapshot` for
the ideas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.machine.image import ChunkImage, ProducerImage, chunk_image, revived_chunk
from nexo.machine.producers import Producers
from nexo.machine.snapshot import SnapshotInSteps
from nexo.machine.topic import drop_before

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.machine.topic import Topic


class TopicImage(msgspec.Struct):
    now_ms: int = 0
    start: int = 0
    end: int = 0
    chunks: list[ChunkImage] = []
    producers: dict[str, ProducerImage] = {}


class _TopicSnapshot(TopicImage):
    pieces: list[list[ChunkImage]] = msgspec.field(default_factory=list)  # chunks, in order


_decode = msgspec.msgpack.Decoder(_TopicSnapshot).decode


class TopicSnapshot(SnapshotInSteps):
    """A snapshot in the making. A topic grows at the end and goes from the front, so chunks that
    were taken down change no more: the last one, which may, comes with the last step."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self._topic = topic
        self._piece: list[ChunkImage] = []

    def _entries(self) -> Iterator[int]:
        yield from self._producers.entries()
        log, pen = self._topic.log, 0
        while (chunk := next(log.chunks_from(pen), None)) is not None:
            self._piece.append(chunk_image(chunk))
            pen = chunk.end
            if pen < log.end:
                yield 1

    def _add_piece(self) -> None:
        if self._piece:
            self._append(self._piece)
            self._piece = []

    def _small(self) -> dict[str, Any]:
        topic = self._topic
        return {"now_ms": topic.now_ms, "start": topic.start, "end": topic.log.end}


def read_topic_snapshot(encoded: bytes) -> TopicImage:
    """The image that a snapshot stands for."""
    read = _decode(encoded)
    chunks = [chunk for piece in read.pieces for chunk in piece if chunk.end > read.start]
    return TopicImage(read.now_ms, read.start, read.end, read.chunks + chunks, read.producers)


def image_of_topic(topic: Topic) -> TopicImage:
    """Everything about the topic that a restart must bring back, in one step: for looking at it
    in tests. Call it after `collect`."""
    producers = topic.producers.by_name if topic.producers is not None else {}
    return TopicImage(
        topic.now_ms,
        topic.start,
        topic.log.end,
        [chunk_image(chunk) for chunk in topic.log.chunks.values()],
        {n: ProducerImage(p.seen_ms, p.answers()) for n, p in producers.items()},
    )


def revive_topic(topic: Topic, image: TopicImage) -> None:
    """Bring an empty topic to the state of an image. No content is in memory afterwards."""
    topic.now_ms = image.now_ms
    topic.log.recover([revived_chunk(chunk) for chunk in image.chunks], image.end)
    topic.kept_bytes = sum(chunk.payload_bytes for chunk in image.chunks)
    drop_before(topic, image.start)
    if image.producers:
        topic.producers = Producers()
        for name, known in image.producers.items():
            topic.producers.recall(name, known.seen_ms, known.answers)
