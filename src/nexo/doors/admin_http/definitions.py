"""Definitions as one document: what `nexo export` and `nexo import` speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from nexo.doors.admin_http.operation import Operation
from nexo.engine.definitions import (
    JSON,
    Packed,
    export_definitions,
    import_definitions,
    packed_definitions,
)
from nexo.vocabulary.definitions import Definitions, Imported

if TYPE_CHECKING:
    from nexo.doors.admin_http.operation import Call

_PATH = "/api/v1/definitions"


class ImportQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dry_run: Annotated[
        bool, Meta(description="Only check the document and report what would change.")
    ] = False


class Import(msgspec.Struct, frozen=True):
    dry_run: bool
    definitions: list[Imported]


async def _export(call: Call) -> Packed:
    return await packed_definitions(await export_definitions(call.engine), JSON)


async def _import(call: Call) -> Import:
    dry_run = call.query.dry_run
    return Import(dry_run, await import_definitions(call.engine, call.body, dry_run))


DEFINITIONS = (
    Operation(
        "export_definitions",
        "GET",
        _PATH,
        "Queues, topics and bindings with all their settings, as one document",
        _export,
        Definitions,
    ),
    Operation(
        "import_definitions",
        "PUT",
        _PATH,
        "Create and change definitions as in the document; others stay",
        _import,
        Import,
        query=ImportQuery,
        body=Definitions,
        refusals=(404,),
    ),
)
