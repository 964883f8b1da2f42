"""Writing to queues and topics: every column arrives, and what is run again adds nothing."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

from nexo.spark import writer as writing
from nexo.spark.options import read_options
from nexo.spark.writer import check_columns
from nexo.vocabulary.errors import InvalidArgument
from tests.spark.place import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from nexo import Queue
    from tests.spark.place import Place


def write(place: Place, rows: DataFrame, **options: Any) -> None:
    rows.write.format("nexo").options(**place.options(**options)).mode("append").save()


def texts(queue: Queue) -> Counter[str]:
    return Counter(message.text for message in queue.peek(1_000))


def test_every_column(spark: SparkSession, place: Place) -> None:
    rows = spark.sql(
        "SELECT 'a' AS body, 9 AS priority, CAST(NULL AS double) AS delay, "
        "map('k', 'v') AS attributes, 'g' AS group_id UNION ALL "
        "SELECT 'b', 0, 100.0, NULL, NULL"
    )
    write(place, rows.coalesce(1), queue=place.queue.name)
    first, second = place.queue.peek(10)
    assert (first.text, first.priority, first.attributes) == ("a", 9, {"k": "v"})
    assert (first.group_id, second.group_id) == ("g", None)
    assert (second.text, second.state.name) == ("b", "SCHEDULED")


def test_a_queue_for_each_row(spark: SparkSession, place: Place) -> None:
    other = place.client.create_queue(f"{place.name}-other")
    rows = spark.range(100).select(
        F.col("id").cast("string").alias("body"),
        F.when(F.col("id") % 3 == 0, other.name).otherwise(place.queue.name).alias("queue"),
    )
    write(place, rows.repartition(3))
    assert texts(other) == Counter(str(number) for number in range(0, 100, 3))
    assert texts(place.queue) == Counter(str(number) for number in range(100) if number % 3)


def test_a_topic(spark: SparkSession, place: Place) -> None:
    topic = place.client.create_topic(place.name, retention_messages=100)
    rows = spark.createDataFrame([("a", {"k": "v"})], "body string, attributes map<string,string>")
    write(place, rows, topic=topic.name)
    write(place, rows.drop("attributes").withColumn("topic", F.lit(topic.name)))
    first, second = topic.read(0)
    assert (first.text, first.attributes, second.attributes) == ("a", {"k": "v"}, {})


def test_what_was_read_can_be_written(spark: SparkSession, place: Place) -> None:
    work = place.client.create_queue(f"{place.name}-work", max_attempts=1)
    work.push("a", priority=3, attributes={"k": "v"})
    message = work.pop()
    assert message is not None
    message.nack(reason="boom")
    letters = place.table(spark, queue=f"{work.name}_dlq")
    write(place, letters, queue=place.queue.name)
    (again,) = place.queue.peek(10)
    assert (again.text, again.priority, again.attributes) == ("a", 3, {"k": "v"})


def test_a_named_write_counts_once(spark: SparkSession, place: Place) -> None:
    rows = spark.range(50).selectExpr("cast(id as string) body").repartition(2)
    for _ in range(2):
        write(place, rows, queue=place.queue.name, writeId=f"load-{place.name}")
    assert place.queue.info().depth == 50
    write(place, rows, queue=place.queue.name)
    write(place, rows, queue=place.queue.name)
    assert place.queue.info().depth == 150, "without a name they are three writes"


def test_a_batch_that_spark_runs_again_adds_nothing(spark: SparkSession, place: Place) -> None:
    """The commits log lacks its last entry: the driver died right after the sink was done."""
    lines = place.directory / "lines"
    lines.mkdir()
    for file in range(3):
        text = "\n".join(f"{file}-{number}" for number in range(20))
        (lines / f"{file}.txt").write_text(text)
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines))
    pushed = Counter(f"{file}-{number}" for file in range(3) for number in range(20))
    for run in range(3):
        query = (
            rows.withColumnRenamed("value", "body")
            .repartition(3)
            .writeStream.format("nexo")
            .options(**place.options(queue=place.queue.name))
            .option("checkpointLocation", str(place.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE_S)
        batches = [each["batchId"] for each in query.recentProgress if each["numInputRows"]]
        assert batches == ([0, 1, 2] if run == 0 else [2]), "Spark did not run it again"
        assert texts(place.queue) == pushed
        commits = place.directory / "checkpoint" / "commits"
        (commits / "2").unlink()
        (commits / ".2.crc").unlink()


def enriched(
    spark: SparkSession, place: Place, each: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """A run of `each` over the lines that are there."""
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(place.directory / "lines"))
    query = (
        rows.withColumnRenamed("value", "body")
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", str(place.directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    return query


def test_each_write_of_foreachbatch_has_a_name_by_itself(spark: SparkSession, place: Place) -> None:
    """Two writes of one micro-batch into one queue, of rows that are alike; run again, neither
    adds anything. A new checkpoint is another query, and its rows arrive."""
    (place.directory / "lines").mkdir()
    for number in range(2):
        (place.directory / "lines" / f"{number}.txt").write_text(f"{number}-a\n{number}-b")

    def twice(batch: DataFrame, _: int) -> None:
        for _ in range(2):
            write(place, batch.coalesce(1), queue=place.queue.name)

    enriched(spark, place, twice)
    pushed = Counter({f"{number}-{letter}": 2 for number in range(2) for letter in "ab"})
    assert texts(place.queue) == pushed
    commits = place.directory / "checkpoint" / "commits"
    (commits / "1").unlink()
    (commits / ".1.crc").unlink()
    again = enriched(spark, place, twice)
    assert [each["batchId"] for each in again.recentProgress if each["numInputRows"]] == [1]
    assert texts(place.queue) == pushed, "the micro-batch that ran again has added something"
    shutil.rmtree(place.directory / "checkpoint")
    enriched(spark, place, twice)
    assert texts(place.queue) == Counter({text: 2 * count for text, count in pushed.items()})


def test_other_rows_under_a_write_id_are_refused(spark: SparkSession, place: Place) -> None:
    """The way to lose messages: names by the number of the batch, and a new checkpoint."""
    named = {"queue": place.queue.name, "writeId": f"enrich-{place.name}"}
    write(place, spark.sql("SELECT 'a' AS body"), **named)
    write(place, spark.sql("SELECT 'a' AS body"), **named)
    with pytest.raises(Exception, match=r"was used before to write other rows .* a writeId of its"):
        write(place, spark.sql("SELECT 'b' AS body"), **named)
    write(place, spark.sql("SELECT 'b' AS body"), **named, verifyRepeats="false")
    assert texts(place.queue) == Counter(["a"])


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ({"value": "string"}, {"queue": "q"}, r"no column 'body' .*Renamed\('value'"),
        ({"body": "int"}, {"queue": "q"}, "of type int"),
        ({"body": "string", "prioritty": "int"}, {"queue": "q"}, "did you mean 'priority'"),
        ({"body": "string", "zzz": "int"}, {"queue": "q"}, "drop it; the columns are"),
        ({"body": "string", "priority": "string"}, {"queue": "q"}, "of type string"),
        ({"body": "string"}, {}, "no target is given"),
        ({"body": "string", "queue": "string"}, {"queue": "q"}, "more than one target"),
        ({"body": "string", "queue": "string", "topic": "string"}, {}, "more than one target"),
        ({"body": "string", "delay": "int"}, {"topic": "t"}, "a topic has no delay"),
        ({"body": "string"}, {"topic": "t,u"}, "one queue or topic"),
        ({"body": "string"}, {"topicPattern": "t"}, "one queue or topic"),
    ],
)
def test_refused(columns: dict[str, str], options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        check_columns(columns, read_options(options))


def test_overwriting_is_refused(spark: SparkSession, place: Place) -> None:
    rows = spark.sql("SELECT 'a' AS body").write.format("nexo")
    rows = rows.options(**place.options(queue=place.queue.name))
    with pytest.raises(AnalysisException, match=r"mode\('append'\)"):
        rows.mode("overwrite").save()


def test_a_partition_cut_differently_is_noticed(place: Place) -> None:
    """What was accepted under this number had fewer rows: nothing may be dropped silently."""
    import pyarrow as pa

    def push(count: int) -> None:
        options = read_options(place.options(queue=place.queue.name, verifyRepeats="false"))
        task = writing._Writing(options, to_topic=False, producer=f"p-{place.name}", first=7)
        task.push(pa.table({"body": pa.array(["x"] * count)}))
        task.finish()

    push(3)
    push(3)
    assert place.queue.info().depth == 3
    with pytest.raises(InvalidArgument, match="cut differently"):
        push(4)
