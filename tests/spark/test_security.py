"""A cluster that speaks TLS and wants a token: what tasks read and write, and what a query's plan gives away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import Batches, Topic, run
from tidelog.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RECORDS = 500


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, tls=True, login=True, data_dir=tmp_path_factory.mktemp("closed")) as cluster:
        yield cluster


def plan_of(frame: DataFrame) -> str:
    """All that Spark shows of a query: its UI and `explain` take it from here."""
    return str(frame._jdf.queryExecution().toString())


def test_tasks_write_and_read_over_tls_with_a_token(spark: SparkSession, closed: LocalCluster, tmp_path: Path) -> None:
    topic = Topic(spark, closed, partitions=2)
    rows = spark.range(RECORDS).selectExpr("CAST(id AS STRING) AS value").repartition(3)
    rows.write.format("tidelog").options(**topic.connection).option("topic", topic.name).mode("append").save()
    wanted = sorted(b"%d" % number for number in range(RECORDS))
    assert sorted(topic.values()) == wanted
    sink = Batches()
    run(topic.stream(), sink, tmp_path / "checkpoint")
    assert len(sink.offsets) == RECORDS
    assert closed.token_file is not None
    secret = closed.token_file.read_text().partition(".")[2]
    plan = plan_of(topic.batch())
    assert "tidelog" in plan
    assert secret not in plan
    written = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert written and not [path for path in written if secret.encode() in path.read_bytes()]


def test_who_has_no_token_or_another_file_is_told(spark: SparkSession, closed: LocalCluster) -> None:
    topic = Topic(spark, closed)
    with pytest.raises(Exception, match=r"(?s)there is no file /nowhere/me\.token"):
        topic.batch(**{"token.file": "/nowhere/me.token"}).collect()
    reader = spark.read.format("tidelog").option("subscribe", topic.name)
    open_ = {name: value for name, value in topic.connection.items() if name != "token.file"}
    with pytest.raises(Exception, match="NotAuthenticated"):
        reader.options(**open_).load().collect()


def test_a_password_among_the_options_is_refused(spark: SparkSession, closed: LocalCluster) -> None:
    topic = Topic(spark, closed)
    with pytest.raises(Exception, match=r"use kafka\.sasl\.password\.file") as caught:
        topic.batch(**{"kafka.sasl.username": "etl", "kafka.sasl.password": "canary"}).collect()
    assert "canary" not in str(caught.value)
