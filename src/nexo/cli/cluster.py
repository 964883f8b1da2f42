"""`nexo cluster …`: several brokers as one, over PostgreSQL."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from nexo.cli.parameters import command_group
from nexo.cli.session import Session, takes_session
from nexo.vocabulary.units import count_of, show_duration

if TYPE_CHECKING:
    from nexo.wire.answers import ClusterFigures

app = command_group(
    "cluster",
    """Run several brokers as one, over PostgreSQL.

    \b
    Examples
      nexo cluster create --journal postgresql://nexo@db/nexo
      nexo serve --journal postgresql://nexo@db/nexo --node a --advertise host-a
      nexo cluster status
      nexo cluster drain a
    """,
)


@app.command()
def create(
    journal: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The PostgreSQL database: postgresql://USER@HOST/DATABASE.",
            envvar="NEXO_JOURNAL",
        ),
    ],
    shards: Annotated[
        int,
        typer.Option(
            metavar="N", help="Parts that queues are divided into; it cannot be changed later."
        ),
    ] = 64,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Do nothing if there is a cluster already.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Create a cluster in an empty PostgreSQL database, or one that holds only tokens.

    \b
    Examples
      nexo cluster create --journal postgresql://nexo@db/nexo
      nexo cluster create --journal postgresql://nexo@db/nexo --shards 256

    Queues and topics are divided into shards by their names, and shards among
    the nodes that run. More shards than you will ever have nodes is right.
    """
    from nexo.server.broker import journal_of

    journal_of("", journal)  # a URL, and psycopg is installed
    from nexo.journal.postgresql_cluster import shards_of
    from nexo.journal.postgresql_connection import shown_url
    from nexo.server.offline import create_cluster

    where = shown_url(journal)
    there = shards_of(journal) if if_missing else None
    if there is not None:
        Session("", None, as_json).answer(
            {"journal": where, "shards": there},
            f"There is a cluster of {count_of(there, 'shard')} at {where}",
        )
        return
    tokens = create_cluster(journal, shards)
    kept = f". It has the {count_of(tokens, 'token')} that the database held" if tokens else ""
    Session("", None, as_json).answer(
        {"journal": where, "shards": shards, "tokens": tokens},
        f"Created a cluster of {count_of(shards, 'shard')} at {where}{kept}",
    )


@app.command("import")
def import_data(
    data: Annotated[
        Path, typer.Argument(metavar="DATA_DIR", help="Data directory of a stopped broker.")
    ],
    journal: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The PostgreSQL database of the cluster.",
            envvar="NEXO_JOURNAL",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Bring the queues, topics and tokens of a stopped broker into a cluster.

    \b
    Examples
      nexo cluster import nexo-data --journal postgresql://nexo@db/nexo

    No node may run meanwhile, and the cluster must not have queues or topics
    of the same names. Messages keep their ids, order, attempts and delays.
    If it fails, the cluster is as it was: run it again. The directory is not
    changed; do not start a broker on it again. Events are not brought along.
    """
    from nexo.server.broker import journal_of

    journal_of("", journal)  # a URL, and psycopg is installed
    from nexo.cli.progress import progress_bar
    from nexo.journal.postgresql_connection import shown_url
    from nexo.server.offline import move_into_cluster

    session = Session("", None, as_json)
    with progress_bar(session, f"Importing {data}", 1) as bar:
        moved = move_into_cluster(journal, data, lambda done, total: bar.show(done, total=total))
    where = shown_url(journal)
    session.answer(
        {"data": str(data), "journal": where, **msgspec.structs.asdict(moved)},
        f"Imported {count_of(moved.messages)} in {count_of(moved.queues, 'queue')} and "
        f"{count_of(moved.topics, 'topic')}, and {count_of(moved.tokens, 'token')}, to {where}. "
        f"Start the nodes, and do not start a broker on {data} again",
    )


@app.command()
@takes_session
def status(session: Session) -> None:
    """Show the nodes of the cluster, how many shards each has, and what waits between them.

    \b
    Examples
      nexo cluster status
      nexo cluster status --json    with the owner and the backlog of each shard
    """
    with session.client() as client:
        found = client.cluster()
    if session.as_json:
        session.document(found)
    else:
        _print(found)


@app.command()
@takes_session
def drain(
    session: Session,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The name of the node.")],
) -> None:
    """Move the shards of a node to the others, for example before maintenance.

    \b
    Examples
      nexo cluster drain a

    The node still takes calls and passes them on. It gets shards again after
    nexo cluster rebalance. To stop a node, just send it SIGTERM.
    """
    with session.client() as client:
        client.drain_node(node)
        found = client.cluster()
    others = [each for each in found.nodes if each.name != node]
    has_takers = any(each.state not in ("down", "draining") for each in others)
    kept = "" if has_takers else ". No other node takes shards, so it keeps its own until one does"
    session.answer(
        {"node": node, "draining": True, "keeps_shards": not has_takers},
        f"Draining node {node}{kept}",
    )


@app.command()
@takes_session
def rebalance(session: Session) -> None:
    """Divide the shards among all nodes again, after a drain.

    \b
    Examples
      nexo cluster rebalance

    When a node starts or stops this happens by itself.
    """
    with session.client() as client:
        client.rebalance()
    session.answer({"rebalanced": True}, "Rebalancing")


def _print(found: "ClusterFigures") -> None:
    from rich.markup import escape

    from nexo.cli.tables import console, plain_table

    table = plain_table("node", "state", "shards", "rpc", "http", "version", right=("shards",))
    for node in found.nodes:
        state = node.state if node.state == "up" else f"[red]{node.state}[/red]"
        told = (node.rpc, node.http, node.version)
        table.add_row(
            escape(node.name), state, f"{node.shards:,}", *(escape(each) for each in told)
        )
    if found.postgresql_away_s is not None:
        away = show_duration(round(found.postgresql_away_s) or 1)
        silence = f"Node {escape(found.told_by)} has had no answer from PostgreSQL for {away}."
        console().print(f"[red]{silence}[/red] This is what it knew before:")
    console().print(table)
    for node in found.nodes:
        if node.reason:
            console().print(f"[red]{escape(node.reason)}[/red]. Check its --advertise")
    waiting = sum(shard.transfers_waiting or 0 for shard in found.shards)
    if waiting:
        oldest_s = max(shard.transfers_oldest_s or 0 for shard in found.shards)
        console().print(
            f"{waiting:,} messages wait to go to another shard, the oldest for {oldest_s:,.0f} s"
        )
    owned = Counter(shard.node for shard in found.shards)
    down = {node.name for node in found.nodes if node.state == "down"}
    free = sum(count for node, count in owned.items() if node is None or node in down)
    if free:
        console().print(f"[red]{free:,} of {len(found.shards):,} shards have no owner[/red]")
