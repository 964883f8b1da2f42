"""Topics: what they keep, who is bound to them and how far behind, and what comes in right now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.access.permissions import ANY, Action
from nexo.doors.console import wording
from nexo.doors.console.badges import badges
from nexo.doors.console.bodies import preview
from nexo.doors.console.live import Frame, streamed
from nexo.doors.console.visit import at, whole_number
from nexo.vocabulary import spoken
from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.limits import PEEK_MESSAGES_MAX
from nexo.vocabulary.names import RESERVED_PREFIX
from nexo.vocabulary.start import EARLIEST, LATEST

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.visit import Visit
    from nexo.engine.engine import Engine
    from nexo.engine.topic_actor import TopicActor, TopicInfo

TOPICS_SHOWN = 500
MESSAGES_SHOWN = 20
TAIL_READ_MAX = 50  # messages that a tick of a tail shows; the rest is counted
TAIL_BYTES_MAX = 1024 * 1024


class Group(msgspec.Struct, frozen=True):
    """A queue that is bound, with what it has not finished yet."""

    queue: str
    where: str
    lag: int
    oldest_age_ms: int
    consumers: int

    def live(self) -> dict[str, str]:
        prefix = f"group.{self.queue}."
        return {
            prefix + "lag": wording.number(self.lag),
            prefix + "oldest": wording.span(self.oldest_age_ms) if self.lag else wording.NOTHING,
            prefix + "consumers": wording.number(self.consumers),
        }


class Published(msgspec.Struct, frozen=True):
    offset: int
    at_ms: int
    size: int
    preview: str
    attributes: str


async def topics(visit: Visit) -> Response:
    text = visit.query("filter")[:100].lower()
    infos = _infos(visit, text)
    return await visit.page(
        "topics.html",
        infos=infos[:TOPICS_SHOWN],
        matching=len(infos),
        text=text,
        shown_max=TOPICS_SHOWN,
    )


async def live_topics(visit: Visit) -> Response:
    text = visit.query("filter")[:100].lower()

    def frame() -> Frame:
        values = badges(visit)
        for info in _infos(visit, text)[:TOPICS_SHOWN]:
            values |= _live(info)
        return Frame(values)

    return streamed(visit.house.pulse.stream(visit.caller, frame))


def _infos(visit: Visit, text: str) -> list[TopicInfo]:
    """Those of users first, then the broker's own."""
    found = [
        actor.info()
        for name, actor in visit.engine.topics.items()
        if text in name.lower() and visit.caller.knows(name)
    ]
    found.sort(key=lambda info: (info.name.startswith(RESERVED_PREFIX), info.name))
    return found


def _live(info: TopicInfo) -> dict[str, str]:
    prefix = f"t.{info.name}."
    return {
        prefix + "kept": wording.number(info.end - info.start),
        prefix + "end": wording.number(info.end),
        prefix + "bytes": wording.size(info.kept_bytes),
    }


async def topic(visit: Visit) -> Response:
    name = visit.path["name"]
    visit.caller.check_any(ANY, name)
    actor = visit.engine.topic(name)
    info = actor.info()
    may_read = visit.caller.may_read(name)
    limit = whole_number(visit.query("peek"), MESSAGES_SHOWN, 1, PEEK_MESSAGES_MAX)
    settings = spoken.topic_settings(msgspec.to_builtins(info.settings))
    published = (
        await _published(actor, max(info.start, info.end - limit), limit) if may_read else []
    )
    return await visit.page(
        "topic.html",
        info=info,
        settings=settings,
        groups=groups_of(visit.engine, actor),
        published=published[::-1],
        may_read=may_read,
        may_manage=visit.caller.may(Action.MANAGE, name) and not _is_own(name),
        may_push=visit.caller.may(Action.PUSH, name) and not _is_own(name),
        live=f"{at('live', 'topics', name)}?after={info.end}",
    )


def _is_own(name: str) -> bool:
    return name.startswith(RESERVED_PREFIX)


