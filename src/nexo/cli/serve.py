"""`nexo serve`: run a broker until it is told to stop."""

import inspect
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, get_args

import msgspec
import typer

from nexo.cli.parameters import add_parameters, flag
from nexo.server.configuration import (
    CONFIGURATION_FILE,
    Configuration,
    describe,
    show_setting,
)
from nexo.vocabulary.units import count_of, show_size

if TYPE_CHECKING:
    from nexo.server.broker import Broker, Ports

_METAVARS = {
    "data": "DIR",
    "journal": "URL",
    "node": "NAME",
    "advertise": "HOST",
    "host": "ADDRESS",
    "http_port": "PORT",
    "rpc_port": "PORT",
    "udp_port": "PORT",
    "udp": "on|off",
    "account": "ACCOUNT",
    "region": "REGION",
    "aws_pauses": "on|off",
    "access": "MODE",
    "tls_cert": "FILE",
    "tls_key": "FILE",
    "ports_file": "FILE",
    "memory_limit": "SIZE",
    "events_retention": "DURATION",
    "events_retention_bytes": "SIZE",
    "lake": "DIR",
    "log_format": "FORMAT",
    "log_level": "LEVEL",
}


def _serve(
    settings: dict[str, Any],
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"Configuration file  [dim]\\[default: {CONFIGURATION_FILE}, if it exists][/dim]",
            envvar="NEXO_CONFIG",
            show_envvar=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the ready message and the logs as JSON")
    ] = False,
) -> None:
    """Run a broker. It needs no configuration.

    \b
    Examples
      nexo serve                               data in ./nexo-data, port 9325
      nexo serve --data :memory: --rpc-port 0  nothing on disk, any free port
      NEXO_MEMORY_LIMIT=2GB nexo serve         a setting from the environment

    Prints "ready" once all its ports accept connections. Each setting is
    read from its option, else from the environment (NEXO_DATA for --data),
    else from nexo.toml (data = "…"). SIGTERM or Ctrl-C shuts the broker down
    cleanly; a second Ctrl-C stops it at once.
    """
    from nexo.server.configuration import configure, unknown_variables
    from nexo.server.logs import set_up_logs
    from nexo.server.service import logger, serve

    if as_json:
        settings["log_format"] = settings["log_format"] or "json"
    configuration = configure(settings, os.environ, config)
    set_up_logs(configuration.log_format, configuration.log_level)
    for variable in unknown_variables(os.environ):
        logger.warning("unknown setting in the environment", extra={"variable": variable})
    try:
        announce = _announce_json if as_json else _announce
        serve(configuration, lambda broker, ports: announce(configuration, broker, ports))
    except KeyboardInterrupt:  # it came before the broker could take signals
        raise typer.Exit(0) from None


def _announce(configuration: Configuration, broker: "Broker", ports: "Ports") -> None:
    """Where things are, and how to begin."""
    from nexo import __version__

    url, http = _url(configuration, ports), _http(configuration, ports)
    data = _place(configuration)
    infos = [actor.info() for engine in broker.engines for actor in engine.queues.values()]
    messages = sum(info.depth for info in infos)
    sys.stdout.write(
        f"nexo {__version__}\n"
        f"{_node_line(configuration)}"
        f"  data    {data}\n"
        f"  holds   {count_of(messages)} in {count_of(len(infos), 'queue')}\n"
        f"  memory  {show_size(configuration.memory_limit)} for messages\n"
        f"\n"
        f"ready   {url}\n"
        f"        {http}\n"
        f"{_udp_line(configuration, ports)}"
        f"console {http}/console\n"
        f"\n"
        f"{_beginning(configuration, url, http)}\n"
    )
    sys.stdout.flush()


def _place(configuration: Configuration) -> str:
    """Where everything is kept. The URL of a database may hold a password, and is not shown."""
    from nexo.server.broker import data_directory

    if configuration.journal is not None:
        from nexo.journal.postgresql_connection import shown_url

        return shown_url(configuration.journal)
    directory = data_directory(configuration)
    return "in memory only" if directory is None else str(directory.absolute())


def _beginning(configuration: Configuration, url: str, http: str) -> str:
    """Lines to paste. Where access is required they take a token and a key, which are not shown
    here: nexo token create does, once."""
    token, key, secret = "", "nexo", "nexo"
    if configuration.access == "required":
        token, key, secret = ', token="…"', "…", "…"
    return (
        f'  import nexo; nexo.connect("{url}"{token}).queue("orders", create=True).push("hello")\n'
        f'  import boto3; boto3.client("sqs", endpoint_url="{http}",\n'
        f'      region_name="{configuration.region}", aws_access_key_id="{key}",\n'
        f'      aws_secret_access_key="{secret}").create_queue(QueueName="orders")\n'
    )


def _announce_json(configuration: Configuration, broker: "Broker", ports: "Ports") -> None:
    ready = {"ready": True, "url": _url(configuration, ports), "ports": ports}
    ready["data"] = configuration.data if configuration.journal is None else _place(configuration)
    sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
    sys.stdout.flush()


def _url(configuration: Configuration, ports: "Ports") -> str:
    scheme = "nexo" if configuration.tls_cert is None else "nexos"
    return f"{scheme}://{_host(configuration)}:{ports.rpc}"


def _http(configuration: Configuration, ports: "Ports") -> str:
    scheme = "http" if configuration.tls_cert is None else "https"
    return f"{scheme}://{_host(configuration)}:{ports.http}"


def _node_line(configuration: Configuration) -> str:
    if configuration.node is None:
        return ""
    address = configuration.advertise or configuration.host
    return f"  node    {configuration.node}, which others reach at {address}\n"


def _udp_line(configuration: Configuration, ports: "Ports") -> str:
    if ports.udp is None:
        return ""
    return f"        udp://{_host(configuration)}:{ports.udp}\n"


def _host(configuration: Configuration) -> str:
    return f"[{configuration.host}]" if ":" in configuration.host else configuration.host


def _flags() -> list[inspect.Parameter]:
    return [_flag(field) for field in msgspec.structs.fields(Configuration)]


def _flag(field: msgspec.structs.FieldInfo) -> inspect.Parameter:
    """The flag of a setting. Its value stays a text here: wherever a setting comes from, it is
    read and refused in one place."""
    name = field.name
    told = describe(name).replace("`", "")
    if bool in (field.type, *get_args(field.type)):
        switch = typer.Option("--" + name.replace("_", "-"), help=told[:1].upper() + told[1:])
        return flag(name, Annotated[bool | None, switch])
    if field.default is not None:
        told += f"  [dim]\\[default: {show_setting(name, field.default)}][/dim]"
    option = typer.Option(
        "--" + name.replace("_", "-"),
        metavar=_METAVARS[name],
        help=told[:1].upper() + told[1:],
    )
    return flag(name, Annotated[str | None, option])


serve = add_parameters(_serve, _flags(), lambda given: given)
serve.__name__ = "serve"
