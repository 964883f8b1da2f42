"""Every setting of a queue and of a topic, declared once: its default, which values it takes, and
what it does in one sentence.

The broker counts in milliseconds and says so in its names; users write seconds, and for them
`visibility_timeout_ms` is `visibility_timeout`. Flags of the command line, forms of the console,
documents, the admin API's schema and `docs/reference/settings.md` are made from what stands here.
`vocabulary.user_settings` has the types that users see, and is generated from it: after a change
run `python -m scripts.user_settings`.

The broker's own settings, as its ports, are in `server.configuration`.
"""

from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import NODEFAULT

from nexo.vocabulary import limits
from nexo.vocabulary import user_settings as users
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.names import check_name, dead_letter_name
from nexo.vocabulary.units import milliseconds, show_duration, show_size
from nexo.vocabulary.user_settings import (
    GivenQueueSettings,
    GivenTopicSettings,
    QueueOptions,
    TopicOptions,
)

# How a setting is written, shown and checked. A "parts" setting has settings of its own, and what
# is "own" is the broker's alone.
Kind = Literal[
    "duration",
    "count",
    "size",
    "rate",
    "number",
    "name",
    "choice",
    "switch",
    "pairs",
    "parts",
    "own",
]

_DAY_MS = 24 * 3_600_000
_MAX_MESSAGE_BYTES = "largest message allowed, body and attributes together"
# With its account and region, or around `{name}`.
_DEAD_LETTER_CHARS = 2 * limits.NAME_CHARS_MAX


class Rule(NamedTuple):
    """What is declared of a setting beside its type and default. `low` and `high` are in the unit
    that is stored; of a name they count its characters. `name` is the users', where it is not the
    field without its `_ms`."""

    kind: Kind
    about: str
    low: float | None = None
    high: float | None = None
    name: str = ""


# -- The declaration --------------------------------------------------------------------------
# These structs are what the journal keeps: a field is never renamed, moved or removed.


