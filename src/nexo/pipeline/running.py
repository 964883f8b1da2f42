"""What every job is given: a session, a lake, a broker, and how to run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import nexo

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from nexo import Client
    from nexo.pipeline.status import Teller


class Running:
    """`broker` has the options of the data source that say where and who."""

    def __init__(
        self,
        spark: SparkSession,
        broker: dict[str, str],
        teller: Teller,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.spark = spark
        self.broker = broker
        self.teller = teller
        self.should_stop = should_stop

    def now(self) -> datetime:
        return datetime.now(UTC)

    def client(self) -> Client:
        return nexo.connect(
            self.broker["endpoint"],
            token=self.broker.get("token"),
            tls_ca=self.broker.get("tlsCa"),
        )

    def stream(self, **options: Any) -> DataFrame:
        """Messages of the broker, as they come."""
        return self.spark.readStream.format("nexo").options(**self.broker, **options).load()

    def table(self, **options: Any) -> DataFrame:
        """Messages of the broker, as they are now."""
        return self.spark.read.format("nexo").options(**self.broker, **options).load()


def trigger(once: bool, every_s: float) -> dict[str, Any]:
    """All there is and then an end, or a micro-batch every so often."""
    return {"availableNow": True} if once else {"processingTime": f"{every_s} seconds"}
