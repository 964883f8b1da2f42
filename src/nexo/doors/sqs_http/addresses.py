"""How a queue is called: by URL, by ARN, and by name inside the broker.

A queue of the default account and region has its plain name, so that it is the same queue for the
native client. One of another account or region is called `123456789012/eu-west-1/orders`.
"""

from __future__ import annotations

from typing import NamedTuple

from nexo.vocabulary.limits import SQS_QUEUE_URL_CHARS_REMEMBERED
from nexo.vocabulary.names import scope_of

DEFAULT_ACCOUNT = "000000000000"
DEFAULT_REGION = "us-east-1"
_RESOLVED_MAX = 10_000  # addresses whose queue is remembered


class Place(NamedTuple):
    """Whose queues, and where."""

    account: str
    region: str


class Addresses:
    def __init__(self, account: str = DEFAULT_ACCOUNT, region: str = DEFAULT_REGION) -> None:
        self.default = Place(account, region)
        self._resolved: dict[tuple[str, Place], str] = {}

    def name_of(self, queue_url: str, caller: Place) -> str:
        """The queue that a URL means, whatever its host; or a plain name of the caller's."""
        key = (queue_url, caller)
        name = self._resolved.get(key)
        if name is None:
            # Only what stands last counts: a long one is not parted into millions of pieces.
            path = queue_url.split("?", 1)[0].rstrip("/")
            segments = [part for part in path.rsplit("/", 2) if part]
            account = segments[-2] if len(segments) > 1 else ""
            if not (len(account) == 12 and account.isdecimal()):
                account = caller.account
            plain = segments[-1] if segments else ""
            name = self.scoped(plain, Place(account, caller.region))
            # What is longer is nobody's queue, and must not fill the memory.
            if len(queue_url) <= SQS_QUEUE_URL_CHARS_REMEMBERED:
                if len(self._resolved) >= _RESOLVED_MAX:
                    self._resolved.clear()
                self._resolved[key] = name
        return name

    def scoped(self, plain: str, place: Place) -> str:
        return plain if place == self.default else f"{place.account}/{place.region}/{plain}"

    def place_of(self, name: str) -> tuple[Place, str]:
        """Where a queue of this name lives, and its plain name."""
        scope = scope_of(name)
        if scope is None:
            return self.default, name
        return Place(scope[0], scope[1]), scope[2]

    def arn_of(self, name: str) -> str:
        place, plain = self.place_of(name)
        return f"arn:{partition(place.region)}:sqs:{place.region}:{place.account}:{plain}"

    def named_by(self, arn: str) -> str | None:
        """The queue that an ARN means; None if it is no ARN of a queue."""
        parts = arn.split(":", 6)
        if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sqs" or not all(parts):
            return None
        return self.scoped(parts[5], Place(parts[4], parts[3]))

    def url_of(self, name: str, origin: str) -> str:
        """The URL under which a client that came to `origin` reaches the queue."""
        place, plain = self.place_of(name)
        return f"{origin}/{place.account}/{plain}"


def partition(region: str) -> str:
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"
