"""One Spark session and one broker for all tests that need a JVM.

They are marked `spark`: `make spark` runs them, `make test` does not. Each drives queries that end by themselves
(`Trigger.AvailableNow`) and looks at what they wrote; nothing here waits for a while and hopes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.admin import AdminClient
from tidelog.model.ids import TopicPartition
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROOT = Path(__file__).parents[2]
QUERY_S_MAX = 60
SETTINGS = {"log.retention.check.interval.ms": "100"}


def what_is_missing() -> str | None:
    """Why Spark can not run here; None if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is missing: pip install 'tidelog[spark]'"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "Java is missing: Spark needs Java 17 or later; on Debian: apt-get install openjdk-17-jre-headless"
    return None


def kafka_jars() -> list[str]:
    """Spark's own Kafka source, if `make kafka-jars` has fetched it."""
    return [str(path) for path in sorted((ROOT / ".kafka" / "spark").glob("*.jar"))]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2,2]")
        .config("spark.jars", ",".join(kafka_jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.checkpointFileManagerClass", LOCAL_CHECKPOINTS)
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .getOrCreate()
    )
    yield session
    session.stop()


LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as cluster:
        yield cluster


_numbers = count()


class Topic:
    """A topic of its own for each test, and the queries on it."""

    def __init__(
        self, spark: SparkSession, cluster: LocalCluster, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        self.spark, self.cluster = spark, cluster
        self.name = f"topic-{next(_numbers)}"
        self.partitions = partitions
        self.create(configs)

    def create(self, configs: Mapping[str, str] | None = None) -> None:
        async def ask() -> None:
            async with AdminClient(self.cluster.bootstrap, **self.cluster.security) as admin:
                await admin.create_topic(self.name, partitions=self.partitions, configs=configs)

        asyncio.run(ask())

    def delete(self) -> None:
        async def ask() -> None:
            async with AdminClient(self.cluster.bootstrap, **self.cluster.security) as admin:
                await admin.delete_topic(self.name)

        asyncio.run(ask())

    def write(self, values: Sequence[bytes | None], partition: int = 0, **options: Any) -> None:
        """Appends values to one partition."""

        async def send() -> None:
            async with Producer(self.cluster.bootstrap, **self.cluster.security, **options) as producer:
                await (await producer.send_batch(self.name, values, partition=partition))

        asyncio.run(send())

    def start_offset(self, partition: int = 0) -> int:
        async def ask() -> int:
            async with AdminClient(self.cluster.bootstrap, **self.cluster.security) as admin:
                key = TopicPartition(self.name, partition)
                return (await admin.list_offsets([key]))[key].extent()[0]

        return asyncio.run(ask())

    @property
    def connection(self) -> dict[str, str]:
        """The options by which a query connects: addresses, and the names of files."""
        names = {"ssl_ca_location": "kafka.ssl.ca.location", "token_file": "token.file"}
        given = {names[argument]: value for argument, value in self.cluster.security.items()}
        return {"kafka.bootstrap.servers": self.cluster.bootstrap, **given}

    def batch(self, **options: str) -> DataFrame:
        """All that is there, as a batch query."""
        reader = self.spark.read.format("tidelog").options(**self.connection)
        return reader.option("subscribe", self.name).options(**options).load()

    def values(self, **options: str) -> list[bytes]:
        """All values, in order of partition and offset."""
        rows = self.batch(**options).select("partition", "offset", "value").collect()
        return [bytes(row["value"]) for row in sorted(rows, key=lambda row: (row["partition"], row["offset"]))]

    def stream(self, **options: str) -> DataFrame:
        """Returns what comes, as a streaming query; from the earliest unless `options` say otherwise."""
        reader = self.spark.readStream.format("tidelog").options(**self.connection)
        return reader.options(**{"subscribe": self.name, "startingOffsets": "earliest", **options}).load()


@pytest.fixture
def topic(spark: SparkSession, broker: LocalCluster) -> Topic:
    return Topic(spark, broker)


class Batches:
    """A `foreachBatch` sink: what each batch had, and where the query is to die."""

    def __init__(self) -> None:
        self.seen: dict[int, list[int]] = {}
        self.dies_in: int | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        found = [row["offset"] for row in frame.select("offset").collect()]
        if batch_id == self.dies_in:
            raise RuntimeError("the sink is broken")
        self.seen[batch_id] = sorted(found)

    @property
    def offsets(self) -> list[int]:
        return [offset for batch in sorted(self.seen) for offset in self.seen[batch]]


def run(frame: DataFrame, sink: Any, checkpoint: Path) -> StreamingQuery:
    """A query until it has caught up. Raises what it failed with."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return ended(writer.trigger(availableNow=True).start())


def ended(query: StreamingQuery) -> StreamingQuery:
    try:
        assert query.awaitTermination(QUERY_S_MAX), query.status
    finally:
        query.stop()
    return query


def uncommit(checkpoint: Path, batch_id: int) -> None:
    """As if Spark had died before the end of a batch was noted."""
    (checkpoint / "commits" / str(batch_id)).unlink()
    (checkpoint / "commits" / f".{batch_id}.crc").unlink(missing_ok=True)
