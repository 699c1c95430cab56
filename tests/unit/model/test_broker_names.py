"""Names of brokers in certificates."""

from __future__ import annotations

import pytest

from tidelog.model.broker_names import BrokerName, broker_name, check_cluster_name, parse_broker_name
from tidelog.model.errors import InvalidRequest


def test_a_name_says_which_broker_of_which_cluster() -> None:
    name = BrokerName("tides.1", 3)
    assert str(name) == "broker://tides.1/3"
    assert parse_broker_name(str(name)) == name


@pytest.mark.parametrize(
    "uri",
    [
        "broker://tides/03",
        "broker://tides/-1",
        "broker://tides/",
        "broker:///3",
        "broker://-tides/3",
        "broker://tides/3/4",
        "broker://tides/3\n",
        "https://tides/3",
        f"broker://{'x' * 64}/3",
        "broker://tides/12345678901",
    ],
)
def test_what_is_no_name_of_a_broker(uri: str) -> None:
    assert parse_broker_name(uri) is None


def test_a_certificate_names_one_broker_or_none() -> None:
    one, other = ("URI", "broker://tides/1"), ("URI", "broker://tides/2")
    strangers = (("DNS", "broker://tides/1"), ("URI", "spiffe://tides/1"))
    assert broker_name({"subjectAltName": (*strangers, one)}) == "broker://tides/1"
    assert broker_name({"subjectAltName": (one, other)}) == "", "it might be either"
    assert broker_name({"subjectAltName": strangers}) == broker_name({}) == ""


@pytest.mark.parametrize("name", ["", "a b", ".tides", "x" * 64, "tides\n"])
def test_what_is_no_name_of_a_cluster_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="no name for a cluster's certificates"):
        check_cluster_name(name)
    assert check_cluster_name("x" * 63) == "x" * 63
