"""The named calls about definitions as one document, in the words of users: times in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.engine.definitions import (
    MSGPACK,
    export_definitions,
    import_definitions,
    packed_definitions,
)
from nexo.vocabulary.definitions import Definitions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine

    Calling = Callable[[Engine, Any], Awaitable[Any]]


class ExportDefinitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class ImportDefinitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    definitions: Definitions
    dry_run: bool = False


async def _export(engine: Engine, _: ExportDefinitions) -> Any:
    return await packed_definitions(await export_definitions(engine), MSGPACK)


async def _import(engine: Engine, wanted: ImportDefinitions) -> Any:
    return await import_definitions(engine, wanted.definitions, wanted.dry_run)


DEFINITION_CALLS: dict[str, tuple[type[msgspec.Struct], Calling]] = {
    "export_definitions": (ExportDefinitions, _export),
    "import_definitions": (ImportDefinitions, _import),
}
