"""What kombu loads when it starts: it teaches kombu, and so Celery, the URLs `nexo://…`.

kombu has entry points for serializers, not for transports. So this is a serializer, and a useful
one: `serializer="nexo"` writes structs, dataclasses, attrs and pydantic models as JSON, and reads
them as plain values. Loading it adds the two URL schemes to kombu's table, by name: nothing of the
transport is imported before somebody connects.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES.setdefault("nexo", "nexo.integrations.kombu:Transport")
TRANSPORT_ALIASES.setdefault("nexos", "nexo.integrations.kombu:Transport")


def _encode(value: Any) -> str:
    from nexo.client.bodies import encoded_json

    return encoded_json(value).decode()


def _decode(text: str | bytes) -> Any:
    import msgspec

    return msgspec.json.decode(text)


# In the order that kombu registers them: encoder, decoder, content type, encoding.
serializer = (_encode, _decode, "application/vnd.nexo+json", "utf-8")
