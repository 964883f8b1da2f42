"""Definitions of a broker as one document: asking for it, and giving one back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.client import asking, figures
from nexo.vocabulary.definitions import Definitions, Imported

if TYPE_CHECKING:
    from nexo.client.operation import Request

_read_definitions = figures.decoder(Definitions)
_read_imported = figures.decoder(list[Imported])


def exporting() -> Request:
    return asking.call("export_definitions", _read_definitions)


def importing(definitions: Definitions | dict[str, Any], dry_run: bool) -> Request:
    document = msgspec.to_builtins(definitions)
    return asking.call("import_definitions", _read_imported, definitions=document, dry_run=dry_run)
