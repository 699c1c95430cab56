"""Spark jobs on whole topics: each is a function that takes a session, and a command.

spark-submit "$(python -c 'from tidelog.spark.jobs import ENTRY; print(ENTRY)')" archive --help
python -m tidelog.spark.jobs archive --help     # the same on this machine's cores
"""

from __future__ import annotations

from tidelog.spark.jobs.archive import archive
from tidelog.spark.jobs.audit import audit
from tidelog.spark.jobs.replay import replay
from tidelog.spark.jobs.stats import stats

__all__ = ["ENTRY", "archive", "audit", "replay", "stats"]

ENTRY = __file__.replace("__init__", "__main__")
"""The path of the script for `spark-submit`."""
