"""Which names a user may give, and which names follow from them."""

import pytest

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.names import (
    archive_name,
    check_name,
    dead_letter_name,
    events_name,
    events_shard,
    is_events,
    scope_of,
)


@pytest.mark.parametrize("name", ["a", "orders.fifo", "A-b_9.", "x" * 80, "nexo", "Nexo.events"])
def test_name_is_allowed(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "x" * 81, "a b", "a/b", "é", "a\n", "{name}_dlq"])
def test_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a queue name"):
        check_name(name)


def test_refusal_names_the_kind() -> None:
    with pytest.raises(InvalidArgument, match="is not a topic name"):
        check_name("", "topic")


@pytest.mark.parametrize("name", ["nexo.events", "nexo.", "nexo.archive.orders"])
def test_names_of_the_broker_are_reserved(name: str) -> None:
    with pytest.raises(InvalidArgument, match="reserved"):
        check_name(name)


@pytest.mark.parametrize(
    ("queue", "template", "expected"),
    [
        ("orders", "{name}_dlq", "orders_dlq"),
        ("orders.fifo", "{name}_dlq", "orders_dlq.fifo"),
        ("orders", "graveyard", "graveyard"),
        ("orders.fifo", "graveyard", "graveyard"),
    ],
)
def test_dead_letter_queue_is_named_after_its_queue(
    queue: str, template: str, expected: str
) -> None:
    assert dead_letter_name(queue, template) == expected


def test_archive_is_named_after_its_queue() -> None:
    assert archive_name("orders") == "nexo.archive.orders"


@pytest.mark.parametrize("name", ["123456789012/eu-west-1/orders", "000000000000/a/" + "x" * 80])
def test_queues_of_other_accounts_and_regions_have_longer_names(name: str) -> None:
    check_name(name)
    assert "/".join(scope_of(name) or ()) == name
    assert dead_letter_name("123456789012/eu-west-1/orders", "{name}_dlq").endswith("/orders_dlq")


@pytest.mark.parametrize(
    "name",
    [
        "12345678901/eu-west-1/orders",
        "123456789012/EU/orders",
        "123456789012/eu-west-1/",
        "123456789012//orders",
        "123456789012/eu-west-1/" + "x" * 81,
        "123456789012/eu-west-1/a/b",
    ],
)
def test_other_slashes_are_refused(name: str) -> None:
    assert scope_of(name) is None
    with pytest.raises(InvalidArgument):
        check_name(name)


def test_topics_have_accounts_too() -> None:
    check_name("123456789012/eu-west-1/orders", "topic")
    with pytest.raises(InvalidArgument, match="not a topic name"):
        check_name("12345/eu-west-1/orders", "topic")


def test_reserved_names_are_reserved_in_every_account() -> None:
    with pytest.raises(InvalidArgument, match="reserved"):
        check_name("123456789012/eu-west-1/nexo.orders")


def test_topics_of_events() -> None:
    assert all(map(is_events, ("nexo.events", "nexo.events.0", "nexo.events.63")))
    for other in (
        "nexo.event",
        "nexo.events.",
        "nexo.events.x",
        "nexo.events.1.2",
        "a.nexo.events",
    ):
        assert not is_events(other)
        assert events_shard(other) is None
    assert events_shard("nexo.events") is None
    assert events_shard(events_name(17)) == 17
