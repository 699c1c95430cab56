from __future__ import annotations

import json

import pytest

from tests.integration.cli.conftest import Cli

pytestmark = pytest.mark.process


def test_quotas_are_set_listed_and_removed(cli: Cli) -> None:
    said = cli.succeed("quota", "set", "--user", "alice", "producer_byte_rate=10MB", "request_rate=0.5")
    assert said == b"set: the quota of user alice\n"
    cli.succeed("quota", "set", "--default-address", "connection_creation_rate=1000000")
    cli.succeed("quota", "set", "--user", "alice", "--default-client", "consumer_byte_rate=500KB/s")
    lines = [line.split() for line in cli.succeed("quota", "list").decode().splitlines()]
    assert lines[0] == ["USER", "CLIENT", "ADDRESS", "KEY", "AT", "MOST"]
    assert ["alice", "-", "-", "producer_byte_rate", "10000000"] in lines
    assert ["alice", "<default>", "-", "consumer_byte_rate", "500000"] in lines
    assert ["-", "-", "<default>", "connection_creation_rate", "1000000"] in lines
    shown = json.loads(cli.succeed("quota", "list", "--json"))
    rates = {"producer_byte_rate": 1e7, "request_rate": 0.5}
    assert {"user": "alice", "client_id": None, "address": None, "rates": rates} in shown
    remove = ["quota", "remove", "--user", "alice"]
    assert cli.succeed(*remove, "request_rate") == b"removed from the quota of user alice: request_rate\n"
    assert cli.succeed(*remove) == b"removed from the quota of user alice: producer_byte_rate\n"
    assert cli.succeed(*remove) == b"there is no such quota of user alice\n"
    cli.succeed("quota", "remove", "--user", "alice", "--default-client")
    cli.succeed("quota", "remove", "--default-address")
    assert json.loads(cli.succeed("quota", "list", "--json")) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["producer_byte_rate=1"], "say whose quota"),
        (["--user", "a", "--default-user", "producer_byte_rate=1"], "two entities"),
        (["--user", "a", "producer_byte_rate"], "no rate"),
        (["--user", "a", "producer_byte_rate=fast"], "no rate"),
        (["--user", "a", "request_rate=1", "request_rate=2"], "set twice"),
    ],
)
def test_what_is_no_quota_is_wrong_usage(cli: Cli, words: list[str], said: str) -> None:
    assert said in cli.fail("quota", "set", *words, status=2)[0]


def test_what_brokers_refuse_is_told(cli: Cli) -> None:
    assert "40002" in cli.fail("quota", "set", "--user", "a", "connection_creation_rate=1")[0]
