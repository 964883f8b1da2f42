"""What a broker holds, as files: all of it by `nexo backup` and `nexo restore`, the definitions of
queues, topics and bindings by `nexo export` and `nexo import`, as a JSON document."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from nexo.cli.progress import progress_bar
from nexo.cli.session import Session, takes_session
from nexo.vocabulary.units import count_of

if TYPE_CHECKING:
    from nexo.vocabulary.definitions import Definitions

STANDARD = "-"  # standard output, or input


@takes_session
def backup(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Backup file to write.")],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Overwrite an existing file without asking.")
    ] = False,
) -> None:
    """Back up a running broker: queues, topics, messages, settings and tokens.

    \b
    Examples
      nexo backup monday.nexo
      nexo backup /backups/orders.nexo --url nexo://broker:9325 --yes

    The broker keeps working. The backup holds the state at the moment the copy
    finished, so every message confirmed before you started is in it. Create a
    data directory from it with `nexo restore`.
    """
    import signal
    from pathlib import Path

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same order as for Ctrl-C
    if Path(file).exists():
        session.confirm(f"Overwrite {file}?", yes)
    began = time.monotonic()
    with session.client() as client:
        queues = client.queues()
        held = sum(each.depth for each in queues)
        with progress_bar(session, "backup", 1) as bar:

            def told(doing: str, done: int, total: int) -> None:
                bar.show(done, doing, total=total)

            size = client.backup(file, replace=True, progress=told)
    took_s = time.monotonic() - began
    from nexo.vocabulary.units import show_size

    session.answer(
        {"file": file, "bytes": size, "messages": held, "seconds": round(took_s, 3)},
        f"Backed up about {count_of(held)} in {count_of(len(queues), 'queue')} to {file} "
        f"({show_size(size)}, {took_s:.1f} s)",
    )


@takes_session
def restore(
    session: Session,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Backup file, written by `nexo backup`.")
    ],
    data: Annotated[
        str, typer.Option(metavar="DIR", envvar="NEXO_DATA", help="Data directory to create.")
    ] = "nexo-data",
) -> None:
    """Create a data directory from a backup, and verify it.

    \b
    Examples
      nexo restore monday.nexo --data nexo-data
      nexo serve --data nexo-data

    The directory must not hold data yet: nothing is overwritten. Every page,
    checksum and record of the result is verified.
    """
    from nexo.engine.backups import restore as restore_data

    with progress_bar(session, f"Restoring {data}", 1) as bar:
        report = restore_data(file, data, lambda done, total: bar.show(done, total=total))
    session.answer(
        {"data": data, "messages": report.queued, "bytes": report.payload_bytes},
        f"Restored {count_of(report.queued)} in {count_of(report.queues, 'queue')} to {data}, "
        f"all checks passed. Start the broker with nexo serve --data {data}",
    )


@takes_session
def export(
    session: Session,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File to write; - is standard output.")
    ] = STANDARD,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Overwrite an existing file without asking.")
    ] = False,
) -> None:
    """Export definitions as JSON: queues, topics and bindings with their settings.

    \b
    Examples
      nexo export definitions.json
      nexo export | jq '.queues[].name'
      nexo export --url nexo://old:9325 | nexo import - --url nexo://new:9325

    Messages and tokens are not exported; use `nexo backup` for those.
    """
    import msgspec

    from nexo.vocabulary.errors import InvalidArgument

    with session.client() as client:
        document = client.export_definitions()
    encoded = msgspec.json.encode(document)
    if file == STANDARD:
        session.line((encoded if session.as_json else msgspec.json.format(encoded)).decode())
        return
    from pathlib import Path

    target = Path(file)
    if target.exists():
        session.confirm(f"Overwrite {file}?", yes)
    try:
        target.write_bytes(msgspec.json.format(encoded) + b"\n")
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be written: {error.strerror}") from None
    counts = {kind: len(getattr(document, kind)) for kind in ("queues", "topics", "bindings")}
    told = ", ".join(count_of(count, kind[:-1]) for kind, count in counts.items())
    session.answer({"file": file, **counts}, f"Exported {told} to {file}")


@takes_session
def import_definitions(
    session: Session,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Definitions file; - is standard input.")
    ],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the file and print what would change."),
    ] = False,
) -> None:
    """Import definitions: create or change queues, topics and bindings.

    \b
    Examples
      nexo import definitions.json --dry-run
      nexo import definitions.json

    The file is a JSON document as written by `nexo export`. Settings that it
    leaves out get their defaults. The whole file is checked first: if anything
    is wrong, nothing changes. Queues and topics that are not in the file stay
    as they are. Importing the same file again changes nothing.
    """
    document = _read(file)
    with session.client() as client:
        imported = client.import_definitions(document, dry_run=dry_run)
    if session.as_json:
        session.document({"dry_run": dry_run, "definitions": imported})
        return
    for each in imported:
        differing = f" ({', '.join(each.settings)})" if each.settings else ""
        session.line(f"{each.outcome:<10}{each.kind} {each.name}{differing}")
    outcomes = [each.outcome for each in imported]
    counts = [
        f"{outcomes.count(outcome):,} {outcome}" for outcome in ("created", "changed", "unchanged")
    ]
    session.line(", ".join(counts) + (" (dry run, nothing changed)" if dry_run else ""))


def _read(file: str) -> "Definitions":
    from pathlib import Path

    import msgspec

    from nexo.vocabulary.definitions import Definitions
    from nexo.vocabulary.errors import InvalidArgument

    try:
        text = sys.stdin.buffer.read() if file == STANDARD else Path(file).read_bytes()
        return msgspec.json.decode(text, type=Definitions)
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read: {error.strerror}", "check FILE") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(
            f"{file} is not a valid definitions file: {error}", "see nexo export for the format"
        ) from None
