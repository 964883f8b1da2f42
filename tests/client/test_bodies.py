"""Typed bodies: what is pushed as a value comes out as one, and what does not decode says why."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest

import nexo
from nexo.client.bodies import Reading, decoded, encoded
from nexo.client.message import Content, HeldMessage
from nexo.testing import broker as broker_in_process

if TYPE_CHECKING:
    from decimal import Decimal

    from nexo import Message as SeenByTypeCheckersAlone

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Struct(msgspec.Struct):
    id: int
    at: datetime = AT


@dataclasses.dataclass
class Plain:
    id: int
    at: datetime = AT


@attrs.define
class Attrs:
    id: int
    at: datetime = AT


class Model(pydantic.BaseModel):
    id: int = pydantic.Field(alias="order-id")
    at: datetime = AT


@pydantic.dataclasses.dataclass
class Checked:
    id: Annotated[int, pydantic.Field(gt=0)]
    at: datetime = AT


class Outer(msgspec.Struct):
    models: list[Model]
    name: str = "outer"


class Words(Content):
    """Something with a body."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    @property
    def body(self) -> bytes:
        return self._body


VALUES: list[Any] = [
    Struct(1),
    Plain(1),
    Attrs(1),
    Model.model_validate({"order-id": 1}),
    Checked(1),
    Outer([Model.model_validate({"order-id": 1})]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_goes_in_comes_out(value: Any) -> None:
    assert decoded(encoded(value), type(value)) == value
    kind: Any = type(value)
    assert decoded(encoded([value, value]), list[kind]) == [value, value]
    assert decoded(b"null", type(value) | None) is None


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_through_a_broker(value: Any) -> None:
    with broker_in_process() as broker, broker.client() as client:
        queue = client.queue("orders", create=True)
        queue.push(value)
        queue.push_batch([value, b"bytes"])
        first, second, third = queue.pop_batch(3)
        assert first.json(type(value)) == second.json(type(value)) == value
        assert third.body == b"bytes"
        assert queue.peek()[0].json(type(value)) == value


def test_aliases_are_what_travels() -> None:
    assert msgspec.json.decode(encoded(Model.model_validate({"order-id": 7})))["order-id"] == 7


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"hello", Any, "the body is not JSON: JSON is malformed"),
        (b"", Struct, "the body is not Struct: Input data was truncated"),
        (b"\xff", Struct, "the body is not Struct: "),
        (b'{"id": "x"}', Struct, "Expected `int`, got `str` - at `$.id`"),
        (b'{"id": "x"}', Plain, "Expected `int`, got `str` - at `$.id`"),
        (b"{}", Attrs, "missing required field `id`"),
        (b"{}", Model, "Field required - at `$.order-id`"),
        (b'{"id": 0}', Checked, "greater than 0 - at `$.id`"),
        (b'[{"order-id": 1}, {}]', list[Model], "Field required - at `$.1.order-id`"),
        (b'{"models": [{}]}', Outer, "the body is not Outer: "),
        (b"[" * 5_000, Any, "the body is not JSON: "),
    ],
)
def test_what_is_something_else(body: bytes, kind: Any, reason: str) -> None:
    with pytest.raises(nexo.InvalidBody) as raised:
        Words(body).json(kind)
    assert raised.value.code == "invalid_body"
    assert reason in raised.value.message
    assert len(raised.value.message) < 400


def test_what_no_json_becomes() -> None:
    with pytest.raises(nexo.InvalidArgument, match="cannot be decoded into Words"):
        Words(b"{}").json(Words)
    with pytest.raises(nexo.InvalidArgument, match="cannot be encoded as JSON"):
        encoded(Words(b""))


class Callable:
    def __call__(self, order: Struct, message: nexo.Message) -> None:
        """Both."""

    def method(self, order: Struct) -> None:
        """A body."""


def takes_message(message: nexo.Message) -> None: ...
def takes_either(message: nexo.Message | nexo.AsyncMessage) -> None: ...
def takes_quoted(message: SeenByTypeCheckersAlone) -> None: ...
def takes_anything(message: Any) -> None: ...
def takes_bytes(body: bytes) -> None: ...
def takes_text(body: str) -> None: ...
def takes_model(order: Model, times: int = 1) -> None: ...
def takes_list(orders: list[Struct]) -> None: ...
def takes_price(price: Decimal) -> None: ...
def takes_two(first: Struct, second: Plain) -> None: ...
def takes_three(first, second, third) -> None: ...
def takes_words(words: Words) -> None: ...


@pytest.mark.parametrize(
    ("handler", "arguments"),
    [
        (takes_message, ["message"]),
        (takes_either, ["message"]),
        (takes_anything, ["message"]),
        (print, ["message"]),
        (lambda message: None, ["message"]),
        (lambda *messages: None, ["message"]),
        (takes_bytes, [b'{"id": 1}']),
        (takes_text, ['{"id": 1}']),
        (Callable(), [Struct(1), "message"]),
        (Callable().method, [Struct(1)]),
    ],
)
def test_what_a_handler_gets(handler: Any, arguments: list[Any]) -> None:
    message = Words(b'{"id": 1}')
    wanted = [message if each == "message" else each for each in arguments]
    assert Reading(handler, HeldMessage)(message) == wanted


def test_bodies_by_annotation() -> None:
    assert Reading(takes_model, HeldMessage)(Words(b'{"order-id": 3}')) == [
        Model.model_validate({"order-id": 3})
    ]
    assert Reading(takes_list, HeldMessage)(Words(b'[{"id": 3}]')) == [[Struct(3)]]
    with pytest.raises(nexo.InvalidBody, match="not UTF-8 text"):
        Reading(takes_text, HeldMessage)(Words(b"\xff"))


def test_messages_that_only_type_checkers_know() -> None:
    def handler(message: NotThereMessage) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    message = Words(b"")
    assert Reading(handler, HeldMessage)(message) == [message]


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (takes_price, "Decimal, which is not known there"),
        (takes_two, "more than one body"),
        (takes_three, "needs first, second, third"),
        (takes_words, "cannot be decoded into Words"),
    ],
)
def test_handlers_that_are_refused(handler: Any, told: str) -> None:
    with pytest.raises(nexo.InvalidArgument, match=told):
        Reading(handler, HeldMessage)
