"""Topics: what they keep, who is bound to them and how far behind, and what comes in right now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.access.permissions import ANY, READ, Action
from nexo.doors.console import wording
from nexo.doors.console.badges import badges
from nexo.doors.console.bodies import preview
from nexo.doors.console.live import Frame, made_of, streamed
from nexo.doors.console.queues import CHOSEN_MS, FILTER_CHARS_MAX
from nexo.doors.console.settings_form import given_topic_settings, topic_fields
from nexo.doors.console.visit import as_pairs, at, whole_number
from nexo.engine.listing import steps
from nexo.engine.topic_actor import TopicActor
from nexo.vocabulary import spoken
from nexo.vocabulary.attributes import decode_attributes, encode_attributes
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.given import topic_settings_of
from nexo.vocabulary.limits import PEEK_MESSAGES_MAX
from nexo.vocabulary.names import EVENTS_TOPIC, RESERVED_PREFIX
from nexo.vocabulary.settings import TopicSettings
from nexo.vocabulary.start import EARLIEST, LATEST

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.visit import Visit
    from nexo.engine.topic_actor import TopicInfo
    from nexo.vocabulary.errors import NexoError

TOPICS_SHOWN = 500
MESSAGES_SHOWN = 20
TAIL_READ_MAX = 50  # messages that a tick of a tail shows; the page counts the others
TAIL_BYTES_MAX = 1024 * 1024
BINDS = READ | {Action.MANAGE}  # one of these on a topic, and `manage` on the queue


class Group(msgspec.Struct, frozen=True):
    """A queue that is bound, with what it has not finished yet."""

    queue: str
    where: str
    lag: int
    oldest_age_ms: int
    consumers: int
    may_manage: bool

    def live(self) -> dict[str, str]:
        prefix = f"group.{self.queue}."
        return {
            prefix + "lag": wording.number(self.lag),
            prefix + "oldest": wording.span(self.oldest_age_ms) if self.lag else wording.NOTHING,
            prefix + "consumers": wording.number(self.consumers),
        }


class Groups(msgspec.Struct, frozen=True):
    """Those that the visitor may see; of the others only how many there are."""

    seen: list[Group]
    others: int

    @property
    def made_of(self) -> str:
        return made_of([(each.queue, each.where) for each in self.seen], self.others)


class Published(msgspec.Struct, frozen=True):
    offset: int
    at_ms: int
    size: int
    preview: str
    attributes: str


class Chosen(msgspec.Struct, frozen=True):
    """The topics that a page shows, those of users first, then the broker's own."""

    actors: list[TopicActor]
    matching: int

    def infos(self, visit: Visit) -> list[TopicInfo]:
        """Of those that are still there."""
        topics = visit.engine.topics
        return [each.info() for each in self.actors if topics.get(each.name) is each]

    def made_of(self, infos: list[TopicInfo]) -> str:
        return made_of([(info.name, info.bound_queues) for info in infos], self.matching)


async def topics(visit: Visit) -> Response:
    chosen = await choose(visit)
    infos = chosen.infos(visit)
    return await visit.page(
        "topics.html",
        {"rows": "topics_rows.html"},
        infos=infos,
        made_of=chosen.made_of(infos),
        known=visit.known,
        fields=topic_fields(TopicSettings(), {}),
        matching=chosen.matching,
        text=_text(visit),
        shown_max=TOPICS_SHOWN,
    )


async def live_topics(visit: Visit) -> Response:
    engine = visit.engine
    chosen, chosen_ms, count = await choose(visit), engine.now_ms(), len(engine.topics)

    async def frame() -> Frame:
        nonlocal chosen, chosen_ms, count
        if len(engine.topics) != count or engine.now_ms() > chosen_ms + CHOSEN_MS:
            chosen, chosen_ms, count = await choose(visit), engine.now_ms(), len(engine.topics)
        values, infos = badges(visit), chosen.infos(visit)
        for info in infos:
            values |= _live(info)
        return Frame(values, {"rows": chosen.made_of(infos)})

    return streamed(visit.house.pulse.stream(visit.caller, frame))


async def choose(visit: Visit) -> Chosen:
    """Looked for some at a time: there may be very many."""
    text, matching = _text(visit), 0
    shown: tuple[list[TopicActor], list[TopicActor]] = ([], [])
    async for actors in steps(visit.engine.topics):
        for actor in actors:
            if text in actor.name.lower() and visit.caller.knows(actor.name):
                matching += 1
                of_these = shown[actor.name.startswith(RESERVED_PREFIX)]
                if len(of_these) < TOPICS_SHOWN:
                    of_these.append(actor)
    return Chosen([*shown[0], *shown[1]][:TOPICS_SHOWN], matching)


def _text(visit: Visit) -> str:
    return visit.query("filter")[:FILTER_CHARS_MAX].lower()


def _live(info: TopicInfo) -> dict[str, str]:
    prefix = f"t.{info.name}."
    return {
        prefix + "kept": wording.number(info.end - info.start),
        prefix + "end": wording.number(info.end),
        prefix + "bytes": wording.size(info.kept_bytes),
    }


async def topic(visit: Visit) -> Response:
    return await _page(visit)


