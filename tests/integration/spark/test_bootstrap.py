"""A query whose `bootstrap.servers` do not answer ends soon, in the driver, and says so."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.integration.spark.scripted import Script, scripted_broker
from tidelog.spark.cluster import find_cluster
from tidelog.spark.columns import query_columns
from tidelog.spark.options import parse_source_options
from tidelog.spark.readers import TidelogReader, TidelogStreamReader
from tidelog.spark.source import TidelogDataSource
from tidelog.transport.errors import ConnectFailed

DEADLINE_MS = 300
VALUE = StructType([StructField("value", BinaryType())])


def options(servers: str) -> dict[str, str]:
    return {"bootstrap.servers": servers, "subscribe": "t", "kafkaConsumer.pollTimeoutMs": str(DEADLINE_MS)}


def test_the_source_names_the_address_where_nobody_answers(silent: str) -> None:
    batch = TidelogReader(parse_source_options(options(silent), is_streaming=False), query_columns(VALUE))
    stream = TidelogStreamReader(parse_source_options(options(silent), is_streaming=True), query_columns(VALUE))
    for look_up in (batch.partitions, stream.initialOffset):
        with pytest.raises(ConnectFailed, match=rf"no broker answers at {silent} within 0.3 s: "):
            look_up()


def test_the_sink_names_the_address_where_nobody_answers(silent: str) -> None:
    given = {"bootstrap.servers": silent, "topic": "t", "kafka.delivery.timeout.ms": str(DEADLINE_MS)}
    source = TidelogDataSource(given)
    for make_writer in (source.writer, source.streamWriter):
        with pytest.raises(ConnectFailed, match=rf"no broker answers at {silent} within 0.3 s: "):
            make_writer(VALUE, False)


def test_the_deadline_is_that_of_the_bootstrap_however_long_a_query_may_wait(
    nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.spark.cluster.BOOTSTRAP_TIMEOUT_S", 0.2)
    given = {"bootstrap.servers": nobody, "subscribe": "t", "kafkaConsumer.pollTimeoutMs": "3600000"}
    batch = TidelogReader(parse_source_options(given, is_streaming=False), query_columns(VALUE))
    with pytest.raises(ConnectFailed, match=r"within 0.2 s"):
        batch.partitions()


def test_the_connection_that_found_the_cluster_is_kept_and_waits_as_long_as_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.spark.cluster.BOOTSTRAP_TIMEOUT_S", 1.0)
    with scripted_broker() as broker:
        broker.always = {"/slow": Script(delay_s=1.1)}
        cluster = find_cluster([broker.url], timeout_s=10.0)
        assert cluster.call("GET", "/slow") == b""
        assert broker.connections == 1
        cluster.close()


def test_a_broker_that_closes_with_its_answer_is_found() -> None:
    with scripted_broker() as broker:
        broker.metadata_headers = {"Connection": "close"}
        cluster = find_cluster([broker.url], timeout_s=10.0)
        assert cluster.metadata([]).cluster_id == "c"
        assert broker.connections == 2
        cluster.close()
