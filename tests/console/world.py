"""A broker with something to look at: queues of a shop, work that goes well and work that does
not, topics with groups, a Spark query that holds a batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nexo.client import requests
from nexo.client.address import address_of
from nexo.client.blocking.connection import Connection
from nexo.wire import calls

if TYPE_CHECKING:
    from nexo import Client

SCRIPT = "<script>document.title='taken over'</script><img src=x onerror=alert(1)>"
RIGHT_TO_LEFT = "safe\u202eexe.gpj \u2066hidden\u2069 שלום"
BINARY = bytes(range(256)) * 8
LARGE = (b"<b>" + b"x" * 60 + b"</b>\n") * 16_384  # beyond a mebibyte
CONSUMER = "orders-to-lake"
REASONS = ("no stock", "card declined: insufficient funds", "the bank did not answer in 30 s")


def fill(client: Client, url: str, with_strangers: bool = True) -> None:
    """Everything that the pages show, through the native protocol; with what strangers may send,
    which belongs into tests and not into pictures."""
    _shop(client)
    _dead_letters(client)
    _topics(client)
    if with_strangers:
        _hostile(client)
    claim(url, "lake-feed", CONSUMER, 40)


def _shop(client: Client) -> None:
    for name, count in (("emails", 320), ("thumbnails", 1_250), ("invoices", 12), ("search", 0)):
        queue = client.create_queue(name)
        queue.push_batch([json.dumps({"job": name, "number": n}) for n in range(count + 30)])
        for message in queue.pop_batch(30):
            message.ack()
    # Longer than anybody looks at it: what is in flight stays so.
    orders = client.create_queue("orders", max_attempts=3, visibility_timeout=600)
    bodies = [
        json.dumps({"order": 1_000 + n, "items": [{"sku": f"A-{n}", "count": n % 5 + 1}]})
        for n in range(200)
    ]
    orders.push_batch(bodies)
    orders.push("urgent", priority=9, attributes={"channel": "phone", "agent": "Ada"})
    orders.push("tomorrow", delay=3_600)
    for message in orders.pop_batch(60):
        message.ack()
    orders.pop_batch(20)
    client.create_queue("lake-feed").push_batch([f"row {n}" for n in range(500)])
    paused = client.create_queue("reports")
    paused.push("weekly report")
    paused.pause()
    client.create_queue("ledger.fifo", fifo=True).push("entry", group_id="account-7")


def _dead_letters(client: Client) -> None:
    payments = client.create_queue("payments", max_attempts=2)
    for number in range(9):
        payments.push(json.dumps({"payment": number, "amount": 12.5 * number}))
    for _ in range(2):
        for place, message in enumerate(payments.pop_batch(9)):
            message.nack(delay=0, reason=REASONS[place % len(REASONS)])


def _hostile(client: Client) -> None:
    queue = client.create_queue("hostile")
    queue.push(SCRIPT, attributes={"<b>name</b>": SCRIPT})
    queue.push(RIGHT_TO_LEFT)
    queue.push(BINARY)
    queue.push(LARGE[: 1024 * 1024])
    queue.push("[" * 50_000)
    queue.push(json.dumps({"html": SCRIPT, "number": 12345678901234567890}))
    failing = client.create_queue("strange", max_attempts=1)
    failing.push(SCRIPT)
    for message in failing.pop_batch(1):
        message.nack(reason=SCRIPT)
    client.topic("prices").publish(SCRIPT, attributes={"<b>name</b>": SCRIPT})


def _topics(client: Client) -> None:
    prices = client.create_topic("prices", retention_messages=100_000)
    prices.bind("billing")
    prices.bind("shop-window", where={"region": "eu"})
    for number in range(40):
        region = ("eu", "us", "asia")[number % 3]
        body = json.dumps({"item": number, "price": number / 4})
        prices.publish(body, attributes={"region": region})


def claim(url: str, queue: str, consumer: str, count: int) -> None:
    """What the driver of a Spark query does: finish one batch, hold the next."""
    connection = Connection(address_of(url, None, True), None, 10.0, 5.0, "driver")

    try:
        epoch = connection.run(requests.call(calls.OpenClaims(queue, consumer)))
        for number in (1, 2):
            wanted = calls.Claim(queue, consumer, epoch, number - 1, count, 600_000, 10**6)
            connection.run(requests.call(wanted))
            connection.run(requests.call(calls.SealClaim(queue, consumer, epoch, number)))
    finally:
        connection.close()
