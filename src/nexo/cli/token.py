"""`nexo token …`: who may do what. Secrets are shown once, when they are made."""

from typing import TYPE_CHECKING, Annotated

import typer

from nexo.cli.parameters import command_group, parse_duration
from nexo.cli.session import Session, takes_session

if TYPE_CHECKING:
    from nexo.client.tokens import NewToken, TokenInfo

app = command_group(
    "token",
    """Create, list and revoke access tokens.

    \b
    Examples
      nexo token create admin --allow '*:*' --data nexo-data   before the first start
      nexo token create shop --allow 'orders.*:push,pop' --expires 30d
      nexo token list
      nexo token revoke shop
    """,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR|URL",
        help="Data directory of a stopped broker, or the URL of its PostgreSQL database or that of "
        "a stopped cluster. Default: ask the running broker.",
    ),
]


@app.command()
@takes_session
def create(
    session: Session,
    name: Name,
    allow: Annotated[
        list[str],
        typer.Option(
            metavar="PATTERN:ACTION,…",
            help="Names and the actions allowed on them (push, pop, peek, manage, admin or *), "
            "such as 'orders.*:push,pop'; repeatable.",
        ),
    ],
    expires: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="The token expires after this time."
        ),
    ] = None,
    aws: Annotated[
        bool,
        typer.Option(
            "--aws", help="Create an AWS access key pair for the SQS and SNS APIs instead."
        ),
    ] = False,
    data: Data = None,
) -> None:
    """Create a token and print it. It is shown only once, so store it safely.

    \b
    Examples
      nexo token create admin --allow '*:*' --data nexo-data
      nexo token create shop --allow 'orders.*:push' --allow 'news:pop' --expires 30d
      nexo token create lambda --allow 'orders:pop' --aws
      nexo token create admin --allow '*:*' --data postgresql://nexo@db/nexo > admin.token

    Before the first start, name the data directory with --data, or the
    PostgreSQL database of the broker or cluster. Later, ask the running broker
    with a token that has the permission admin. Programs read their token from
    $NEXO_TOKEN, or from a file with NEXO_TOKEN=@FILE. Prefer --token @FILE to
    --token: other users can see options in the process list.
    """
    if data is not None:
        from nexo.client.tokens import new_token
        from nexo.server.offline import create_token

        after_ms = None if expires is None else round(expires * 1000)
        minted = create_token(data, name, allow, after_ms, aws)
        made = new_token(
            minted.defined,
            minted.token or None,
            minted.access_key_id or None,
            minted.secret_access_key or None,
        )
    else:
        with session.client() as client:
            made = client.create_token(name, allow, expires, aws)
    if session.as_json:
        session.document(made)
    else:
        _show(session, made)


@app.command("list")
@takes_session
def list_tokens(session: Session, data: Data = None) -> None:
    """List tokens and their permissions. Secrets are not shown.

    \b
    Examples
      nexo token list
      nexo token list --json | jq '.[].name'
    """
    if data is not None:
        from nexo.access.tokens import access_key_id
        from nexo.client.tokens import token_info
        from nexo.server.offline import list_tokens as offline

        found = [
            token_info(each, access_key_id(each.id) if each.aws_secret else None)
            for each in offline(_existing(data))
        ]
    else:
        with session.client() as client:
            found = client.tokens()
    if session.as_json:
        session.document(found)
    elif not found:
        session.line(
            "No tokens yet. Create one with nexo token create NAME --allow 'PATTERN:ACTION,…'"
        )
    else:
        _table(found)


@app.command()
@takes_session
def revoke(session: Session, name: Name, data: Data = None) -> None:
    """Revoke a token. It stops working at once, also on open connections.

    \b
    Examples
      nexo token revoke shop
      nexo token revoke shop --data nexo-data
    """
    if data is not None:
        from nexo.server.offline import revoke_token

        revoke_token(_existing(data), name)
    else:
        with session.client() as client:
            client.revoke_token(name)
    session.answer({"name": name, "revoked": True}, f"Revoked token {name}")


def _existing(data: str) -> str:
    """To look must not create."""
    from pathlib import Path

    from nexo.server.broker import is_postgresql, journal_of
    from nexo.vocabulary.errors import InvalidArgument

    if is_postgresql(data):
        journal_of("", data)  # psycopg is installed
        from nexo.journal.postgresql_cluster import has_cluster, holds_broker
        from nexo.journal.postgresql_connection import shown_url

        if not has_cluster(data) and not holds_broker(data):
            where = shown_url(data)
            raise InvalidArgument(f"there is no broker or cluster at {where}", "check --data")
    elif not Path(data).is_dir():
        raise InvalidArgument(f"the data directory {data} does not exist", "check --data")
    return data


def _show(session: Session, made: "NewToken") -> None:
    if made.secret_access_key is not None:
        session.line(f"aws_access_key_id={made.access_key_id}")
        session.line(f"aws_secret_access_key={made.secret_access_key}")
    else:
        session.line(made.token or "")
    until = f", expires {made.expires_at:%Y-%m-%d %H:%M} UTC" if made.expires_at else ""
    typer.echo(
        f"Created token {made.name}: {' '.join(made.allow)}{until}. "
        "It is shown only once, so store it safely.",
        err=True,
    )


def _table(found: "list[TokenInfo]") -> None:
    from datetime import UTC, datetime

    from nexo.cli.tables import console, plain_table

    table = plain_table("token", "kind", "allows", "created", "expires", wide=("allows",))
    for each in found:
        expires = f"{each.expires_at:%Y-%m-%d %H:%M}" if each.expires_at else "never"
        if each.expires_at is not None and each.expires_at <= datetime.now(UTC):
            expires = f"[red]{expires}[/red]"
        kind = each.access_key_id or "token"
        table.add_row(each.name, kind, " ".join(each.allow), f"{each.created_at:%Y-%m-%d}", expires)
    console().print(table)
