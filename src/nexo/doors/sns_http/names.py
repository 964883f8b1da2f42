"""What topics, subscriptions and queues are called: by ARNs outside, by names in the broker.

Those of the default account and region have their plain names in the broker, as queues do; others
have account and region before them. A subscription is called by its topic and the life of its
queue, so it needs no table: the same queue on the same topic has the same ARN again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nexo.doors.sns_http.errors import invalid
from nexo.vocabulary import sns, sqs
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import parse_message_id
from nexo.vocabulary.names import RESERVED_PREFIX, scope_of

_ACCOUNT = re.compile(r"\d{12}")
_REGION = re.compile(r"[a-z0-9-]{1,32}")
_PARTS = 6  # of an ARN


class Place(NamedTuple):
    account: str
    region: str


class Names:
    def __init__(self, account: str, region: str) -> None:
        self.default = Place(account, region)

    def scoped(self, plain: str, place: Place) -> str:
        return plain if place == self.default else f"{place.account}/{place.region}/{plain}"

    def place_of(self, name: str) -> tuple[Place, str]:
        """Where what has this name lives, and its plain name."""
        scope = scope_of(name)
        return (self.default, name) if scope is None else (Place(*scope[:2]), scope[2])

    def topic_arn(self, name: str) -> str:
        place, plain = self.place_of(name)
        return sns.topic_arn(place.account, place.region, plain)

    def queue_arn(self, name: str) -> str:
        place, plain = self.place_of(name)
        return sqs.arn_of(place.account, place.region, plain)

    def topic_of(self, arn: str, region: str, parameter: str = "TopicArn") -> str:
        """The topic that an ARN means. As on AWS, one of another region is not spoken of here."""
        parts = _parted(arn, parameter)
        if len(parts) != _PARTS or not _is_of("sns", parts) or parts[3] != region:
            raise invalid(parameter)
        return self.scoped(parts[5], Place(parts[4], parts[3]))

    def queue_of(self, arn: str) -> str:
        parts = arn.split(":", _PARTS)
        if len(parts) != _PARTS or not _is_of("sqs", parts):
            raise invalid("SQS endpoint ARN")
        return self.scoped(parts[5], Place(parts[4], parts[3]))

    def subscription_of(self, arn: str, region: str) -> tuple[str, int | None]:
        """The topic of a subscription, and the life of its queue; None: there is none like it."""
        parts = _parted(arn, "SubscriptionArn")
        if len(parts) != _PARTS + 1:
            raise invalid("SubscriptionId")
        topic = self.topic_of(":".join(parts[:_PARTS]), region, "SubscriptionArn")
        try:
            incarnation, number = parse_message_id(parts[_PARTS])
        except InvalidArgument:
            return topic, None
        return topic, incarnation if number == 0 else None


def is_reserved(name: str) -> bool:
    """Whether a topic belongs to the broker: SNS knows nothing of it."""
    return name.startswith(RESERVED_PREFIX)


def _parted(arn: str, parameter: str) -> list[str]:
    parts = arn.split(":", _PARTS)
    if len(parts) < _PARTS:
        raise invalid(
            f"{parameter} Reason: An ARN must have at least {_PARTS} elements, not {len(parts)}"
        )
    return parts


def _is_of(service: str, parts: list[str]) -> bool:
    arn, _, named, region, account, plain = parts[:_PARTS]
    is_placed = _REGION.fullmatch(region) and _ACCOUNT.fullmatch(account)
    return arn == "arn" and named == service and bool(is_placed) and bool(plain)
