"""`nexo backup` and `nexo restore`: everything that a broker holds, as one file."""

import time
from typing import Annotated

import typer

from nexo.cli.progress import progress_bar
from nexo.cli.session import Session, takes_session


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
