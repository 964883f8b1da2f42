"""A broker that is not running: its tokens, and its way into a cluster. Whoever may write its data
directory is its admin.

Where a data directory is named, the URL of a journal in PostgreSQL may stand instead.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from nexo.engine.engine import Engine
from nexo.engine.process import run
from nexo.server.broker import IN_MEMORY, is_postgresql, journal_of
from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from nexo.access.tokens import Minted
    from nexo.cluster.moving_in import MovedIn
    from nexo.vocabulary.changes import TokenDefined


def create_token(
    data: str, name: str, allow: Sequence[str], expires_after_ms: int | None, aws: bool
) -> Minted:
    """Make a token in a data directory, which is created if it is not there."""

    async def create() -> Minted:
        engine = await _open(data)
        try:
            return await engine.tokens.create(
                name, allow, expires_after_ms=expires_after_ms, aws=aws
            )
        finally:
            await engine.close()

    return run(create())


def list_tokens(data: str) -> list[TokenDefined]:
    async def listing() -> list[TokenDefined]:
        engine = await _open(data)
        try:
            return engine.tokens.all()
        finally:
            await engine.close()

    return run(listing())


def revoke_token(data: str, name: str) -> None:
    async def revoke() -> None:
        engine = await _open(data)
        try:
            await engine.tokens.revoke(name)
        finally:
            await engine.close()

    run(revoke())


def create_cluster(url: str, shards: int) -> int:
    """Make a cluster in a database. Returns how many tokens it has from the start."""
    from nexo.cluster.creation import create

    return create(url, shards)


def move_into_cluster(url: str, data: Path, told: Callable[[int, int], None]) -> MovedIn:
    """Bring all that a data directory holds into the cluster of a database; `told` hears how many
    rows of payloads are copied, of how many."""
    from nexo.cluster.moving_in import move_in

    return move_in(url, data, told)


async def _open(data: str) -> Engine:
    """Raises `NotReady` if a broker has it open."""
    if data == IN_MEMORY:
        raise InvalidArgument(
            "a broker with --data :memory: stores no tokens", "name a data directory with --data"
        )
    draw = random.SystemRandom()
    url = data if is_postgresql(data) else None
    journal = journal_of(data, url)
    if url is not None:
        from nexo.cluster.offline import open_tokens

        found = await open_tokens(url)
        if found is not None:
            return found
    engine = Engine(journal, new_incarnation=lambda: draw.getrandbits(64))
    return await engine.open()
