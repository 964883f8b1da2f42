"""The data pipeline: jobs on Spark that keep, measure and send again what went through a broker.

Lives here: a readable file for each job, the lake's Delta tables, commits into them, status.
May import: spark, client, wire, vocabulary; pyspark, pyarrow, deltalake and numpy.
Never: puts a row into the lake twice, or takes a message that is not safe elsewhere.
Enter at: `archive.py`, then `commits.py`; `job.JOBS` lists the jobs; docs/pipeline.md.
Tests: `tests/pipeline/`.
"""

import os

# Read by delta-rs when it is loaded: it logs to stderr what it tried in vain on the way, such as a
# role of this machine, and what matters comes as an error that is told in one line.
os.environ.setdefault("RUST_LOG", "error")
