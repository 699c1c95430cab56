"""How a query connects: the options of Spark's Kafka source, for reading and for writing."""

from __future__ import annotations

import pickle

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


def test_who_is_calling_is_in_a_file_whose_name_alone_travels() -> None:
    found = parse_sink_options({**GIVEN, "token.file": "me.token"}, is_streaming=False)
    assert found.security.token_file == "me.token"
    assert pickle.loads(pickle.dumps(found)) == found
    user = {**GIVEN, "kafka.sasl.username": "etl", "kafka.sasl.password.file": "pw"}
    assert parse_sink_options(user, is_streaming=False).security.sasl_password_file == "pw"
    with pytest.raises(InvalidRequest, match=r"use kafka\.sasl\.password\.file") as caught:
        parse_sink_options({**GIVEN, "kafka.sasl.username": "etl", "kafka.sasl.password": "canary"}, is_streaming=False)
    assert "canary" not in caught.value.message


def test_what_does_not_agree_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"set security\.protocol to SSL"):
        parse_sink_options({**GIVEN, "kafka.security.protocol": "PLAINTEXT"}, is_streaming=False)
