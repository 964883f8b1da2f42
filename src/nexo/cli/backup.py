"""What a broker holds, as files: all of it by `nexo backup` and `nexo restore`, the definitions of
queues, topics and bindings by `nexo export` and `nexo import`, as a JSON document."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from nexo.cli.progress import progress_bar
from nexo.cli.session import Session, takes_session

if TYPE_CHECKING:
    from nexo.vocabulary.definitions import Definitions

STANDARD = "-"  # standard output, or input


@takes_session
def backup(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where the backup goes.")],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Replace a file that is there without asking.")
    ] = False,
) -> None:
    """Back up a running broker: queues, topics, messages and definitions.

    \b
    Examples
      nexo backup monday.nexo
      nexo backup /backups/orders.nexo --url nexo://broker:9325 --yes

    The broker goes on working. The backup is what it held at the moment when
    the copy was finished; everything confirmed before you started is in it.
    `nexo restore` makes a data directory of it.
    """
    import signal
    from pathlib import Path

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same order as for Ctrl-C
    if Path(file).exists():
        session.confirm(f"Replace {file}?", yes)
    began = time.monotonic()
    with session.client() as client:
        held = sum(each.depth for each in client.queues())
        with progress_bar(session, "backup", 1) as bar:

            def told(doing: str, done: int, total: int) -> None:
                bar.show(done, doing, total=total)

            size = client.backup(file, replace=True, progress=told)
    took_s = time.monotonic() - began
    from nexo.vocabulary.units import show_size

    session.answer(
        {"file": file, "bytes": size, "messages": held, "seconds": round(took_s, 3)},
        f"backed up to {file}: about {held:,} messages, {show_size(size)} in {took_s:.1f} s",
    )


@takes_session
def restore(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file of `nexo backup`.")],
    data: Annotated[
        str, typer.Option(metavar="DIR", envvar="NEXO_DATA", help="The data directory to make.")
    ] = "nexo-data",
) -> None:
    """Make a data directory from a backup, and check it.

    \b
    Examples
      nexo restore monday.nexo --data nexo-data
      nexo serve --data nexo-data

    No broker may use the directory, and it must not hold a journal: nothing is
    overwritten. Every page, checksum and record of the result is checked.
    """
    from nexo.engine.backups import restore as restore_data

    with progress_bar(session, f"restoring {data}", 1) as bar:
        report = restore_data(file, data, lambda done, total: bar.show(done, total=total))
    session.answer(
        {"data": data, "messages": report.messages, "bytes": report.payload_bytes},
        f"restored to {data}: {report.messages:,} stored messages, all checks passed; "
        f"start it with nexo serve --data {data}",
    )


@takes_session
def export(
    session: Session,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Where it goes; - is standard output.")
    ] = STANDARD,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Replace a file that is there without asking.")
    ] = False,
) -> None:
    """Write the definitions of a broker as JSON: queues, topics, bindings.

    \b
    Examples
      nexo export definitions.json
      nexo export | jq '.queues[].name'
      nexo export --url nexo://old:9325 | nexo import - --url nexo://new:9325

    All settings are in it; messages and tokens are not, `nexo backup` has them.
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
        session.confirm(f"Replace {file}?", yes)
    try:
        target.write_bytes(msgspec.json.format(encoded) + b"\n")
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be written: {error.strerror}") from None
    counts = {kind: len(getattr(document, kind)) for kind in ("queues", "topics", "bindings")}
    told = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    session.answer({"file": file, **counts}, f"exported to {file}: {told}")


@takes_session
def import_definitions(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The document; - is standard input.")],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check it and say what would be done."),
    ] = False,
) -> None:
    """Create and change queues, topics and bindings as a JSON document says.

    \b
    Examples
      nexo import definitions.json --dry-run
      nexo import definitions.json

    The document is that of `nexo export`; settings that it leaves out have
    their defaults. All of it is checked first: if anything is wrong, nothing
    is changed. What is there and not in the document stays. Importing again
    changes nothing.
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
    session.line(", ".join(counts) + ("; nothing was done" if dry_run else ""))


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
            f"{file} is not a document of definitions: {error}", "see nexo export"
        ) from None
