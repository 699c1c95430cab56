"""A broker does not start with a listener that believes strangers from other machines."""

from __future__ import annotations

import pytest

from tidelog.config.exposure import exposed, is_loopback, not_allowed, token_in_plain_text
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


def found(*flags: str) -> list[str]:
    """Returns what is said of a broker with these settings."""
    return exposed(load_config(None, {}, dict(flag.split("=") for flag in flags)), resolve)


def test_a_peer_listener_that_strangers_reach_is_named_with_the_ways_out() -> None:
    (sentence,) = found("peer.listener=0.0.0.0:9192")
    assert sentence.startswith("peer.listener 0.0.0.0:9192 can be reached from other machines, and takes whoever comes")
    assert "set cluster.secret.file" in sentence
    assert "security.inter.broker.protocol=SSL" in sentence


@pytest.mark.parametrize("address", ["0.0.0.0:8082", "[::]:8082", "10.0.0.1:0", "broker-1.example:8082"])
@pytest.mark.parametrize("kind", ["http", "http.ops"])
def test_plain_http_that_strangers_reach_is_named_with_the_ways_out(kind: str, address: str) -> None:
    (sentence,) = found(f"{kind}.listener={address}")
    assert sentence == (
        f"{kind}.listener {address} can be reached from other machines, and speaks plain text: set "
        f"{kind}.security.protocol=SSL and ssl.keystore.location (`tidelog tls` makes that file), or let "
        f"{kind}.listener be on 127.0.0.1"
    )


def test_all_listeners_at_fault_are_in_one_error() -> None:
    sentences = found("http.listener=0.0.0.0:8082", "peer.listener=0.0.0.0:9192", "http.ops.listener=0.0.0.0:9100")
    assert [sentence.split()[0] for sentence in sentences] == ["http.listener", "peer.listener", "http.ops.listener"]
    error = str(not_allowed(sentences))
    assert all(sentence in error for sentence in sentences)
    assert error.endswith("security.allow.insecure=true starts the broker all the same")


JOIN = "cluster.join=http://10.0.0.1:8082"
TOKEN = "cluster.token.file=/etc/tidelog/token"


def told(*flags: str) -> list[str]:
    return token_in_plain_text(load_config(None, {}, dict(flag.split("=") for flag in flags)), resolve)


def test_a_token_that_would_be_shown_to_another_machine_in_plain_text_is_named_with_the_way_out() -> None:
    (sentence,) = told(JOIN, TOKEN)
    assert sentence == (
        "cluster.join http://10.0.0.1:8082 is asked in plain text, with the token of cluster.token.file: let "
        "cluster.join begin with https, at a broker with http.security.protocol=SSL"
    )


@pytest.mark.parametrize(
    "flags",
    [
        [],
        [TOKEN],
        [JOIN],
        [TOKEN, "cluster.join=https://10.0.0.1:8082"],
        [TOKEN, "cluster.join=http://127.0.0.1:8082"],
        [TOKEN, "cluster.join=http://localhost:8082"],
    ],
)
def test_a_token_that_nobody_can_read_on_its_way_is_not_spoken_of(flags: list[str]) -> None:
    assert told(*flags) == []


KEYSTORE = "ssl.keystore.location=/etc/tidelog/broker-1.pem"
TRUSTSTORE = "ssl.truststore.location=/etc/tidelog/ca.pem"


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["http.listener=localhost:8082", "peer.listener=localhost:9192", "http.ops.listener=[::1]:9100"],
        ["peer.listener=0.0.0.0:9192", "cluster.secret.file=/etc/tidelog/secret"],
        ["peer.listener=0.0.0.0:9192", "security.inter.broker.protocol=SSL", KEYSTORE, TRUSTSTORE],
        ["http.listener=0.0.0.0:8082", "http.security.protocol=SSL", KEYSTORE],
        ["http.ops.listener=0.0.0.0:9100", "http.ops.security.protocol=SSL", KEYSTORE],
    ],
)
def test_what_is_not_exposed_is_not_spoken_of(flags: list[str]) -> None:
    assert found(*flags) == []


@pytest.mark.parametrize(
    ("other", "named"), [("http", "http.ops.listener"), ("http.ops", "http.listener")], ids=["clients", "operators"]
)
def test_tls_at_one_listener_says_nothing_of_another(other: str, named: str) -> None:
    both = ["http.listener=0.0.0.0:8082", "http.ops.listener=0.0.0.0:9100", f"{other}.security.protocol=SSL", KEYSTORE]
    (sentence,) = found(*both)
    assert sentence.startswith(named)