class Backoff(msgspec.Struct, frozen=True):
    """How long a failed message waits: `initial`, then times `factor` up to `max`; `jitter` is the
    share of the wait that is spread out."""

    initial_ms: Annotated[
        int,
        Rule(
            "duration", "delay before the first retry of a failed message", 0, limits.TIMEOUT_MS_MAX
        ),
    ] = 1_000
    factor: Annotated[
        float,
        Rule(
            "number",
            "factor by which the retry delay grows with every failure",
            1,
            limits.BACKOFF_FACTOR_MAX,
        ),
    ] = 2.0
    max_ms: Annotated[
        int, Rule("duration", "longest delay before a retry", 0, limits.TIMEOUT_MS_MAX)
    ] = 3_600_000
    jitter: Annotated[
        float,
        Rule("number", "random share of the retry delay, 0 to 1, so that retries spread out", 0, 1),
    ] = 0.0


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a queue does. The same words are CLI flags and fields of the admin API."""

    visibility_timeout_ms: Annotated[
        int,
        Rule(
            "duration",
            "how long a consumer has to process a message before it is delivered again",
            0,
            limits.TIMEOUT_MS_MAX,
        ),
    ] = 30_000
    retransmit_timeout_ms: Annotated[
        int,
        Rule(
            "duration",
            "how long a consumer has to confirm receipt before a message is sent again",
            1,
            limits.TIMEOUT_MS_MAX,
        ),
    ] = 10_000
    max_attempts: Annotated[
        int | None,
        Rule(
            "count",
            "failed deliveries after which a message becomes a dead letter",
            1,
            limits.ATTEMPTS_MAX,
        ),
    ] = 5
    dead_letter: Annotated[
        str,
        Rule(
            "name",
            "name of the dead-letter queue; {name} stands for this queue's name",
            1,
            _DEAD_LETTER_CHARS,
        ),
    ] = "{name}_dlq"
    delay_ms: Annotated[
        int,
        Rule(
            "duration",
            "how long a new message waits before it can be delivered",
            0,
            limits.DELAY_MS_MAX,
        ),
    ] = 0
    retention_ms: Annotated[
        int,
        Rule(
            "duration",
            "how long a message is kept before it expires",
            1_000,
            limits.RETENTION_MS_MAX,
        ),
    ] = 4 * _DAY_MS
    deduplication: Annotated[
        Literal["off", "id", "content"],
        Rule("choice", "how duplicates are recognised: by deduplication id, by content, or not"),
    ] = "off"
    deduplication_window_ms: Annotated[
        int,
        Rule(
            "duration",
            "how long a message is remembered to recognise duplicates of it",
            1,
            limits.RETENTION_MS_MAX,
        ),
    ] = 300_000
    max_receive_rate: Annotated[
        float | None,
        Rule(
            "rate",
            "maximum number of messages delivered per second",
            0.001,
            limits.RECEIVE_RATE_MAX,
        ),
    ] = None
    backoff: Annotated[
        Backoff | None,
        Rule("parts", "delay before a failed message is retried; without it there is none"),
    ] = None
    fifo: Annotated[bool, Rule("switch", "deliver the messages of each group in order")] = False
    max_message_bytes: Annotated[
        int, Rule("size", _MAX_MESSAGE_BYTES, 1, limits.MESSAGE_BYTES_CEILING)
    ] = limits.MESSAGE_BYTES_MAX
    max_depth: Annotated[
        int | None,
        Rule(
            "count",
            "maximum number of messages in the queue; more are refused",
            1,
            limits.DEPTH_MAX,
        ),
    ] = None
    archive: Annotated[
        bool,
        Rule("switch", "keep pushed messages readable in an archive, the topic nexo.archive.NAME"),
    ] = False
    archive_retention_ms: Annotated[
        int,
        Rule("duration", "how long the archive keeps a message", 1_000, limits.RETENTION_MS_MAX),
    ] = 7 * _DAY_MS
    events: Annotated[
        bool,
        Rule("switch", "record what happens to each message as events in the topic nexo.events"),
    ] = True
    receive_wait_ms: Annotated[
        int,
        Rule(
            "duration",
            "default long-poll time of the SQS call ReceiveMessage",
            0,
            limits.RECEIVE_WAIT_MS_MAX,
        ),
    ] = 0
    deduplication_scope: Annotated[
        Literal["queue", "group"],
        Rule("choice", "where duplicates are looked for: in the whole queue or in each group"),
    ] = "queue"
    deduplication_scope_since_ms: Annotated[
        int, Rule("own", "before that time the other scope was in force", 0, limits.TIME_MS_MAX)
    ] = 0
    tags: Annotated[
        dict[str, str], Rule("pairs", "labels for you and your tools, each name=value")
    ] = {}
    aws: Annotated[
        dict[str, str],
        Rule("pairs", "SQS attributes that have no effect here, kept for clients that read them"),
    ] = {}


class TopicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a topic keeps: what is beyond any of these limits goes, the oldest first."""

    retention_messages: Annotated[
        int | None,
        Rule(
            "count",
            "maximum number of messages kept; the oldest are deleted first",
            1,
            limits.DEPTH_MAX,
        ),
    ] = None
    retention_ms: Annotated[
        int | None,
        Rule(
            "duration",
            "how long a message is kept",
            1_000,
            limits.RETENTION_MS_MAX,
            name="retention_seconds",
        ),
    ] = None
    retention_bytes: Annotated[
        int | None,
        Rule(
            "size",
            "maximum total size of the messages kept; the oldest are deleted first",
            1,
            limits.RETENTION_BYTES_MAX,
        ),
    ] = None
    max_message_bytes: Annotated[
        int, Rule("size", _MAX_MESSAGE_BYTES, 1, limits.MESSAGE_BYTES_CEILING)
    ] = limits.MESSAGE_BYTES_MAX
    deduplication: Annotated[
        Literal["off", "id", "content"],
        Rule("choice", "how duplicates are recognised: by deduplication id, by content, or not"),
    ] = "off"
    deduplication_scope: Annotated[
        Literal["topic", "group"],
        Rule("choice", "where duplicates are looked for: in the whole topic or in each group"),
    ] = "topic"
    tags: Annotated[
        dict[str, str], Rule("pairs", "labels for you and your tools, each name=value")
    ] = {}
    aws: Annotated[
        dict[str, str],
        Rule("pairs", "SNS attributes that have no effect here, kept for clients that read them"),
    ] = {}


