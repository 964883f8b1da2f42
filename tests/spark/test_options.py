"""Options: what is taken, and what is refused with words that help."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import MapType, StringType, StructType

from nexo.spark.link import Link, link_to
from nexo.spark.options import TABLE, Options, read_options, table_in_markdown
from nexo.spark.patience import Patience
from nexo.spark.source import NexoDataSource
from nexo.vocabulary.errors import InvalidArgument

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_all_options_in_small_letters_as_spark_hands_them_over() -> None:
    found = read_options(
        {
            "endpoint": "nexo://broker:1",
            "topicpattern": "news.*",
            "maxoffsetspertrigger": "10",
            "maxbytespertrigger": "20",
            "minpartitions": "3",
            "startingoffsets": '{"news.a": 5}',
            "endingoffsets": "LATEST",
            "failondataloss": "False",
            "token": "secret",
            "checkpointlocation": "anywhere",
        }
    )
    assert found == Options(
        endpoint="nexo://broker:1",
        token="secret",
        topic_pattern="news.*",
        messages_max=10,
        bytes_max=20,
        partitions_min=3,
        starting_offsets={"news.a": 5},
        fail_on_data_loss=False,
    )


def test_defaults_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXO_URL", "nexo://elsewhere:7")
    monkeypatch.setenv("NEXO_TOKEN", "mine")
    found = read_options({"queue": "q"})
    assert (found.endpoint, found.token) == ("nexo://elsewhere:7", "mine")
    assert read_options({"queue": "q", "endpoint": "nexo://here", "token": "t"}).token == "t"
    monkeypatch.delenv("NEXO_URL")
    assert read_options({"queue": "q"}).endpoint == "nexo://127.0.0.1:9325"


def test_connections_are_shared_where_the_same_is_trusted() -> None:
    def link(**options: str) -> Link:
        return link_to(read_options({"queue": "q", "endpoint": "nexos://127.0.0.1:1", **options}))

    assert link() is link()
    assert link() is not link(tlsVerify="false")
    assert link() is not link(token="another")


def test_topics_with_commas() -> None:
    assert read_options({"topic": "a, b,c"}).topics == ("a", "b", "c")


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("1767225600000", 1767225600000),
        ("2026-01-01T00:00:00Z", 1767225600000),
        ("2026-01-01 01:00:00.5+01:00", 1767225600500),
        ("2026-01-01", 1767225600000),
    ],
)
def test_times(value: str, milliseconds: int) -> None:
    found = read_options({"topic": "t", "startingTimestamp": value})
    assert found.starting_ms == milliseconds


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"que": "q"}, r"no option 'que' \(did you mean 'queue'\?\)"),
        ({"queue": "q", "maxMesagesPerTrigger": "1"}, "did you mean 'maxMessagesPerTrigger'"),
        ({"queue": "q", "zzz": "1"}, "there are: endpoint, queue"),
        ({"path": "orders"}, "not in load"),
        ({"queue": "q", "topic": "t"}, "queue and topic cannot .* exactly one"),
        ({"queue": "q", "startingOffsets": "earliest"}, "works with topics only"),
        (
            {"topic": "t", "startingOffsets": "latest", "startingTimestamp": "1"},
            "cannot be combined",
        ),
        ({"topic": "t", "startingOffsets": "[1]"}, "JSON from topics to offsets"),
        ({"topic": "t", "startingTimestamp": "yesterday"}, "yesterday"),
        ({"topicPattern": "("}, "cannot be read"),
        ({"queue": "q", "mode": "take"}, "unknown mode 'take'"),
        ({"queue": "q", "minPartitions": "0"}, "whole number from 1 on"),
        ({"queue": "q", "maxBytesPerTrigger": "1 MB"}, "whole number from 1 on"),
        ({"queue": "q", "failOnDataLoss": "perhaps"}, "true or false"),
        ({"queue": "q", "endpoint": "http://a"}, "does not begin with nexo"),
    ],
)
def test_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        read_options(given)


def test_the_page_has_the_table() -> None:
    """Write it with `python -c 'import nexo.spark.options as o; print(o.table_in_markdown())'`."""
    page = PAGE.read_text(encoding="utf-8")
    assert table_in_markdown() in page
    assert len(re.findall(r"^\| `", table_in_markdown(), re.MULTILINE)) == len(TABLE)


@pytest.mark.parametrize("module", ["nexo.spark", "nexo.spark.options", "nexo.spark.java"])
def test_spark_is_not_loaded_before_it_is_needed(module: str) -> None:
    code = f"import {module}, sys; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50
    )
    assert not {"pyspark", "pyarrow", "numpy", "pandas"} & set(run.stdout.split())


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("subscribe", "use topic"),
        ("subscribePattern", "use topicPattern"),
        ("assign", "use topic"),
        ("kafka.bootstrap.servers", "use endpoint"),
        ("kafka.group.id", "no Kafka"),
        ("endingOffsetsByTimestamp", "use endingTimestamp"),
    ],
)
def test_the_names_of_kafka_are_answered_with_ours(name: str, hint: str) -> None:
    with pytest.raises(InvalidArgument, match=hint):
        read_options({name: "news"})


def test_the_options_of_kafka_that_are_taken() -> None:
    found = read_options(
        {
            "topic": "news",
            "startingoffsetsbytimestamp": '{"news": 1767225600000}',
            "endingtimestamp": "2026-01-31T00:00:00Z",
            "minoffsetspertrigger": "5000",
            "maxtriggerdelay": "2m",
        }
    )
    assert found.starting_ms_by_topic == {"news": 1_767_225_600_000}
    assert (found.ending_ms, found.messages_min) == (1_769_817_600_000, 5_000)
    assert found.delay_max_s == 120


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"queue": "q", "endingTimestamp": "5"}, "endingTimestamp works with topics only"),
        ({"topic": "t", "endingTimestamp": "5", "endingOffsets": "latest"}, "cannot be combined"),
        ({"topic": "t", "endingTimestamp": "soon"}, "endingTimestamp is 'soon'"),
        ({"topic": "t", "startingOffsetsByTimestamp": "x"}, "JSON from topics to milliseconds"),
        ({"topic": "t", "maxTriggerDelay": "1m"}, "needs minMessagesPerTrigger"),
        ({"topic": "t", "timeout": "0"}, "timeout is '0'"),
        ({"topic": "t", "timeout": "soon"}, "soon"),
    ],
)
def test_more_that_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        read_options(options)


def schema_of(source: NexoDataSource) -> StructType:
    """What Spark makes of it; a session is not needed for that."""
    schema = StructType()
    for column in source.schema().split(", "):
        name, kind = column.split(" ")
        map_of = MapType(StringType(), StringType())
        schema.add(name, map_of if kind.startswith("map") else kind.replace("int", "integer"))
    return schema


def test_how_long_a_broker_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams wait through an upgrade; what is asked for goes first."""

    def waits(**options: str) -> list[float | None]:
        source = NexoDataSource({"queue": "q", **options})
        schema = schema_of(source)
        written = StructType().add("body", "string")
        readers: list[Any] = [source.reader(schema), source.streamReader(schema)]
        writers: list[Any] = [source.writer(written, False), source.streamWriter(written, False)]
        return [each._options.timeout_s for each in (*readers, *writers)]

    assert waits() == [None, 600.0, None, 600.0]
    assert Link(read_options({"queue": "q"}))._connection._timeout == 60.0
    assert waits(timeout="90s") == [90.0] * 4
    assert Link(read_options({"queue": "q", "timeout": "90s"}))._connection._timeout == 90.0
    monkeypatch.setenv("NEXO_BROKER_TIMEOUT", "5s")
    assert waits() == [5.0] * 4


def test_a_schema_that_does_not_fit_is_refused() -> None:
    source = NexoDataSource({"queue": "q"})
    other = StructType().add("id", "string").add("body", "string")
    for refuse in (source.reader, source.streamReader):
        with pytest.raises(InvalidArgument, match=r"schema is fixed.*body string.*leave .schema"):
            refuse(other)
    topic = NexoDataSource({"topic": "t"})
    topic.reader(schema_of(topic))


def test_patience() -> None:
    now = [100.0]
    options = read_options({"queue": "q", "minMessagesPerTrigger": "10", "maxTriggerDelay": "60s"})
    patience = Patience(options, lambda: now[0])
    assert patience.is_asked
    assert patience.waits(9)
    assert not patience.waits(10)
    now[0] += 61
    assert not patience.waits(1), "the last micro-batch is too long ago"
    patience.begin()
    assert patience.waits(1)
    plain = Patience(read_options({"queue": "q"}))
    assert not plain.is_asked
    assert not plain.waits(1)
