"""The image of a topic. See `image` for the idea."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.machine.chunk import as_packed
from nexo.machine.image import ChunkImage, ProducerImage, chunk_image, revived_chunk
from nexo.machine.producers import Producers
from nexo.machine.topic import drop_before

if TYPE_CHECKING:
    from nexo.machine.topic import Topic


class TopicImage(msgspec.Struct):
    now_ms: int = 0
    start: int = 0
    end: int = 0
    chunks: list[ChunkImage] = []
    producers: dict[str, ProducerImage] = {}


encode_topic_image = msgspec.msgpack.Encoder(enc_hook=as_packed).encode
decode_topic_image = msgspec.msgpack.Decoder(TopicImage).decode


def image_of_topic(topic: Topic) -> TopicImage:
    """Everything about the topic that a restart must bring back. Call it after `collect`."""
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