# -- The declaration as data ------------------------------------------------------------------


class Setting(NamedTuple):
    """A setting as users know it: times in seconds. None switches a limit off if it takes that."""

    name: str
    field: str  # of the struct that is stored
    kind: Kind
    about: str
    default: Any
    low: float | None
    high: float | None
    takes_none: bool
    choices: tuple[str, ...]


def _declared(kind: type[msgspec.Struct]) -> tuple[Setting, ...]:
    return tuple(_setting(field, rule) for field, rule in _rules(kind) if rule.kind != "own")


def _rules(kind: type[msgspec.Struct]) -> list[tuple[msgspec.structs.FieldInfo, Rule]]:
    return [(field, field.type.__metadata__[0]) for field in msgspec.structs.fields(kind)]


def _setting(field: msgspec.structs.FieldInfo, rule: Rule) -> Setting:
    plain, _ = get_args(field.type)
    default = field.default_factory() if field.default is NODEFAULT else field.default
    low, high = rule.low, rule.high
    if rule.kind == "duration":
        default, low, high = _seconds(default), _seconds(low), _seconds(high)
    return Setting(
        name=rule.name or field.name.removesuffix("_ms"),
        field=field.name,
        kind=rule.kind,
        about=rule.about,
        default=default,
        low=low,
        high=high,
        takes_none=type(None) in get_args(plain),
        choices=get_args(plain) if get_origin(plain) is Literal else (),
    )


def _seconds(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1000


QUEUE_SETTINGS = _declared(QueueSettings)
BACKOFF_SETTINGS = _declared(Backoff)
TOPIC_SETTINGS = _declared(TopicSettings)

BACKOFF = "backoff_"  # what its parts begin with where each is a flag or a field of its own


def _flat(settings: tuple[Setting, ...]) -> list[Setting]:
    """The settings with the parts of the backoff among them."""
    flat = []
    for each in settings:
        if each.kind == "parts":
            flat += [part._replace(name=BACKOFF + part.name) for part in BACKOFF_SETTINGS]
        else:
            flat.append(each)
    return flat


def _in_families(settings: list[Setting]) -> tuple[Setting, ...]:
    """As they are shown: `deduplication_scope` beside `deduplication`. The declaration only grows
    at its end, so there it stands elsewhere."""
    places = {f"{each.name}_": place for place, each in enumerate(settings)}

    def place_of_family(setting: Setting) -> int:
        own = f"{setting.name}_"
        return min(place for name, place in places.items() if own.startswith(name))

    return tuple(sorted(settings, key=place_of_family))


FLAT_QUEUE_SETTINGS = _in_families(_flat(QUEUE_SETTINGS))

# Of each field that is a number, its lowest and highest value.
_RANGES: dict[type[msgspec.Struct], dict[str, tuple[float, float]]] = {
    kind: {
        field.name: (rule.low, rule.high)
        for field, rule in _rules(kind)
        if rule.low is not None and rule.high is not None and rule.kind != "name"
    }
    for kind in (QueueSettings, Backoff, TopicSettings)
}
_CHOICES = {each.field: each.choices for each in QUEUE_SETTINGS if each.choices}
_TOPIC_CHOICES = {each.field: each.choices for each in TOPIC_SETTINGS if each.choices}

# -- Checks -----------------------------------------------------------------------------------


def check_queue_settings(name: str, settings: QueueSettings) -> None:
    """Refuse settings that are out of range or contradict each other."""
    _check_ranges(settings)
    _check_choices(settings, _CHOICES)
    _check_tags(settings.tags, "queue")
    _check_aws(settings.aws, "queue", "SQS")
    if settings.delay_ms >= settings.retention_ms:
        raise InvalidArgument(
            "delay must be shorter than retention, or messages expire before they are delivered",
            "raise retention or lower delay",
        )
    if settings.backoff is not None:
        _check_ranges(settings.backoff)
        if settings.backoff.max_ms >= settings.retention_ms:
            raise InvalidArgument("backoff's max must be shorter than retention")
    if settings.max_attempts is None and settings.dead_letter == QueueSettings().dead_letter:
        return  # nothing becomes a dead letter by itself; a long name may have no room for "_dlq"
    check_dead_letter(name, settings)


def check_dead_letter(name: str, settings: QueueSettings) -> None:
    """Refuse a dead-letter queue that cannot be: messages on their way to it would be nowhere."""
    target = dead_letter_name(name, settings.dead_letter)
    try:
        check_name(target)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"queue {name!r} has no dead-letter queue: {error.message}",
            "set its dead_letter to the name of one",
        ) from error
    if target == name:
        raise InvalidArgument(f"queue {name!r} cannot be its own dead-letter queue")


