"""Making a cluster: in an empty database, or in that of a broker which has tokens and nothing else.

Whoever makes the tokens first, `nexo token create --data URL`, makes the tables of a broker alone:
there is no cluster yet. Its tokens become those of the cluster.
"""

from __future__ import annotations

from nexo.cluster.tokens import encode_tokens
from nexo.engine.transplant import Source
from nexo.journal.postgresql import PostgresqlJournal
from nexo.journal.postgresql_cluster import KeptTokens, check_shards, create_cluster, holds_broker
from nexo.journal.postgresql_connection import shown_url
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.units import count_of


def create(url: str, shards: int) -> int:
    """Returns how many tokens were there already."""
    check_shards(shards)
    if not holds_broker(url):
        create_cluster(url, shards)
        return 0
    journal = PostgresqlJournal(url)  # open to the end: no broker can start on it meanwhile
    try:
        source = Source(journal)
        _check(source, url)
        tokens = source.catalog.tokens
        create_cluster(url, shards, KeptTokens(source.tokens_alone(), encode_tokens(tokens)))
        return len(tokens)
    finally:
        journal.close()


def _check(source: Source, url: str) -> None:
    """Refuse a broker that has queues or topics. Its events tell of messages that are gone."""
    named = source.names()
    if named:
        queues = len(source.catalog.queues)
        raise InvalidArgument(
            f"the database at {shown_url(url)} holds {count_of(queues, 'queue')} and "
            f"{count_of(len(named) - queues, 'topic')} of a broker that is no cluster",
            "give the cluster a database of its own; or, if nobody needs them, delete them in psql "
            "with DROP SCHEMA nexo CASCADE",
        )
