"""What a broker needs to be ready, and what it leaves for later."""

import subprocess
import sys

LATER = ("jinja2", "nexo.doors.console.app", "pyspark", "pyarrow", "rich.console")


def test_a_start_loads_nothing_that_only_some_requests_need() -> None:
    program = (
        "import sys, nexo.cli.serve, nexo.server.service\n"
        f"print([name for name in {LATER} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True
    )
    assert ran.stdout.strip() == "[]"
