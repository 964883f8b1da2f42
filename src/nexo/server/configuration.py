"""Every setting of the broker with its default, in one place, and where its value comes from.

A setting comes from its flag, else from the environment (`NEXO_` and its name in capitals), else
from `nexo.toml`, else it has the default that stands here. `docs/reference/settings.md` is made
from this page. What is wrong is refused with the place it came from, because that is what has to be
changed.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import (
    CHUNK_BYTES_MAX,
    EVENTS_RETENTION_BYTES,
    EVENTS_RETENTION_MS,
    HOST_NAME_CHARS_MAX,
    MEMORY_LIMIT_BYTES,
    RETENTION_MS_MAX,
)
from nexo.vocabulary.units import parse_duration, parse_size, show_duration, show_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from msgspec.structs import FieldInfo

CONFIGURATION_FILE = "nexo.toml"
_NUMBER = re.compile(r"\d+")
SIZES = frozenset({"memory_limit", "events_retention_bytes"})  # may be written as 512MB
DURATIONS = frozenset({"events_retention"})  # may be written as 24h
# An underscore is no part of a host name by the book, but container engines name hosts so.
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
ADVERTISE_HINT = (
    "write the host name or IP address at which other nodes reach this one, without a port: "
    "the ports are those of --rpc-port and --http-port"
)
# What to write instead of a text that is refused: msgspec would show a regular expression.
_WANTED = {
    "node": "write 1 to 63 letters, digits, '.', '_' or '-', and the first not '-'",
    "advertise": ADVERTISE_HINT,
    "account": "write 12 digits",
    "region": "write 1 to 32 lower-case letters, digits or '-'",
}

Port = Annotated[int, Meta(ge=0, le=65_535)]
PREFIX = "NEXO_"
# What the environment says to clients, and where the file is: not settings of a broker.
_OTHER_VARIABLES = frozenset({"NEXO_URL", "NEXO_TOKEN", "NEXO_TLS_CA", "NEXO_CONFIG"})


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`nexo serve` without any of these runs a broker on loopback with its data in ./nexo-data."""

    data: Annotated[
        str, Meta(min_length=1, description="data directory; `:memory:` stores nothing on disk")
    ] = "nexo-data"
    journal: Annotated[
        str | None,
        Meta(
            description="store everything in this PostgreSQL database instead of a data directory: "
            "`postgresql://USER@HOST/DATABASE`",
        ),
    ] = None
    node: Annotated[
        Annotated[str, Meta(pattern=r"\A(?!-)[A-Za-z0-9._-]{1,63}\Z")] | None,
        Meta(description="run a node of the cluster in that database, under this name"),
    ] = None
    advertise: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="the host name at which other nodes reach this one; default: --host"),
    ] = None
    host: Annotated[str, Meta(min_length=1, description="address to listen on")] = "127.0.0.1"
    http_port: Annotated[
        Port,
        Meta(
            description="HTTP port: SQS and SNS APIs, console, admin API, metrics; 0: any free port"
        ),
    ] = 9324
    rpc_port: Annotated[
        Port, Meta(description="port for Nexo clients and Spark; 0: any free port")
    ] = 9325
    udp_port: Annotated[Port, Meta(description="port for JSON over UDP; 0: any free port")] = 9326
    udp: Annotated[Literal["on", "off"], Meta(description="JSON over UDP, `on` or `off`")] = "on"
    account: Annotated[
        str,
        Meta(pattern=r"\A[0-9]{12}\Z", description="AWS account ID used in queue URLs and ARNs"),
    ] = "000000000000"
    region: Annotated[
        str,
        Meta(pattern=r"\A[a-z0-9-]{1,32}\Z", description="AWS region used in ARNs"),
    ] = "us-east-1"
    aws_pauses: Annotated[
        Literal["on", "off"],
        Meta(
            description="like AWS, refuse a second purge, or a queue with the name of a deleted "
            "one, within 60 s: `on` or `off`"
        ),
    ] = "off"
    access: Annotated[
        Literal["development", "required"],
        Meta(
            description="whether calls need a token: `required`, or `development` (anyone may do "
            "everything)"
        ),
    ] = "development"
    insecure: Annotated[
        bool,
        Meta(description="allow `development` access on an address that other machines can reach"),
    ] = False
    tls_cert: Annotated[
        str | None,
        Meta(description="TLS certificate, a PEM file; reloaded when the file changes"),
    ] = None
    tls_key: Annotated[
        str | None, Meta(description="private key of the TLS certificate, a PEM file")
    ] = None
    ports_file: Annotated[
        str | None,
        Meta(description="file to write the ports in use to, as JSON, once the broker is ready"),
    ] = None
    memory_limit: Annotated[
        int,
        Meta(
            ge=4 * CHUNK_BYTES_MAX,
            description="memory for queues and topics; message bodies beyond it stay on disk only",
        ),
    ] = MEMORY_LIMIT_BYTES
    events_retention: Annotated[
        float,
        Meta(
            ge=1,
            le=RETENTION_MS_MAX / 1000,
            description="how long events are kept in `nexo.events`",
        ),
    ] = EVENTS_RETENTION_MS / 1000
    events_retention_bytes: Annotated[
        int, Meta(ge=1, description="maximum total size of the events kept in `nexo.events`")
    ] = EVENTS_RETENTION_BYTES
    lake: Annotated[
        str | None,
        Meta(description="lake of the pipeline; the console shows its jobs and tables"),
    ] = None
    log_format: Annotated[
        Literal["auto", "human", "json"],
        Meta(description="log format: `human`, `json` or `auto` (human in a terminal, else JSON)"),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="lowest level to log: `debug`, `info`, `warning` or `error`"),
    ] = "info"


