"""A broker does not start with a listener that believes strangers from other machines."""

from __future__ import annotations

import pytest

from tidelog.config.exposure import exposed, is_loopback, not_allowed
from tidelog.config.load import load_config

NAMES = {
    "here": ["127.0.0.1", "::1"],
    "broker-1.example": ["10.0.0.1"],
    "both": ["127.0.0.1", "10.0.0.1"],
    "127.1": ["127.0.0.1"],
    "local": ["fe80::1%2"],
}


def resolve(host: str) -> list[str]:
    return NAMES.get(host, [])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost", "LocalHost", "here", "127.1"])
def test_loopback_is_reached_from_this_machine_alone(host: str) -> None:
    assert is_loopback(host, resolve)


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "10.0.0.1", "2001:db8::1", "128.0.0.1", "broker-1.example", "both", "local", "unknown"],
)
def test_any_other_address_is_reached_from_elsewhere(host: str) -> None:
    assert not is_loopback(host, resolve)


def test_a_peer_listener_that_strangers_reach_is_named_with_the_ways_out() -> None:
    config = load_config(None, {}, {"peer.listener": "0.0.0.0:9192"})
    (sentence,) = exposed(config, resolve)
    assert sentence.startswith("peer.listener 0.0.0.0:9192 can be reached from other machines")
    assert "set cluster.secret.file" in sentence
    assert str(not_allowed([sentence])).startswith(sentence)
    assert "security.allow.insecure=true" in str(not_allowed([sentence]))


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"peer.listener": "localhost:9192"},
        {"peer.listener": "0.0.0.0:9192", "cluster.secret.file": "/etc/tidelog/secret"},
    ],
)
def test_what_is_not_exposed_is_not_spoken_of(flags: dict[str, str]) -> None:
    assert exposed(load_config(None, {}, flags), resolve) == []
