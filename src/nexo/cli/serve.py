"""`nexo serve`: run a broker until it is told to stop."""

import inspect
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from nexo.cli.parameters import add_parameters, flag
from nexo.server.configuration import (
    CONFIGURATION_FILE,
    Configuration,
    describe,
    show_setting,
)
from nexo.server.sizes import show_size

if TYPE_CHECKING:
    from nexo.server.broker import Broker, Ports

_METAVARS = {
    "data": "DIR",
    "host": "ADDRESS",
    "rpc_port": "PORT",
    "ports_file": "FILE",
    "memory_limit": "SIZE",
    "log_format": "FORMAT",
    "log_level": "LEVEL",
}


def _serve(
    settings: dict[str, Any],
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A file of settings  "
            f"[dim]\\[default: {CONFIGURATION_FILE}, if it is there][/dim]",
            envvar="NEXO_CONFIG",
            show_envvar=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say ready, and log, in JSON")] = False,
) -> None:
    """Run a broker; it needs no configuration.

    \b
    Examples
      nexo serve                               data in ./nexo-data, port 9325
      nexo serve --data :memory: --rpc-port 0  keeps nothing, any free port
      NEXO_MEMORY_LIMIT=2GB nexo serve         settings from the environment

    It says "ready" once every door answers. A setting comes from its flag,
    else from the environment (NEXO_DATA for --data), else from nexo.toml
    (data = "…"). SIGTERM and Ctrl-C stop it in order, a second Ctrl-C at once.
    """
    from nexo.server.logs import set_up_logs
    from nexo.server.service import logger, serve
    from nexo.server.sources import configure, unknown_variables

    if as_json:
        settings["log_format"] = settings["log_format"] or "json"
    configuration = configure(settings, os.environ, config)
    set_up_logs(configuration.log_format, configuration.log_level)
    for variable in unknown_variables(os.environ):
        logger.warning("this variable is no setting", extra={"variable": variable})
    try:
        announce = _announce_json if as_json else _announce
        serve(configuration, lambda broker, ports: announce(configuration, broker, ports))
    except KeyboardInterrupt:  # it came before the broker could take signals
        raise typer.Exit(0) from None


def _announce(configuration: Configuration, broker: "Broker", ports: "Ports") -> None:
    """Where things are, and how to begin."""
    from pathlib import Path

    from nexo import __version__
    from nexo.server.broker import IN_MEMORY

    url = _url(configuration, ports)
    data = "in memory: nothing is kept"
    if configuration.data != IN_MEMORY:
        data = str(Path(configuration.data).absolute())
    infos = [actor.info() for actor in broker.engine.queues.values()]
    messages = sum(info.depth for info in infos)
    sys.stdout.write(
        f"nexo {__version__}\n"
        f"  data    {data}\n"
        f"  holds   {messages:,} messages in {len(infos):,} queues\n"
        f"  memory  {show_size(configuration.memory_limit)} of payload\n"
        f"\n"
        f"ready   {url}\n"
        f"\n"
        f'  import nexo; nexo.connect("{url}").queue("orders", create=True).push("hello")\n\n'
    )
    sys.stdout.flush()


def _announce_json(configuration: Configuration, broker: "Broker", ports: "Ports") -> None:
    ready = {"ready": True, "url": _url(configuration, ports), "ports": ports}
    ready["data"] = configuration.data
    sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
    sys.stdout.flush()


def _url(configuration: Configuration, ports: "Ports") -> str:
    host = f"[{configuration.host}]" if ":" in configuration.host else configuration.host
    return f"nexo://{host}:{ports.rpc}"


def _flags() -> list[inspect.Parameter]:
    return [_flag(field) for field in msgspec.structs.fields(Configuration)]


def _flag(field: msgspec.structs.FieldInfo) -> inspect.Parameter:
    """The flag of a setting. Its value stays a text here: wherever a setting comes from, it is
    read and refused in one place."""
    name = field.name
    told = describe(name).replace("`", "")
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
