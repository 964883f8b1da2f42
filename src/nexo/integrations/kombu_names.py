"""What kombu's names and times are in Nexo."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")


def queue_name(name: str) -> str:
    """kombu's names may have any characters: those that Nexo has not are replaced."""
    if _NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '-', name)[:71]}-{digest}"


def topic_name(exchange: str, key: str | None = None) -> str:
    """The topic of a fanout exchange, or of one binding key of another exchange."""
    name = f"kombu.{escaped(exchange, '')}"
    if key is not None:
        name += f".{escaped(key, '.')}"
    return name if len(name) <= 80 else f"kombu.{hashlib.sha256(name.encode()).hexdigest()}"


def escaped(text: str, safe: str) -> str:
    kept = rf"[^A-Za-z0-9{re.escape(safe)}-]"
    return re.sub(kept, lambda found: f"_{ord(found[0]):X}_", text)


def unescaped(text: str) -> str:
    return re.sub(r"_([0-9A-F]+)_", lambda found: chr(int(found[1], 16)), text)


def delay_of(message: dict[str, Any], now: float) -> float | None:
    """How long the broker is to hold a message, in seconds."""
    headers = message.get("headers") or {}
    if headers.get("x-delay"):
        return max(0.0, float(headers["x-delay"]) / 1000)
    eta = headers.get("eta")
    if not eta:
        return None
    moment = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, float(moment.timestamp()) - now)
