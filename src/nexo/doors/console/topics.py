"""Topics: what they keep, who is bound to them and how far behind, and what comes in right now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.access.permissions import READ, Action
from nexo.doors.console import formatting
from nexo.doors.console.message import batch_of_form, preview
from nexo.doors.console.pages import badges
from nexo.doors.console.request import as_pairs, at, whole_number
from nexo.doors.console.settings_form import given_topic_settings, topic_fields
from nexo.doors.console.streams import Frame, made_of, streamed
from nexo.engine.listing import steps
from nexo.engine.peek import counts
from nexo.engine.topic_actor import TopicActor
from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import (
    CONSOLE_CHOSEN_MS,
    CONSOLE_FILTER_CHARS_MAX,
    CONSOLE_POLICY_CHARS_SHOWN,
    CONSOLE_TAIL_BYTES_MAX,
    CONSOLE_TAIL_READ_MAX,
    CONSOLE_TOPIC_MESSAGES_SHOWN,
    CONSOLE_TOPICS_SHOWN,
    PEEK_MESSAGES_MAX,
)
from nexo.vocabulary.names import RESERVED_PREFIX, is_events
from nexo.vocabulary.settings import TopicSettings, topic_settings_of, user_topic_settings
from nexo.vocabulary.start import EARLIEST, LATEST

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.request import Call
    from nexo.engine.topic_actor import TopicInfo
    from nexo.vocabulary.changes import Bound
    from nexo.vocabulary.errors import NexoError

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
            prefix + "lag": formatting.number(self.lag),
            prefix + "oldest": formatting.span(self.oldest_age_ms)
            if self.lag
            else formatting.NOTHING,
            prefix + "consumers": formatting.number(self.consumers),
        }


class Groups(msgspec.Struct, frozen=True):
    """Those that the caller may see; of the others only how many there are."""

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

    def infos(self, call: Call) -> list[TopicInfo]:
        """Of those that are still there."""
        topics = call.engine.topics
        return [each.info() for each in self.actors if topics.get(each.name) is each]

    def made_of(self, infos: list[TopicInfo]) -> str:
        return made_of([(info.name, info.bound_queues) for info in infos], self.matching)


async def topics(call: Call) -> Response:
    chosen = await choose(call)
    infos = chosen.infos(call)
    return await call.page(
        "topics.html",
        {"rows": "topics_rows.html"},
        infos=infos,
        made_of=chosen.made_of(infos),
        known=call.known,
        fields=topic_fields(TopicSettings(), {}),
        matching=chosen.matching,
        text=_text(call),
        shown_max=CONSOLE_TOPICS_SHOWN,
    )


async def live_topics(call: Call) -> Response:
    engine = call.engine
    chosen, chosen_ms, count = await choose(call), engine.now_ms(), len(engine.topics)

    async def frame() -> Frame:
        nonlocal chosen, chosen_ms, count
        if len(engine.topics) != count or engine.now_ms() > chosen_ms + CONSOLE_CHOSEN_MS:
            chosen, chosen_ms, count = await choose(call), engine.now_ms(), len(engine.topics)
        values, infos = badges(call), chosen.infos(call)
        for info in infos:
            values |= _live(info)
        return Frame(values, {"rows": chosen.made_of(infos)})

    return streamed(call.shared.pulse.stream(call.caller, frame))


async def choose(call: Call) -> Chosen:
    """Looked for some at a time: there may be very many."""
    text, matching = _text(call), 0
    shown: tuple[list[TopicActor], list[TopicActor]] = ([], [])
    async for actors in steps(call.engine.topics):
        for actor in actors:
            if text in actor.name.lower() and call.caller.knows(actor.name):
                matching += 1
                of_these = shown[actor.name.startswith(RESERVED_PREFIX)]
                if len(of_these) < CONSOLE_TOPICS_SHOWN:
                    of_these.append(actor)
    return Chosen([*shown[0], *shown[1]][:CONSOLE_TOPICS_SHOWN], matching)


def _text(call: Call) -> str:
    return call.query("filter")[:CONSOLE_FILTER_CHARS_MAX].lower()


def _live(info: TopicInfo) -> dict[str, str]:
    prefix = f"t.{info.name}."
    return {
        prefix + "kept": formatting.number(info.end - info.start),
        prefix + "end": formatting.number(info.end),
        prefix + "bytes": formatting.size(info.kept_bytes),
    }


async def topic(call: Call) -> Response:
    return await _page(call)


async def _page(call: Call, refused: NexoError | None = None) -> Response:
    name = call.path["name"]
    actor = call.engine.topic(name)
    info = actor.info()
    may_read = call.caller.may_read(name)
    limit = whole_number(call.query("peek"), CONSOLE_TOPIC_MESSAGES_SHOWN, 1, PEEK_MESSAGES_MAX)
    start = max(info.start, info.end - limit)
    is_own, may_manage = name.startswith(RESERVED_PREFIX), call.caller.may(Action.MANAGE, name)
    return await call.page(
        "topic.html",
        {"groups": "topic_groups.html"},
        200 if refused is None else refused.http_status,
        refused=refused,
        info=info,
        settings=user_topic_settings(info.settings),
        fields=topic_fields(info.settings, call.form),
        groups=groups_of(call, actor),
        published=(await _newest(actor, start, info.end))[::-1] if may_read else [],
        may_read=may_read,
        may_bind=call.caller.may_any(BINDS, name) and not is_own,
        may_manage=may_manage,
        may_delete=may_manage and not is_events(name),
        may_push=call.caller.may(Action.PUSH, name) and not is_own,
        is_own=is_own,
        live=f"{at('live', 'topics', name)}?after={info.end}",
    )


def groups_of(call: Call, actor: TopicActor) -> Groups:
    bindings = {queue.name: (queue, how) for queue, how in actor.bound_queues()}
    seen = []
    for name in call.known(bindings):
        bound, how = bindings[name]  # of a queue in another shard: what is on its way there
        info = bound.info()
        told = _filter(how)
        may_manage = call.caller.may(Action.MANAGE, name)
        consumers = counts(bound).consumers
        seen.append(Group(name, told, info.depth, info.oldest_age_ms, consumers, may_manage))
    return Groups(seen, len(bindings) - len(seen))


def _filter(bound: Bound) -> str:
    """What a binding asks for: attributes, or the filter policy of SNS's subscription."""
    if bound.sns is None:
        return ", ".join(f"{key}={value}" for key, value in (bound.where or {}).items())
    policy = bound.sns.filter_policy
    return (
        policy
        if len(policy) <= CONSOLE_POLICY_CHARS_SHOWN
        else policy[:CONSOLE_POLICY_CHARS_SHOWN] + "…"
    )


