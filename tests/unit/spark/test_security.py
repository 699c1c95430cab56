"""How a query connects: the options of Spark's Kafka source, for reading and for writing."""

from __future__ import annotations

import pytest

from tidelog.model.errors import InvalidRequest
from tidelog.spark.options import parse_source_options
from tidelog.spark.sink_options import parse_sink_options
from tidelog.transport.security import Security

GIVEN = {"bootstrap.servers": "a:1", "kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "ca.pem"}


def test_kafkas_options_say_how_to_connect() -> None:
    source = parse_source_options({**GIVEN, "subscribe": "t"}, is_streaming=False)
    sink = parse_sink_options(GIVEN, is_streaming=False)
    for found in (source, sink):
        assert found.bootstrap == ("https://a:1",)
        assert found.security == Security("SSL", "ca.pem")


def test_what_does_not_agree_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"set security\.protocol to SSL"):
        parse_sink_options({**GIVEN, "kafka.security.protocol": "PLAINTEXT"}, is_streaming=False)
