"""The data pipeline: jobs on Spark that keep, measure and send again what went through a broker.

Lives here: a readable file for each job, the lake's layout, commits into it, status and progress.
May import: spark, client, wire, vocabulary; pyspark, pyarrow and numpy.
Never: puts a row into the lake twice, or takes a message that is not safe elsewhere.
Enter at: `archive.py`, then `commits.py`; `job.JOBS` lists the jobs; docs/pipeline.md.
Tests: `tests/pipeline/`.
"""
