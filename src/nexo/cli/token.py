"""`nexo token …`: who may do what. Secrets are shown once, when they are made."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from nexo.cli.parameters import command_group, parse_duration
from nexo.cli.session import Session, takes_session

if TYPE_CHECKING:
    from nexo.client.tokens import NewToken, TokenInfo

app = command_group(
    "token",
    """Make, list and revoke tokens: who may do what.

    \b
    Examples
      nexo token create admin --allow '*:*' --data nexo-data   before the first start
      nexo token create shop --allow 'orders.*:push,pop' --expires 30d
      nexo token list
      nexo token revoke shop
    """,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The token's name.")]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The data directory of a broker that is not running; else the running one is asked.",
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
            help="What it allows: push, pop, peek, manage, admin or *; may be given again.",
        ),
    ],
    expires: Annotated[
        float | None,
        typer.Option(metavar="DURATION", parser=parse_duration, help="It ends after this."),
    ] = None,
    aws: Annotated[
        bool, typer.Option("--aws", help="An access key pair for the SQS API instead.")
    ] = False,
    data: Data = None,
) -> None:
    """Make a token, and show it: this once, so keep it safe.

    \b
    Examples
      nexo token create admin --allow '*:*' --data nexo-data
      nexo token create shop --allow 'orders.*:push' --allow 'news:pop' --expires 30d
      nexo token create lambda --allow 'orders:pop' --aws

    Before the first start the data directory is named; later the running
    broker is asked, by an admin. Programs read a token from $NEXO_TOKEN, or
    from a file with NEXO_TOKEN=@FILE; the flag --token can be seen by others
    in the list of processes, unless it is --token @FILE.
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
    """List tokens with what they allow; their secrets are not kept.

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
        session.line("there are no tokens yet: nexo token create NAME --allow 'PATTERN:ACTION,…'")
    else:
        _table(found)


@app.command()
@takes_session
def revoke(session: Session, name: Name, data: Data = None) -> None:
    """Revoke a token: at once, on open connections too.

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
    session.answer({"name": name, "revoked": True}, f"token {name} is revoked")


def _existing(data: str) -> str:
    """To look must not create."""
    from pathlib import Path

    from nexo.vocabulary.errors import InvalidArgument

    if not Path(data).is_dir():
        raise InvalidArgument(f"there is no data directory {data}", "check --data")
    return os.fspath(data)


def _show(session: Session, made: "NewToken") -> None:
    if made.secret_access_key is not None:
        session.line(f"aws_access_key_id={made.access_key_id}")
        session.line(f"aws_secret_access_key={made.secret_access_key}")
    else:
        session.line(made.token or "")
    until = f", until {made.expires_at:%Y-%m-%d %H:%M} UTC" if made.expires_at else ""
    typer.echo(
        f"{made.name} may {' '.join(made.allow)}{until}. This is shown once: keep it safe.",
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