def check_topic_settings(settings: TopicSettings) -> None:
    """Refuse settings that are out of range."""
    _check_ranges(settings)
    _check_choices(settings, _TOPIC_CHOICES)
    _check_tags(settings.tags, "topic")
    _check_aws(settings.aws, "topic", "SNS")


def check_filter(where: dict[str, str] | None) -> None:
    """Refuse a binding's filter that is out of range."""
    if where is None:
        return
    if len(where) > limits.FILTER_ATTRIBUTES_MAX:
        most = limits.FILTER_ATTRIBUTES_MAX
        raise InvalidArgument(f"a filter has at most {most} attributes, not {len(where)}")
    if any(len(text) > limits.FILTER_CHARS_MAX for pair in where.items() for text in pair):
        raise InvalidArgument(
            f"a name or value of a filter has at most {limits.FILTER_CHARS_MAX} characters"
        )


def check_room(noun: str, wanted: int, most: int) -> None:
    """Refuse more of something than a broker has room for."""
    if wanted > most:
        raise InvalidArgument(f"a broker has at most {most:,} {noun}", "delete some")


def _check_choices(
    settings: QueueSettings | TopicSettings, choices_by_field: dict[str, tuple[str, ...]]
) -> None:
    for field, choices in choices_by_field.items():
        if getattr(settings, field) not in choices:
            raise InvalidArgument(f"{field} must be {', '.join(choices[:-1])} or {choices[-1]}")


def _check_tags(tags: dict[str, str], kind: str) -> None:
    if len(tags) > limits.TAGS_MAX:
        raise InvalidArgument(f"a {kind} has at most {limits.TAGS_MAX} tags, not {len(tags)}")
    for key, value in tags.items():
        if not 1 <= len(key) <= limits.TAG_KEY_CHARS_MAX:
            raise InvalidArgument(
                f"the key of a tag has 1 to {limits.TAG_KEY_CHARS_MAX} characters, not {len(key)}"
            )
        if len(value) > limits.TAG_VALUE_CHARS_MAX:
            raise InvalidArgument(
                f"tag {key!r:.40} has a value of {len(value)} characters, at most "
                f"{limits.TAG_VALUE_CHARS_MAX} are allowed"
            )


def _check_aws(kept: dict[str, str], kind: str, service: str) -> None:
    size = sum(len(text.encode(errors="replace")) for pair in kept.items() for text in pair)
    if len(kept) > limits.AWS_SETTINGS_MAX:
        raise InvalidArgument(
            f"a {kind} keeps at most {limits.AWS_SETTINGS_MAX} attributes of {service}, "
            f"not {len(kept)}"
        )
    if size > limits.AWS_SETTINGS_BYTES_MAX:
        raise InvalidArgument(
            f"the attributes of {service} that a {kind} keeps have {size:,} bytes, at most "
            f"{limits.AWS_SETTINGS_BYTES_MAX:,} are allowed",
            "make its policy shorter",
        )


