"""The data source `nexo`: which reader or writer serves what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from nexo.spark.link import for_streams
from nexo.spark.options import read_options
from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class NexoDataSource(DataSource):
    """`format("nexo")`. Spark makes one for each read and each write, in a process of its own."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._asked = read_options(options)

    @classmethod
    def name(cls) -> str:
        return "nexo"

    def schema(self) -> str:
        from nexo.query.rows import declared

        self._check_readable()
        return declared(with_state=self._asked.queue is not None)

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check_schema(schema)
        if self._asked.queue is not None:
            from nexo.spark.queue_batch import ViewReader

            return ViewReader(self._asked)
        from nexo.spark.topic_batch import TopicReader

        return TopicReader(self._asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        self._check_schema(schema)
        if self._asked.queue is not None:
            from nexo.spark.queue_stream import QueueStreamReader

            return QueueStreamReader(for_streams(self._asked))
        from nexo.spark.topic_stream import TopicStreamReader

        return TopicStreamReader(for_streams(self._asked))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from nexo.spark.writer import BatchWriter

        _refuse_overwrite(overwrite)
        return BatchWriter(self._asked, schema)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from nexo.spark.writer import StreamWriter

        _refuse_overwrite(overwrite)
        return StreamWriter(for_streams(self._asked), schema)

    def _check_schema(self, schema: StructType) -> None:
        """The schema is ours. Spark asks for none where the user has given one with `.schema()`,
        and tells of that one only here."""
        ours = self.schema()
        given = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in schema)
        if given.replace("bigint", "long") != ours:
            raise InvalidArgument(
                f"the schema is fixed, and is not: {given:.200}",
                f"leave .schema() out, and select() or cast() after load(); the schema is: {ours}",
            )

    def _check_readable(self) -> None:
        asked = self._asked
        if asked.queue is None and not asked.topics and asked.topic_pattern is None:
            raise InvalidArgument(
                "no source is given",
                "set one of the options queue, topic and topicPattern",
            )


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidArgument(
            "messages in a queue or topic cannot be overwritten", "write with mode('append')"
        )
