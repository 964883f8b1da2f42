"""Every setting of the broker with its default, in one place.

A setting comes from its flag, else from the environment (`NEXO_` and its name in capitals), else
from `nexo.toml`, else it has the default that stands here. `docs/reference/settings.md` is made
from this page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from nexo.server.durations import show_duration
from nexo.server.sizes import show_size
from nexo.vocabulary.limits import (
    CHUNK_BYTES_MAX,
    EVENTS_RETENTION_BYTES,
    EVENTS_RETENTION_MS,
    MEMORY_LIMIT_BYTES,
    RETENTION_MS_MAX,
)

if TYPE_CHECKING:
    from msgspec.structs import FieldInfo

CONFIGURATION_FILE = "nexo.toml"
SIZES = frozenset({"memory_limit", "events_retention_bytes"})  # may be written as 512MB
DURATIONS = frozenset({"events_retention"})  # may be written as 24h

Port = Annotated[int, Meta(ge=0, le=65_535)]


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`nexo serve` without any of these runs a broker on loopback with its data in ./nexo-data."""

    data: Annotated[
        str, Meta(min_length=1, description="the data directory; `:memory:` keeps nothing")
    ] = "nexo-data"
    host: Annotated[str, Meta(min_length=1, description="the address to listen on")] = "127.0.0.1"
    http_port: Annotated[
        Port, Meta(description="the port of the SQS API and all else over HTTP; 0: any free one")
    ] = 9324
    rpc_port: Annotated[
        Port, Meta(description="the port of the native protocol; 0: any free one")
    ] = 9325
    udp_port: Annotated[Port, Meta(description="the port of JSON over UDP; 0: any free one")] = 9326
    udp: Annotated[Literal["on", "off"], Meta(description="`off`: no JSON over UDP")] = "on"
    account: Annotated[
        str,
        Meta(pattern=r"^\d{12}$", description="the AWS account that the queues of all belong to"),
    ] = "000000000000"
    region: Annotated[
        str,
        Meta(pattern=r"^[a-z0-9-]{1,32}$", description="the AWS region that they are in"),
    ] = "us-east-1"
    aws_pauses: Annotated[
        Literal["on", "off"],
        Meta(description="`on`: as AWS, wait 60 s between purges and before a name is used again"),
    ] = "off"
    access: Annotated[
        Literal["development", "required"],
        Meta(description="`required`: a token for everything; `development`: anyone may"),
    ] = "development"
    insecure: Annotated[
        bool, Meta(description="let anyone do everything also on an address that others reach")
    ] = False
    tls_cert: Annotated[
        str | None,
        Meta(description="the certificate for TLS, a PEM file; taken up anew if changed"),
    ] = None
    tls_key: Annotated[str | None, Meta(description="the key of the certificate, a PEM file")] = (
        None
    )
    ports_file: Annotated[
        str | None, Meta(description="a file to write the chosen ports to, as JSON, once ready")
    ] = None
    memory_limit: Annotated[
        int,
        Meta(
            ge=4 * CHUNK_BYTES_MAX,
            description="memory that queues and topics may take; payload beyond it leaves memory",
        ),
    ] = MEMORY_LIMIT_BYTES
    events_retention: Annotated[
        float,
        Meta(ge=1, le=RETENTION_MS_MAX / 1000, description="how long `nexo.events` is kept"),
    ] = EVENTS_RETENTION_MS / 1000
    events_retention_bytes: Annotated[
        int, Meta(ge=1, description="how much of `nexo.events` is kept")
    ] = EVENTS_RETENTION_BYTES
    lake: Annotated[
        str | None,
        Meta(description="the lake of the pipeline, whose jobs and tables the console shows"),
    ] = None
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
    if name in SIZES and isinstance(value, int):
        return show_size(value).replace(" ", "")
    return show_duration(value) if name in DURATIONS and isinstance(value, float) else str(value)