def _check_ranges(settings: msgspec.Struct) -> None:
    for field, (low, high) in _RANGES[type(settings)].items():
        value = getattr(settings, field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidArgument(f"{field} must be a number, not {value!r:.40}")
        if not low <= value <= high:
            raise InvalidArgument(_out_of_range(field, value, low, high))


def _out_of_range(field: str, value: float, low: float, high: float) -> str:
    """As people write it: 40d where 30d is the most."""
    texts = [_shown(field, each) for each in (value, low, high)]
    if value < 0 or texts[0] in texts[1:]:  # too close to a bound for a rounded text
        texts[0] = f"{value:,} ms" if field.endswith("_ms") else f"{value:,}"
    return f"{field.removesuffix('_ms')} is {texts[0]}, allowed is {texts[1]} to {texts[2]}"


def _shown(field: str, value: float) -> str:
    if field.endswith("_ms"):
        return show_duration(value / 1000)
    return show_size(value) if field.endswith("_bytes") else f"{value:,}"


# -- Between users and the broker -------------------------------------------------------------

_Settings = TypeVar("_Settings", QueueSettings, TopicSettings)


def queue_params(options: QueueOptions) -> dict[str, Any]:
    """What a user wrote, as the broker takes it."""
    params = _params(dict(options), QUEUE_SETTINGS, "queue")
    backoff = params.get("backoff")
    if backoff is not None:
        if isinstance(backoff, users.Backoff):
            backoff = msgspec.structs.asdict(backoff)
        if not isinstance(backoff, dict):
            raise InvalidArgument("backoff must be a Backoff or a dict of its fields")
        params["backoff"] = _params(backoff, BACKOFF_SETTINGS, "backoff")
    return params


def topic_params(options: TopicOptions) -> dict[str, Any]:
    return _params(dict(options), TOPIC_SETTINGS, "topic")


def user_queue_settings(stored: QueueSettings | dict[str, Any]) -> users.QueueSettings:
    """What the broker has, as users read it; a client has it as a map."""
    values = _values(stored, QUEUE_SETTINGS)
    if values.get("backoff") is not None:
        values["backoff"] = users.Backoff(**_values(values["backoff"], BACKOFF_SETTINGS))
    return users.QueueSettings(**values)


def user_topic_settings(stored: TopicSettings | dict[str, Any]) -> users.TopicSettings:
    return users.TopicSettings(**_values(stored, TOPIC_SETTINGS))


def queue_settings_of(given: GivenQueueSettings, now: QueueSettings | None = None) -> QueueSettings:
    """What a queue is to do from now on: as given, for the rest as it is now or by default."""
    return _whole(queue_params(msgspec.to_builtins(given)), now or QueueSettings())


def topic_settings_of(given: GivenTopicSettings, now: TopicSettings | None = None) -> TopicSettings:
    return _whole(topic_params(msgspec.to_builtins(given)), now or TopicSettings())


def given_queue_settings(settings: QueueSettings) -> GivenQueueSettings:
    """All settings of a queue, as a document that gives them."""
    return msgspec.convert(user_queue_settings(settings), GivenQueueSettings, from_attributes=True)


def given_topic_settings(settings: TopicSettings) -> GivenTopicSettings:
    return msgspec.convert(user_topic_settings(settings), GivenTopicSettings, from_attributes=True)


def differing_settings(
    settings: QueueSettings | TopicSettings, now: QueueSettings | TopicSettings
) -> list[str]:
    """The settings that are not as they are now, in the users' words."""
    declared = QUEUE_SETTINGS if isinstance(now, QueueSettings) else TOPIC_SETTINGS
    return [
        each.name for each in declared if getattr(settings, each.field) != getattr(now, each.field)
    ]


def _params(options: dict[str, Any], settings: tuple[Setting, ...], kind: str) -> dict[str, Any]:
    known = {each.name: each for each in settings}
    params = {}
    for name, value in options.items():
        setting = known.get(name)
        if setting is None:
            raise InvalidArgument(
                f"{name!r:.60} is not a setting of a {kind}", f"settings: {', '.join(known)}"
            )
        is_time = setting.kind == "duration" and value is not None
        params[setting.field] = milliseconds(value, name) if is_time else value
    return params


def _values(
    stored: msgspec.Struct | dict[str, Any], settings: tuple[Setting, ...]
) -> dict[str, Any]:
    """Of what the broker told, all that this client knows: a newer broker may tell more."""
    told = msgspec.to_builtins(stored)
    return {
        each.name: _seconds(told[each.field]) if each.kind == "duration" else told[each.field]
        for each in settings
        if each.field in told
    }


def _whole(params: dict[str, Any], now: _Settings) -> _Settings:
    try:
        return msgspec.convert({**msgspec.to_builtins(now), **params}, type(now))
    except msgspec.ValidationError as error:
        raise InvalidArgument(str(error)) from None
