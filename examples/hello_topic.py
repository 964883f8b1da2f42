"""Topics on one page: publish, read, subscribe by pattern, consumer groups, and events.

    nexo serve &
    python examples/hello_topic.py

It prints:

    read: order 1, order 2, order 3
    follow fleet.*.position: fleet.7.position says 52.5,13.4
    packing works on order 1, order 2, order 3
    mailing works on order 1, order 2, order 3
    the broker tells: pushed 3, delivered 3, received 3, acked 3
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import nexo

if TYPE_CHECKING:
    from nexo.client.blocking.subscription import Subscription
    from nexo.client.blocking.topic import GroupMessage

ORDERS = ("order 1", "order 2", "order 3")


def main(url: str | None = None) -> None:
    with nexo.connect(url) as client:
        orders = client.create_topic("orders", retention_messages=1_000, retention_seconds=86_400)
        orders.publish_batch(ORDERS, attributes={"region": "eu"})  # returns when on disk
        print("read:", ", ".join(event.text for event in orders.read(offset=0)))

        # A pattern stands for topics that are there and for those that come later.
        with client.topic("fleet.*.position").subscribe() as positions:
            client.create_topic("fleet.7.position").publish("52.5,13.4")
            event = positions.get(timeout=10)
            if event is not None:
                print(f"follow fleet.*.position: {event.topic} says {event.text}")

        # Two groups: each gets everything, and its members share the work.
        for group in ("packing", "mailing"):
            with orders.subscribe(group=group, start="earliest") as events:
                print(group, "works on", ", ".join(_work(events)))

        print("the broker tells:", _life(client, "orders.packing"))


def _work(events: Subscription[GroupMessage]) -> list[str]:
    """Take what is there. Leaving the block acks; an exception would give the event back."""
    done: list[str] = []
    while len(done) < len(ORDERS) and (event := events.get(timeout=10)) is not None:
        with event:
            done.append(event.text)
    return done


def _life(client: nexo.Client, queue: str) -> str:
    """What `nexo.events` says about a queue, in the order in which it happened."""
    counts: Counter[str] = Counter()
    with client.topic("nexo.events").subscribe(start="earliest") as lives:
        while counts["acked"] < len(ORDERS) and (event := lives.get(timeout=10)) is not None:
            told = event.json()
            if told["queue"] == queue:
                counts[told["kind"]] += told["count"]
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())


if __name__ == "__main__":
    main(*sys.argv[1:])