_FIELDS = {field.name: field for field in msgspec.structs.fields(Configuration)}
_HINTS = get_type_hints(Configuration, include_extras=True)  # once: it evaluates all of them


def describe(name: str) -> str:
    """What a setting does, in the words of this page."""
    (description,) = [each.description for each in _HINTS[name].__metadata__ if each.description]
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


def configure(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: str | None = None
) -> Configuration:
    """The configuration of a broker. Flags that are None were not given. A `file` must exist;
    without one, `nexo.toml` is read if it is there."""
    given: dict[str, Any] = {}
    wanted = file or environment.get("NEXO_CONFIG")
    path = Path(wanted or CONFIGURATION_FILE)
    if wanted is not None or path.exists():
        for name, value in _read(path).items():
            known = _known(name, str(path))
            given[known] = _convert(known, value, f"{name} in {path}")
    for name in _FIELDS:
        variable = PREFIX + name.upper()
        if variable in environment:
            given[name] = _convert(name, environment[variable], variable)
    for name, value in flags.items():
        if value is not None:
            given[name] = _convert(name, value, "--" + name.replace("_", "-"))
    return Configuration(**given)


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Variables that look like settings but are none: most likely misspelt."""
    known = _OTHER_VARIABLES | {PREFIX + name.upper() for name in _FIELDS}
    return sorted(each for each in environment if each.startswith(PREFIX) and each not in known)


def _read(path: Path) -> dict[str, Any]:
    import tomllib  # commands that start no broker read no file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(
            f"the configuration file {path} cannot be read: {error.strerror}", "check --config"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the configuration file {path} is not valid TOML: {error}") from None


def _known(name: str, where: str) -> str:
    field = name.replace("-", "_")
    if field in _FIELDS:
        return field
    near = difflib.get_close_matches(field, _FIELDS, 1)
    hint = f"did you mean {near[0]}?" if near else "the settings are " + ", ".join(_FIELDS)
    raise InvalidArgument(f"{where}: unknown setting {name!r:.80}", hint)


def _convert(name: str, value: Any, where: str) -> Any:
    try:
        if name in SIZES and isinstance(value, str):
            value = parse_size(value)
        elif name in DURATIONS and isinstance(value, str):
            value = parse_duration(value)
        made = msgspec.convert(value, _FIELDS[name].type, strict=False)
    except msgspec.ValidationError as error:
        choices = choices_of(_FIELDS[name])
        wanted = f"choose {' or '.join(choices)}" if choices else _plain(str(error))
        wanted = _WANTED.get(name, wanted)
        if name in SIZES:
            wanted = _NUMBER.sub(lambda found: show_size(int(found[0])), wanted)
        raise InvalidArgument(f"{where} does not take {value!r:.80}", wanted) from None
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error.message}", error.hint) from None
    if name == "advertise" and not can_be_reached_at(made):
        raise InvalidArgument(f"{where} does not take {value!r:.80}", ADVERTISE_HINT)
    return made


def can_be_reached_at(host: str) -> bool:
    """Whether another machine could connect to it: a host name (RFC 1123), or the address of one
    machine. A zone (`fe80::1%eth0`) means something on its own machine only."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        labels = host.removesuffix(".").split(".")
        # A name that ends in a number is read as an IPv4 address, and this one is not.
        return (
            len(host) <= HOST_NAME_CHARS_MAX
            and all(map(_LABEL.fullmatch, labels))
            and not labels[-1].isdigit()
        )
    if isinstance(address, ipaddress.IPv4Address):
        return bare == host and _is_of_one_machine(address)
    return "%" not in bare and _is_of_one_machine(address.ipv4_mapped or address)


def _is_of_one_machine(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return not (address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255")


def _plain(complaint: str) -> str:
    """msgspec speaks of Python's types."""
    words = complaint.replace("`int`", "a whole number").replace("`str`", "a text")
    words = words.replace(" >= ", " of at least ").replace(" <= ", " of at most ")
    return words[:1].lower() + words[1:].replace("`", "")
