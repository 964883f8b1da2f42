"""MD5 digests by AWS's words, not by anybody's code: what SDKs compute and compare."""

import hashlib
from typing import Any


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def md5_of_attributes(attributes: dict[str, dict[str, Any]]) -> str:
    """Sorted by name; name, type and value each with their length in four bytes before them, and
    one byte between type and value that says whether the value is text (1) or binary (2)."""
    whole = hashlib.md5()
    for name in sorted(attributes):
        attribute = attributes[name]
        data_type = attribute["DataType"]
        is_binary = data_type.partition(".")[0] == "Binary"
        value = attribute["BinaryValue"] if is_binary else attribute["StringValue"].encode()
        whole.update(_with_length(name.encode()) + _with_length(data_type.encode()))
        whole.update((b"\x02" if is_binary else b"\x01") + _with_length(value))
    return whole.hexdigest()


def _with_length(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def text(value: str, data_type: str = "String") -> dict[str, Any]:
    return {"DataType": data_type, "StringValue": value}


def number(value: str, data_type: str = "Number") -> dict[str, Any]:
    return {"DataType": data_type, "StringValue": value}


def binary(value: bytes, data_type: str = "Binary") -> dict[str, Any]:
    return {"DataType": data_type, "BinaryValue": value}