def groups_of(engine: Engine, actor: TopicActor) -> list[Group]:
    found = []
    for name, where in sorted(actor.bindings(), key=lambda bound: bound[0]):
        bound = engine.queues[name]
        info = bound.info()
        told = ", ".join(f"{key}={value}" for key, value in (where or {}).items())
        found.append(Group(name, told, info.depth, info.oldest_age_ms, bound.room.consumers))
    return found


async def _published(actor: TopicActor, offset: int, limit: int) -> list[Published]:
    reading = await actor.read(offset, limit, bytes_max=TAIL_BYTES_MAX)
    found = []
    for part in reading.parts:
        batch = part.batch()
        attributes = batch.attributes
        for index in range(part.count):
            body = batch.body(index)
            named = decode_attributes(
                attributes[index] if isinstance(attributes, list) else attributes
            )
            found.append(
                Published(
                    part.first + index,
                    part.created_ms if batch.created is None else batch.created[index],
                    len(body),
                    preview(body),
                    wording.visible(", ".join(f"{key}={value}" for key, value in named.items())),
                )
            )
    return found


async def live_topic(visit: Visit) -> Response:
    """The figures, and with who may read it the tail."""
    name = visit.path["name"]
    visit.caller.check_any(ANY, name)
    actor = visit.engine.topic(name)
    may_read = visit.caller.may_read(name)
    offset = whole_number(visit.query("after"), actor.info().end, 0, 2**60)

    async def tail() -> list[str]:
        """What came since the last look: the newest, if it is more than a page can show."""
        nonlocal offset
        end = actor.info().end
        if end <= offset or not may_read:
            return []
        offset, start = end, max(offset, end - TAIL_READ_MAX)
        return [_told(each) for each in await _published(actor, start, end - start)]

    async def frame() -> Frame | None:
        if visit.engine.topics.get(name) is not actor:
            return None
        values = badges(visit) | _live(actor.info())
        for group in groups_of(visit.engine, actor):
            values |= group.live()
        return Frame(values, items=await tail())

    return streamed(visit.house.pulse.stream(visit.caller, frame))


def _told(each: Published) -> str:
    return msgspec.json.encode(
        [
            each.offset,
            wording.moment(each.at_ms),
            wording.size(each.size),
            each.attributes,
            each.preview,
        ]
    ).decode()


async def publish(visit: Visit) -> Response:
    name = visit.path["name"]
    visit.caller.check(Action.PUSH, name)
    body = visit.form.get("body", [""])[0].replace("\r\n", "\n").encode()
    first, _ = await visit.engine.topic(name).publish(batch_of([body]))
    return visit.back(at("topics", name), f"Published at offset {first:,}.")


async def create_topic(visit: Visit) -> Response:
    name = visit.field("name")
    with visit.told("create_topic", name):
        visit.caller.check(Action.MANAGE, name)
        await visit.engine.create_topic(name)
    return visit.back(at("topics", name), f"Topic {name} is there.")


async def bind(visit: Visit) -> Response:
    name, queue = visit.path["name"], visit.field("queue")
    with visit.told("bind", f"{name} {queue}"):
        visit.caller.check_any({Action.POP, Action.PEEK, Action.MANAGE}, name)
        visit.caller.check(Action.MANAGE, queue)
        start = EARLIEST if visit.field("kept") else LATEST
        await visit.engine.bind(name, queue, None, start, create=True)
    return visit.back(at("topics", name), f"Queue {queue} gets what is published here.")


async def unbind(visit: Visit) -> Response:
    name, queue = visit.path["name"], visit.field("queue")
    with visit.told("unbind", f"{name} {queue}"):
        visit.caller.check_any({Action.POP, Action.PEEK, Action.MANAGE}, name)
        visit.caller.check(Action.MANAGE, queue)
        await visit.engine.unbind(name, queue)
    return visit.back(at("topics", name), f"Queue {queue} gets no more of it.")
