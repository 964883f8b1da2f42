"""Settings of a session that starts quickly and works on little data."""

from __future__ import annotations

# For every Java of a program: one that runs for seconds is not worth a thorough compilation.
FAST_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

FAST = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than these rows do
}
