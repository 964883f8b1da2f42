"""The catalog: what is defined, bound and deleted costs what is its own, and snapshots hold it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from nexo.machine.catalog import (
    Catalog,
    CatalogImage,
    decode_catalog_image,
    encoded_in_steps,
    fold_catalog,
)
from nexo.vocabulary import changes as c
from nexo.vocabulary import limits
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from tests.work import steps_of

if TYPE_CHECKING:
    from collections.abc import Callable

Plain = dict[tuple[str, str], dict[str, str] | None]  # topic and queue → filter


class Compared(c.Bound, frozen=True):
    """A binding that cannot be compared without being counted."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, c.Bound) and (self.topic, self.queue, self.where) == (
            other.topic,
            other.queue,
            other.where,
        )

    def __hash__(self) -> int:
        return hash((self.topic, self.queue))


def filled(pairs: int) -> Catalog:
    """So many topics with a queue each."""
    catalog = Catalog()
    for number in range(pairs):
        catalog.define_topic(f"t{number}", TopicSettings(), 1)
        catalog.define_queue(f"q{number}", QueueSettings(), number, 1)
        catalog.bind(f"t{number}", f"q{number}")
    return catalog


def test_what_is_bound_follows_every_step() -> None:
    """Against a plain dict, in any order; queues and topics share their names."""
    random, catalog, plain = Random(15), Catalog(), Plain()
    names = [f"n{number}" for number in range(8)]
    for step in range(3_000):
        topic, queue = random.choice(names), random.choice(names)
        what = random.randrange(6)
        if what == 0:
            catalog.define_topic(topic, TopicSettings(), step)
        elif what == 1:
            catalog.define_queue(queue, QueueSettings(), step, step)
        elif what == 2 and topic in catalog.topics and not step % 3:
            catalog.drop_topic(topic)
            plain = {pair: where for pair, where in plain.items() if pair[0] != topic}
        elif what == 3 and queue in catalog.queues and not step % 3:
            catalog.drop_queue(queue)
            plain = {pair: where for pair, where in plain.items() if pair[1] != queue}
        elif topic in catalog.topics and queue in catalog.queues:
            if what == 4:
                catalog.unbind(topic, queue)
                plain.pop((topic, queue), None)
            else:
                where = random.choice([None, {"a": "b"}])
                assert catalog.bind(topic, queue, where) == ((topic, queue) not in plain)
                plain[topic, queue] = where
        assert bound(catalog) == plain
        for name in catalog.queues:
            expected = {pair[0] for pair in plain if pair[1] == name}
            assert set(catalog.topics_of(name)) == expected
    assert fold_catalog(CatalogImage(), [catalog.changes]) == catalog.image()
    assert Catalog(catalog.image()).image() == catalog.image()


def bound(catalog: Catalog) -> Plain:
    found = Plain()
    for topic in catalog.topics.values():
        for each in catalog.bound_to(topic.owner):
            queue = catalog.definition(each.queue)
            assert isinstance(queue, c.QueueDefined)
            assert catalog.is_bound(topic.name, queue.name)
            found[topic.name, queue.name] = each.where
    return found


WORKS: dict[str, Callable[[Catalog], object]] = {
    "define a queue": lambda catalog: catalog.define_queue("new", QueueSettings(), 7, 1),
    "define a topic": lambda catalog: catalog.define_topic("new", TopicSettings(), 1),
    "bind": lambda catalog: catalog.bind("t5", "q9"),
    "bind again": lambda catalog: catalog.bind("t5", "q5"),
    "unbind": lambda catalog: catalog.unbind("t5", "q5"),
    "delete a queue": lambda catalog: catalog.drop_queue("q5"),
    "delete a topic": lambda catalog: catalog.drop_topic("t5"),
    "fan out": lambda catalog: catalog.bound_to(catalog.topic("t5").owner),
    "look up": lambda catalog: catalog.topics_of("q5"),
    "look up an owner": lambda catalog: catalog.definition(catalog.topic("t5").owner),
}


