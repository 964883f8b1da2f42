"""Topics: create, delete, list, their attributes and their tags."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING

import msgspec

from nexo.doors.sns_http.errors import SnsError, invalid, missing, told
from nexo.doors.sns_http.form import Entries
from nexo.doors.sns_http.names import is_reserved
from nexo.engine.listing import page
from nexo.vocabulary.limits import (
    NAME_CHARS_MAX,
    SNS_RETENTION_BYTES,
    SNS_RETENTION_MS,
    TAG_KEY_CHARS_MAX,
    TAG_VALUE_CHARS_MAX,
    TAGS_MAX,
)
from nexo.vocabulary.names import FIFO_SUFFIX
from nexo.vocabulary.settings import TopicSettings

if TYPE_CHECKING:
    from nexo.doors.sns_http.app import Call
    from nexo.doors.sns_http.form import Given, Result
    from nexo.engine.topic_actor import TopicActor

PAGE = 100  # topics or subscriptions that one list has at most, as on AWS
_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}")
_DISPLAY_CHARS_MAX = 100
_POLICIES = frozenset({"Policy", "DeliveryPolicy", "ArchivePolicy"})
_FEEDBACK = re.compile(
    r"(HTTP|SQS|Lambda|Firehose|Application)"
    r"(SuccessFeedbackRoleArn|SuccessFeedbackSampleRate|FailureFeedbackRoleArn)"
)
_KEPT = _POLICIES | {"DisplayName", "KmsMasterKeyId", "SignatureVersion", "TracingConfig"}
_OF_FIFO = frozenset({"ContentBasedDeduplication", "FifoThroughputScope"})
_SCOPES = {"Topic": "topic", "MessageGroup": "group"}
_SWITCH = {"true": True, "false": False}


# -- Topics -----------------------------------------------------------------------------------


async def create_topic(call: Call, given: Given) -> Result:
    plain = given.needed("Name")
    attributes = given.texts_by_name("Attributes")
    is_fifo = _switched("FifoTopic", attributes.pop("FifoTopic", "false"))
    _check_name(plain, is_fifo)
    tags = _read_tags(given)
    name = call.names.scoped(plain, call.place)
    call.check(name)
    settings = TopicSettings(
        # SNS keeps nothing once it is delivered. A while of it stays for native readers.
        retention_ms=SNS_RETENTION_MS,
        retention_bytes=SNS_RETENTION_BYTES,
        deduplication="id" if is_fifo else "off",
        tags=tags,
    )
    for attribute, value in attributes.items():
        settings = _changed(settings, attribute, value, is_fifo, "Attributes Reason: ")
    known = call.engine.topics.get(name)
    if known is None:
        await call.engine.create_topic(name, settings)
    else:
        _check_same(call, known, attributes, tags, is_fifo)
    return {"TopicArn": call.names.topic_arn(name)}


async def delete_topic(call: Call, given: Given) -> None:
    """One that is not there is deleted already."""
    name = call.names.topic_of(given.needed("TopicArn"), call.place.region)
    call.check(name)
    if name in call.engine.topics and not is_reserved(name):
        await call.engine.delete_topic(name)


async def list_topics(call: Call, given: Given) -> Result:
    after = read_token(given.text("NextToken"))
    names, following = await page(call.engine.topics, after, PAGE, call.knows)
    result: Result = {"Topics": [{"TopicArn": call.names.topic_arn(name)} for name in names]}
    if following is not None:
        result["NextToken"] = written_token(following)
    return result


def written_token(after: str) -> str:
    return b64encode(after.encode()).decode()


def read_token(token: str | None) -> str:
    """Behind which name a list goes on."""
    try:
        return b64decode(token or "", validate=True).decode()
    except (NotBase64, ValueError):
        raise invalid("NextToken") from None


def _check_name(plain: str, is_fifo: bool) -> None:
    stem = plain.removesuffix(FIFO_SUFFIX) if is_fifo else plain
    if not _NAME.fullmatch(stem) or (is_fifo and stem == plain):
        raise invalid("Topic Name")
    if len(plain) > NAME_CHARS_MAX:
        raise invalid(f"Topic Name Reason: a name has at most {NAME_CHARS_MAX} characters here")


def _check_same(
    call: Call, known: TopicActor, attributes: dict[str, str], tags: dict[str, str], is_fifo: bool
) -> None:
    """What is created again must be what it is already."""
    now = _shown(call, known)
    is_other = any(now.get(name) != value for name, value in attributes.items())
    if is_other or is_fifo != known.name.endswith(FIFO_SUFFIX):
        raise invalid("Attributes Reason: Topic already exists with different attributes")
    kept = known.info().settings.tags
    if any(kept.get(key) != value for key, value in tags.items()):
        raise invalid("Tags Reason: Topic already exists with different tags")


# -- Attributes -------------------------------------------------------------------------------


async def get_topic_attributes(call: Call, given: Given) -> Result:
    topic = call.topic(given.needed("TopicArn"))
    return {"Attributes": _shown(call, topic)}


async def set_topic_attributes(call: Call, given: Given) -> None:
    topic = call.topic(given.needed("TopicArn"))
    name, value = given.needed("AttributeName"), given.text("AttributeValue") or ""
    is_fifo = topic.name.endswith(FIFO_SUFFIX)
    settings = _changed(topic.info().settings, name, value, is_fifo, "")
    await call.engine.edit_topic(topic.name, settings)


def _changed(
    settings: TopicSettings, name: str, value: str, is_fifo: bool, prefix: str
) -> TopicSettings:
    """The settings of a topic with an attribute of SNS; `prefix` is what refusals begin with."""
    if name in _OF_FIFO:
        if not is_fifo:
            raise invalid(f"{prefix}{name} can only be set on a FIFO topic")
        if name == "FifoThroughputScope":
            if value not in _SCOPES:
                raise invalid(f"{prefix}FifoThroughputScope: Invalid value [{told(value)}]")
            return msgspec.structs.replace(settings, deduplication_scope=_SCOPES[value])
        wanted = "content" if _switched(name, value, prefix) else "id"
        return msgspec.structs.replace(settings, deduplication=wanted)
    if name not in _KEPT and not _FEEDBACK.fullmatch(name):
        raise invalid("AttributeName" if not prefix else f"{prefix}Unknown attribute {told(name)}")
    if name in _POLICIES and value:
        _check_json(f"{prefix}{name}", value)
    if name == "DisplayName" and len(value) > _DISPLAY_CHARS_MAX:
        raise invalid(f"{prefix}DisplayName")
    if name == "SignatureVersion" and value not in ("1", "2"):
        raise invalid(f"{prefix}SignatureVersion: Invalid value [{told(value)}]")
    kept = {**settings.aws, name: value}
    if not value:
        del kept[name]
    return msgspec.structs.replace(settings, aws=kept)


def _shown(call: Call, topic: TopicActor) -> Entries:
    settings, bound = topic.info().settings, topic.bound_queues()
    arn = call.names.topic_arn(topic.name)
    place, _ = call.names.place_of(topic.name)
    shown = Entries(
        TopicArn=arn,
        Owner=place.account,
        DisplayName="",
        SubscriptionsConfirmed=str(len(bound)),
        SubscriptionsPending="0",
        SubscriptionsDeleted="0",
        Policy=_default_policy(arn, place.account),
        EffectiveDeliveryPolicy=_DELIVERY,
    )
    shown.update(settings.aws)
    if "DeliveryPolicy" in settings.aws:
        shown["EffectiveDeliveryPolicy"] = settings.aws["DeliveryPolicy"]
    if topic.name.endswith(FIFO_SUFFIX):
        scopes = {ours: theirs for theirs, ours in _SCOPES.items()}
        shown["FifoTopic"] = "true"
        is_by_content = settings.deduplication == "content"
        shown["ContentBasedDeduplication"] = "true" if is_by_content else "false"
        shown["FifoThroughputScope"] = scopes[settings.deduplication_scope]
    return shown


def _default_policy(arn: str, account: str) -> str:
    actions = "GetTopicAttributes SetTopicAttributes AddPermission RemovePermission DeleteTopic"
    actions += " Subscribe ListSubscriptionsByTopic Publish"
    statement = {
        "Sid": "__default_statement_ID",
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": [f"SNS:{each}" for each in actions.split()],
        "Resource": arn,
        "Condition": {"StringEquals": {"AWS:SourceOwner": account}},
    }
    policy = {"Version": "2008-10-17", "Id": "__default_policy_ID", "Statement": [statement]}
    return msgspec.json.encode(policy).decode()


_DELIVERY = msgspec.json.encode(
    {
        "http": {
            "defaultHealthyRetryPolicy": {
                "minDelayTarget": 20,
                "maxDelayTarget": 20,
                "numRetries": 3,
                "numMaxDelayRetries": 0,
                "numNoDelayRetries": 0,
                "numMinDelayRetries": 0,
                "backoffFunction": "linear",
            },
            "disableSubscriptionOverrides": False,
            "defaultRequestPolicy": {"headerContentType": "text/plain; charset=UTF-8"},
        }
    }
).decode()


def _switched(name: str, value: str, prefix: str = "Attributes Reason: ") -> bool:
    found = _SWITCH.get(value.lower())
    if found is None:
        raise invalid(f"{prefix}{name}: Invalid value [{told(value)}]. Must be true or false.")
    return found


def _check_json(name: str, value: str) -> None:
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise invalid(f"{name}: failed to parse JSON.") from None
    if not isinstance(found, dict):
        raise invalid(f"{name}: failed to parse JSON.")


# -- Tags -------------------------------------------------------------------------------------


async def tag_resource(call: Call, given: Given) -> Result:
    topic = _tagged(call, given)
    if not given.members("Tags"):
        raise missing("Tags")
    settings = topic.info().settings
    tags = _checked_tags({**settings.tags, **_read_tags(given)})
    await call.engine.edit_topic(topic.name, msgspec.structs.replace(settings, tags=tags))
    return {}


async def untag_resource(call: Call, given: Given) -> Result:
    topic = _tagged(call, given)
    settings = topic.info().settings
    gone = [each for each in given.members("TagKeys") if isinstance(each, str)]
    tags = {key: value for key, value in settings.tags.items() if key not in gone}
    await call.engine.edit_topic(topic.name, msgspec.structs.replace(settings, tags=tags))
    return {}


async def list_tags_for_resource(call: Call, given: Given) -> Result:
    tags = _tagged(call, given).info().settings.tags
    return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def _tagged(call: Call, given: Given) -> TopicActor:
    try:
        return call.topic(given.needed("ResourceArn"), "ResourceArn")
    except SnsError as error:
        if error.aws_code == "NotFound":
            raise SnsError("ResourceNotFound", "Resource does not exist") from None
        raise


def _read_tags(given: Given) -> dict[str, str]:
    tags: dict[str, str] = {}
    for each in given.members("Tags"):
        key = each.get("Key") if isinstance(each, dict) else None
        value = each.get("Value", "") if isinstance(each, dict) else None
        if not isinstance(key, str) or not isinstance(value, str):
            raise invalid("Tags Reason: a tag has a Key and a Value")
        if key in tags:
            raise invalid("Duplicated keys are not allowed.")
        tags[key] = value
    return _checked_tags(tags)


def _checked_tags(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > TAGS_MAX:
        raise SnsError(
            "TagLimitExceeded", "Could not complete request: tag quota of per resource exceeded"
        )
    for key, value in tags.items():
        if not 1 <= len(key) <= TAG_KEY_CHARS_MAX or key.lower().startswith("aws:"):
            raise invalid(
                f"Tags Reason: a key has 1 to {TAG_KEY_CHARS_MAX} characters and does not begin "
                "with aws:"
            )
        if len(value) > TAG_VALUE_CHARS_MAX:
            raise invalid(f"Tags Reason: a value has at most {TAG_VALUE_CHARS_MAX} characters")
    return tags
