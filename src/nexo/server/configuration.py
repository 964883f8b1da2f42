"""Every setting of the broker with its default, in one place.

A setting comes from its flag, else from the environment (`NEXO_` and its name in capitals), else
from `nexo.toml`, else it has the default that stands here. `docs/reference/settings.md` is made
from this page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from nexo.server.sizes import show_size
from nexo.vocabulary.limits import CHUNK_BYTES_MAX, MEMORY_LIMIT_BYTES

if TYPE_CHECKING:
    from msgspec.structs import FieldInfo

CONFIGURATION_FILE = "nexo.toml"
SIZES = frozenset({"memory_limit"})  # settings that may be written as 512MB

Port = Annotated[int, Meta(ge=0, le=65_535)]


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`nexo serve` without any of these runs a broker on loopback with its data in ./nexo-data."""

    data: Annotated[
        str, Meta(min_length=1, description="the data directory; `:memory:` keeps nothing")
    ] = "nexo-data"
    host: Annotated[str, Meta(min_length=1, description="the address to listen on")] = "127.0.0.1"
    rpc_port: Annotated[
        Port, Meta(description="the port of the native protocol; 0: any free one")
    ] = 9325
    ports_file: Annotated[
        str | None, Meta(description="a file to write the chosen ports to, as JSON, once ready")
    ] = None
    memory_limit: Annotated[
        int, Meta(ge=4 * CHUNK_BYTES_MAX, description="how much payload may stay in memory")
    ] = MEMORY_LIMIT_BYTES
    log_format: Annotated[
        Literal["auto", "human", "json"],
        Meta(description="`human` or `json`; `auto`: human in a terminal, JSON elsewhere"),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="what is worth a line: `debug`, `info`, `warning` or `error`"),
    ] = "info"


def describe(name: str) -> str:
    """What a setting does, in the words of this page."""
    annotation = get_type_hints(Configuration, include_extras=True)[name]
    (description,) = [each.description for each in annotation.__metadata__ if each.description]
    return str(description)


def choices_of(field: FieldInfo) -> list[str]:
    """The words that a setting takes, if it takes only some."""
    kinds = [field.type, *get_args(field.type)]
    return [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]


def show_setting(name: str, value: object) -> str:
    """A value as it is written in a flag or a file."""
    return show_size(value).replace(" ", "") if name in SIZES and type(value) is int else str(value)