@pytest.mark.parametrize("work", WORKS)
def test_a_definition_costs_its_own(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c, "Bound", Compared)
    few, many = filled(20), filled(400)
    assert steps_of(lambda: WORKS[work](few)) == steps_of(lambda: WORKS[work](many))


@pytest.mark.parametrize("count", [1, 3, 15, 16, 17, 1_000])
def test_pieces_of_a_snapshot_are_the_image(count: int) -> None:
    catalog = filled(33)
    catalog.define_token(c.TokenDefined("key", "id", b"digest", ("push:*",), 1))
    image = catalog.image()
    assert decode_catalog_image(b"".join(encoded_in_steps(image, count))) == image


def test_pieces_of_any_size_are_the_image() -> None:
    """Where msgpack writes the number of entries in another way."""
    for entries in (0, 15, 16, 2**16 - 1, 2**16):
        image = CatalogImage(bindings=[c.Bound(1, number) for number in range(entries)])
        assert decode_catalog_image(b"".join(encoded_in_steps(image, 2**17))) == image


def test_an_image_stays_what_it_was() -> None:
    """A snapshot is encoded while definitions go on."""
    catalog = filled(3)
    image = catalog.image()
    encoded = b"".join(encoded_in_steps(image, 1))
    catalog.drop_queue("q1")
    catalog.define_topic("later", TopicSettings(), 1)
    catalog.bind("later", "q2")
    assert b"".join(encoded_in_steps(image, 1)) == encoded


def noted(number: int, source: int, status: str = "COMPLETED") -> c.MoveNoted:
    return c.MoveNoted(
        number=number,
        id=f"id-{number}",
        source=source,
        to=None,
        rate=1.5,
        started_ms=1,
        total=2,
        moved=1,
        skipped=0,
        status=status,
    )


def same_after_a_start(catalog: Catalog) -> None:
    """Whether the journal has a snapshot of it, or only what changed."""
    image = catalog.image()
    assert fold_catalog(CatalogImage(), [catalog.changes]) == image
    assert decode_catalog_image(b"".join(encoded_in_steps(image, 3))) == image


def test_redrives_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those under way are never forgotten, and no number is given twice."""
    monkeypatch.setattr(limits, "REDRIVES_KEPT", 3)
    catalog = Catalog()
    source = catalog.define_queue("q", QueueSettings(), 1, 1).owner
    other = catalog.define_queue("other", QueueSettings(), 2, 1).owner
    catalog.note_move(noted(1, source, "RUNNING"))
    for number in (2, 3, 4, 5):
        catalog.note_move(noted(number, other if number == 4 else source))
    assert list(catalog.moves) == [1, 4, 5]
    catalog.note_move(noted(1, source, "FAILED"))
    assert (catalog.moves[1].status, catalog.next_move) == ("FAILED", 6)
    same_after_a_start(catalog)
    catalog.drop_queue("q")
    assert list(catalog.moves) == [4]
    catalog.note_move(noted(1, source))
    assert list(catalog.moves) == [4], "its queue is gone"
    same_after_a_start(catalog)
    assert catalog.next_move == 6


def test_dead_letter_queues_that_were_deleted() -> None:
    """It is known of those that a queue names; no longer than one does."""
    catalog = Catalog()
    named, limited = QueueSettings(dead_letter="graves"), QueueSettings()
    for name, settings in (("graves", limited), ("a", named), ("b", named), ("a_dlq", limited)):
        catalog.define_queue(name, settings, 1, 1)
    catalog.drop_queue("a_dlq")
    assert not catalog.retired, "it is named after its queue"
    catalog.drop_queue("graves")
    assert list(catalog.retired) == ["graves"]
    same_after_a_start(catalog)
    catalog.edit_queue("a", limited, 2)
    assert list(catalog.retired) == ["graves"]
    catalog.drop_queue("b")
    assert not catalog.retired
    same_after_a_start(catalog)
    catalog.edit_queue("a", named, 3)
    assert not catalog.retired, "nobody named it when it was deleted"
    catalog.define_queue("graves", limited, 4, 4)
    catalog.drop_queue("graves")
    catalog.define_queue("graves", QueueSettings(delay_ms=1), 5, 5)
    assert not catalog.retired
    same_after_a_start(catalog)
