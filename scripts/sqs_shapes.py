"""The page `shapes.py` of the SQS door, made from the service model that botocore ships.

python -m scripts.sqs_shapes > src/nexo/doors/sqs_http/shapes.py
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nexo.doors.sqs_http.shapes import wire_name

REGENERATE = "python -m scripts.sqs_shapes > src/nexo/doors/sqs_http/shapes.py"
_MODEL = "data/sqs/2012-11-05/service-2.json"
_SCALARS = {
    "string": "str",
    "integer": "int",
    "long": "int",
    "boolean": "bool",
    "blob": "bytes",
}
_HEAD = f'''"""The requests and results of SQS, one struct a shape of the service model. Made by

    {REGENERATE}

and a test compares it with the model. Every member may be missing: what must not is in `REQUIRED`,
and is refused in AWS's words.
"""

from __future__ import annotations

from msgspec import Struct, field


def wire_name(name: str) -> str:
    """`md5_of_body` is `MD5OfBody` on the wire."""
    words = [w.upper() if w in ("md5", "aws") else w.capitalize() for w in name.split("_")]
    return "".join(words)


class Shape(Struct, frozen=True, omit_defaults=True, gc=False, rename=wire_name):
    """What all of them have in common."""
'''


def service_model() -> dict[str, Any]:
    """The model of the installed botocore, which only developers have."""
    found = find_spec("botocore")
    if found is None or found.origin is None:
        raise SystemExit("botocore is not installed: its service model is what this is made from")
    path = Path(found.origin).parent / _MODEL
    packed = path.with_name(path.name + ".gz")
    text = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    model: dict[str, Any] = json.loads(text)
    return model


def shapes_page(model: dict[str, Any]) -> str:
    shapes = model["shapes"]
    wanted = _wanted(model)
    blocks = [_struct(name, shapes) for name in wanted]
    required = {n: shapes[n]["required"] for n in wanted if shapes[n].get("required")}
    lines = ["REQUIRED: dict[type[Shape], tuple[str, ...]] = {"]
    for name, members in required.items():
        if name.endswith(("Request", "RequestEntry")):
            lines.append(f"    {name}: {_tuple(members)},")
    actions = ["# Each action with its request, and its result if it has one."]
    actions.append("ACTIONS: dict[str, tuple[type[Shape], type[Shape] | None]] = {")
    for action, operation in sorted(model["operations"].items()):
        result = operation.get("output", {}).get("shape")
        actions.append(f'    "{action}": ({operation["input"]["shape"]}, {result}),')
    tables = "\n".join([*lines, "}", "", *actions, "}"])
    return "\n\n".join([_HEAD, *blocks, tables]) + "\n"


def _tuple(words: list[str]) -> str:
    quoted = ", ".join(json.dumps(word) for word in words)
    return f"({quoted},)" if len(words) == 1 else f"({quoted})"


def snake(name: str) -> str:
    """`QueueUrl` as `queue_url`, `MD5OfBody` as `md5_of_body`."""
    words = re.findall(r"MD5|AWS|[A-Z]?[a-z0-9]+", name)
    return "_".join(word.lower() for word in words)


def _wanted(model: dict[str, Any]) -> list[str]:
    """The structures of requests and results, each after those that it is made of."""
    shapes, found = model["shapes"], []

    def visit(name: str) -> None:
        shape = shapes[name]
        kind = shape["type"]
        if kind == "structure" and name not in found:
            for member in shape["members"].values():
                visit(member["shape"])
            found.append(name)
        elif kind == "list":
            visit(shape["member"]["shape"])
        elif kind == "map":
            visit(shape["value"]["shape"])

    for _, operation in sorted(model["operations"].items()):
        for side in ("input", "output"):
            if side in operation:
                visit(operation[side]["shape"])
    return found


def _struct(name: str, shapes: dict[str, Any]) -> str:
    members = shapes[name]["members"]
    lines = [f"class {name}(Shape, frozen=True):"]
    for member, target in members.items():
        kind, word = _type(target["shape"], shapes), snake(member)
        value = "None" if wire_name(word) == member else f'field(default=None, name="{member}")'
        lines.append(f"    {word}: {kind} | None = {value}")
    return "\n".join(lines) + "\n"


def _type(name: str, shapes: dict[str, Any]) -> str:
    shape = shapes[name]
    kind = shape["type"]
    if kind == "structure":
        return name
    if kind == "list":
        return f"list[{_type(shape['member']['shape'], shapes)}]"
    if kind == "map":
        return f"dict[str, {_type(shape['value']['shape'], shapes)}]"
    return _SCALARS[kind]


if __name__ == "__main__":
    sys.stdout.write(shapes_page(service_model()))