async def _newest(actor: TopicActor, start: int, end: int) -> list[Published]:
    """The last messages before `end`, from `start` on or from where they take too many bytes."""
    found: list[Published] = []
    size = 0
    while end > start and size < CONSOLE_TAIL_BYTES_MAX:
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
        formatting.visible(", ".join(f"{key}={value}" for key, value in named.items())),
    )


async def live_topic(call: Call) -> Response:
    """The figures, and with who may read it the tail."""
    name = call.path["name"]
    actor = call.engine.topic(name)
    may_read = call.caller.may_read(name)
    offset = whole_number(call.query("after"), actor.info().end, 0, 2**60)

    async def tail() -> list[str]:
        """What came since the last look: the newest, if it is more than a page can show."""
        nonlocal offset
        end = actor.info().end
        if end <= offset or not may_read:
            return []
        offset, start = end, max(offset, end - CONSOLE_TAIL_READ_MAX)
        return [_told(each) for each in await _newest(actor, start, end)]

    async def frame() -> Frame | None:
        if call.engine.topics.get(name) is not actor:
            return None
        values, groups = badges(call) | _live(actor.info()), groups_of(call, actor)
        for group in groups.seen:
            values |= group.live()
        return Frame(values, {"groups": groups.made_of}, items=await tail())

    return streamed(call.shared.pulse.stream(call.caller, frame))


def _told(each: Published) -> str:
    return msgspec.json.encode(
        [
            each.offset,
            formatting.moment(each.at_ms),
            formatting.size(each.size),
            each.attributes,
            each.preview,
        ]
    ).decode()


async def publish(call: Call) -> Response:
    name = call.path["name"]
    first, _ = await call.engine.topic(name).publish(batch_of_form(call))
    return call.back(at("topics", name), f"Published at offset {first:,}.")


async def create_topic(call: Call) -> Response:
    name = call.field("name")
    with call.told():
        await call.engine.create_topic(name, topic_settings_of(given_topic_settings(call.form)))
    return call.back(at("topics", name), f"Created topic {name}.")


async def edit_topic(call: Call) -> Response:
    name = call.path["name"]
    try:
        with call.told():
            now = call.engine.topic(name).info().settings
            wanted = topic_settings_of(given_topic_settings(call.form), now)
            await call.engine.edit_topic(name, wanted)
    except InvalidArgument as error:
        if name.startswith(RESERVED_PREFIX):  # its page has no such form
            raise
        return await _page(call, error)
    return call.back(at("topics", name), "Saved the settings.")


async def delete_topic(call: Call) -> Response:
    name = call.path["name"]
    with call.told():
        await call.engine.delete_topic(name)
    return call.back(at("topics"), f"Deleted topic {name}.")


async def bind(call: Call) -> Response:
    name, queue = call.path["name"], call.field("queue")
    with call.told():
        where = as_pairs(call.field("where"))
        bound = dict(call.engine.topic(name).bindings())
        if queue in bound and not where:
            # An empty field must not take away the filter that it has.
            raise InvalidArgument(
                f"queue {queue!r} is already bound",
                "enter a new filter, or unbind the queue first to remove its filter",
            )
        start = EARLIEST if call.field("kept") else LATEST
        await call.engine.bind(name, queue, where or None, start, create=True)
    filtered = " with a filter" if where else ""
    return call.back(at("topics", name), f"Bound queue {queue}{filtered}.")


async def unbind(call: Call) -> Response:
    name, queue = call.path["name"], call.field("queue")
    with call.told():
        await call.engine.unbind(name, queue)
    return call.back(at("topics", name), f"Unbound queue {queue}.")
