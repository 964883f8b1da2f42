"""Which address has subscribed to what. It lives as long as the address is heard of, and a restart
of the broker forgets it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from nexo.vocabulary.errors import RateLimited
from nexo.vocabulary.limits import (
    UDP_SUBSCRIBERS_MAX,
    UDP_SUBSCRIPTION_IDLE_S,
    UDP_SUBSCRIPTIONS_MAX,
)

if TYPE_CHECKING:
    from nexo.doors.json_udp.addresses import Address


class _Subscriber:
    __slots__ = ("heard_s", "topics")

    def __init__(self, heard_s: float) -> None:
        self.heard_s = heard_s
        self.topics: set[str] = set()


class Subscriptions:
    def __init__(
        self,
        addresses_max: int = UDP_SUBSCRIBERS_MAX,
        topics_max: int = UDP_SUBSCRIPTIONS_MAX,
        idle_s: float = UDP_SUBSCRIPTION_IDLE_S,
    ) -> None:
        self._addresses_max = addresses_max
        self._topics_max = topics_max
        self._idle_s = idle_s
        # The longest silent first.
        self._subscribers: OrderedDict[Address, _Subscriber] = OrderedDict()

    def __len__(self) -> int:
        return len(self._subscribers)

    def hear(self, address: Address, now_s: float) -> None:
        """The address is alive, if it has subscribed to anything."""
        subscriber = self._subscribers.get(address)
        if subscriber is None or subscriber.heard_s == now_s:
            return
        if now_s - subscriber.heard_s < self._idle_s:
            subscriber.heard_s = now_s
            self._subscribers.move_to_end(address)
        else:
            del self._subscribers[address]

    def add(self, address: Address, topic: str, now_s: float) -> None:
        """Subscribe; refused where there is no room."""
        self._forget(now_s)
        subscriber = self._subscribers.get(address)
        if subscriber is None:
            if len(self._subscribers) >= self._addresses_max:
                raise RateLimited(f"{self._addresses_max} addresses have subscribed already")
            subscriber = self._subscribers[address] = _Subscriber(now_s)
        if topic not in subscriber.topics and len(subscriber.topics) >= self._topics_max:
            raise RateLimited(f"this address has subscribed to {self._topics_max} topics already")
        subscriber.topics.add(topic)

    def drop(self, address: Address, topic: str) -> None:
        subscriber = self._subscribers.get(address)
        if subscriber is not None:
            subscriber.topics.discard(topic)
            if not subscriber.topics:
                del self._subscribers[address]

    def has(self, address: Address, topic: str) -> bool:
        """Whether the address, which has just been heard, has subscribed to the topic."""
        subscriber = self._subscribers.get(address)
        return subscriber is not None and topic in subscriber.topics

    def _forget(self, now_s: float) -> None:
        """Forget who has been silent for too long: they stand first."""
        while self._subscribers:
            address, subscriber = next(iter(self._subscribers.items()))
            if now_s - subscriber.heard_s < self._idle_s:
                return
            del self._subscribers[address]