async def _page(visit: Visit, refused: NexoError | None = None) -> Response:
    name = visit.path["name"]
    visit.caller.check_any(ANY, name)
    actor = visit.engine.topic(name)
    info = actor.info()
    may_read = visit.caller.may_read(name)
    limit = whole_number(visit.query("peek"), MESSAGES_SHOWN, 1, PEEK_MESSAGES_MAX)
    start = max(info.start, info.end - limit)
    is_own, may_manage = name.startswith(RESERVED_PREFIX), visit.caller.may(Action.MANAGE, name)
    return await visit.page(
        "topic.html",
        {"groups": "topic_groups.html"},
        200 if refused is None else refused.http_status,
        refused=refused,
        info=info,
        settings=spoken.topic_settings(msgspec.to_builtins(info.settings)),
        fields=topic_fields(info.settings, visit.form),
        groups=groups_of(visit, actor),
        published=(await _newest(actor, start, info.end))[::-1] if may_read else [],
        may_read=may_read,
        may_bind=visit.caller.may_any(BINDS, name) and not is_own,
        may_manage=may_manage,
        may_delete=may_manage and name != EVENTS_TOPIC,
        may_push=visit.caller.may(Action.PUSH, name) and not is_own,
        is_own=is_own,
        live=f"{at('live', 'topics', name)}?after={info.end}",
    )


def groups_of(visit: Visit, actor: TopicActor) -> Groups:
    bindings = dict(actor.bindings())
    seen = []
    for name in visit.known(bindings):
        bound = visit.engine.queues[name]
        info = bound.info()
        told = ", ".join(f"{key}={value}" for key, value in (bindings[name] or {}).items())
        may_manage = visit.caller.may(Action.MANAGE, name)
        consumers = bound.room.consumers
        seen.append(Group(name, told, info.depth, info.oldest_age_ms, consumers, may_manage))
    return Groups(seen, len(bindings) - len(seen))


async def _newest(actor: TopicActor, start: int, end: int) -> list[Published]:
    """The last messages before `end`, from `start` on or from where they take too many bytes."""
    found: list[Published] = []
    size = 0
    while end > start and size < TAIL_BYTES_MAX:
        end -= 1
        read = await _published(actor, end)
        if read is None:
            break
        found.append(read)
        size += read.size
    return found[::-1]


async def _published(actor: TopicActor, offset: int) -> Published | None:
    """One message; none if it is no longer kept."""
    reading = await actor.read(offset, 1)
    if not reading.parts or reading.parts[0].first != offset:
        return None
    part = reading.parts[0]
    batch = part.batch()
    attributes, body = batch.attributes, batch.body(0)
    named = decode_attributes(attributes[0] if isinstance(attributes, list) else attributes)
    return Published(
        offset,
        part.created_ms if batch.created is None else batch.created[0],
        len(body),
        preview(body),
        wording.visible(", ".join(f"{key}={value}" for key, value in named.items())),
    )


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
        return [_told(each) for each in await _newest(actor, start, end)]

    async def frame() -> Frame | None:
        if visit.engine.topics.get(name) is not actor:
            return None
        values, groups = badges(visit) | _live(actor.info()), groups_of(visit, actor)
        for group in groups.seen:
            values |= group.live()
        return Frame(values, {"groups": groups.made_of}, items=await tail())

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
    batch = batch_of([body])
    if attributes := as_pairs(visit.field("attributes")):
        batch = msgspec.structs.replace(batch, attributes=[encode_attributes(attributes)])
    first, _ = await visit.engine.topic(name).publish(batch)
    return visit.back(at("topics", name), f"Published at offset {first:,}.")


async def create_topic(visit: Visit) -> Response:
    name = visit.field("name")
    with visit.told("create_topic", name):
        visit.caller.check(Action.MANAGE, name)
        await visit.engine.create_topic(name, topic_settings_of(given_topic_settings(visit.form)))
    return visit.back(at("topics", name), f"Topic {name} is there.")


async def edit_topic(visit: Visit) -> Response:
    name = visit.path["name"]
    try:
        with visit.told("edit_topic", name):
            visit.caller.check(Action.MANAGE, name)
            now = visit.engine.topic(name).info().settings
            wanted = topic_settings_of(given_topic_settings(visit.form), now)
            await visit.engine.edit_topic(name, wanted)
    except InvalidArgument as error:
        if name.startswith(RESERVED_PREFIX):  # its page has no such form
            raise
        return await _page(visit, error)
    return visit.back(at("topics", name), "The settings hold from now on.")


async def delete_topic(visit: Visit) -> Response:
    name = visit.path["name"]
    with visit.told("delete_topic", name):
        visit.caller.check(Action.MANAGE, name)
        await visit.engine.delete_topic(name)
    return visit.back(at("topics"), f"Topic {name} was deleted.")


async def bind(visit: Visit) -> Response:
    name, queue = visit.path["name"], visit.field("queue")
    with visit.told("bind", f"{name} {queue}"):
        visit.caller.check_any(BINDS, name)
        visit.caller.check(Action.MANAGE, queue)
        where = as_pairs(visit.field("where"))
        bound = dict(visit.engine.topic(name).bindings())
        if queue in bound and not where:
            # An empty field must not take away the filter that it has.
            raise InvalidArgument(
                f"queue {queue!r} is bound already",
                "say what it is to get alone, or unbind it first to give it everything",
            )
        start = EARLIEST if visit.field("kept") else LATEST
        await visit.engine.bind(name, queue, where or None, start, create=True)
    gets = "only what has these attributes" if where else "what is published here"
    return visit.back(at("topics", name), f"Queue {queue} gets {gets}.")


async def unbind(visit: Visit) -> Response:
    name, queue = visit.path["name"], visit.field("queue")
    with visit.told("unbind", f"{name} {queue}"):
        visit.caller.check_any(BINDS, name)
        visit.caller.check(Action.MANAGE, queue)
        await visit.engine.unbind(name, queue)
    return visit.back(at("topics", name), f"Queue {queue} gets no more of it.")
