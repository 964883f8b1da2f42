"""Which names a user may give, and which names follow from them."""

import pytest

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.names import archive_name, check_name, dead_letter_name


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
