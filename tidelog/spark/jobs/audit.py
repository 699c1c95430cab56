"""The job `audit`: reads every record of a topic on every replica, in parallel, with a task per replica."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from tidelog.spark.audit_replica import audit_replica
from tidelog.spark.auditing import AuditReport, conclude, plan_audit
from tidelog.spark.cluster import find_cluster, shared_cluster
from tidelog.spark.jobs.progress import Tell, quiet, watched
from tidelog.transport.addresses import parse_bootstrap

TIMEOUT_S = 30.0
"""Seconds that a task retries, and waits for repairs."""


def audit(spark: SparkSession, bootstrap: str, topics: Sequence[str], *, tell: Tell = quiet) -> AuditReport:
    """Reads all replicas of the topics up to the committed records that all of them have now. Raises `InvalidRequest`
    for an unknown topic."""
    addresses = parse_bootstrap(bootstrap)
    cluster = find_cluster(addresses, timeout_s=TIMEOUT_S)
    try:
        tasks, problems = plan_audit(cluster, topics)
        with watched(spark, f"auditing {', '.join(topics)}", tell):
            work = spark.sparkContext.parallelize(tasks, max(1, len(tasks)))
            reports = work.map(lambda task: audit_replica(shared_cluster(addresses, TIMEOUT_S), task)).collect()
        return conclude(cluster, tasks, reports, problems)
    finally:
        cluster.close()
