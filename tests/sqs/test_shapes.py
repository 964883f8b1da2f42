"""The shapes are those of the service model, and nothing of it is missing."""

import ast
from pathlib import Path

from nexo.doors.sqs_http import actions, shapes
from nexo.doors.sqs_http.queue_attributes import KNOWN as QUEUE_ATTRIBUTES
from nexo.doors.sqs_http.receive_message import SYSTEM as SYSTEM_ATTRIBUTES
from scripts.sqs_shapes import REGENERATE, service_model, shapes_page

MODEL = service_model()


def test_the_page_is_the_model() -> None:
    page = Path(shapes.__file__).read_text(encoding="utf-8")
    same = ast.dump(ast.parse(page)) == ast.dump(ast.parse(shapes_page(MODEL)))
    assert same, f"botocore's model has changed: run {REGENERATE}"


def test_every_action_is_done() -> None:
    assert set(actions.ACTIONS) == set(MODEL["operations"])


def test_every_attribute_is_known() -> None:
    assert set(MODEL["shapes"]["QueueAttributeName"]["enum"]) == QUEUE_ATTRIBUTES
    assert set(MODEL["shapes"]["MessageSystemAttributeName"]["enum"]) == SYSTEM_ATTRIBUTES


def test_members_have_the_names_of_the_model() -> None:
    for name, shape in MODEL["shapes"].items():
        kind = getattr(shapes, name, None)
        if kind is not None:
            assert set(kind.__struct_encode_fields__) == set(shape["members"]), name
