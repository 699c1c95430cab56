"""What clients are told of a listener's address, and what the settings make of one."""

from __future__ import annotations

import pytest

from tidelog.broker.face.admission import ListenerLimits
from tidelog.broker.face.listener import Listener
from tidelog.broker.http.server import http_listener
from tidelog.config.schema import BrokerConfig
from tidelog.model.cluster import HTTP, Endpoint

SET = Endpoint("broker-1.example", 80)


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::"])
def test_clients_are_never_told_to_connect_to_all_addresses(everywhere: str) -> None:
    bind = Endpoint(everywhere, 0)
    listener = Listener("any", bind, ListenerLimits())
    assert listener.advertised_at(Endpoint(everywhere, 8082), "machine-1") == Endpoint("machine-1", 8082)
    assert Listener("any", bind, ListenerLimits(), SET).advertised_at(Endpoint(everywhere, 8082), "machine-1") == SET


def test_the_bound_address_is_advertised_unless_another_is_set() -> None:
    listener = Listener("any", Endpoint("127.0.0.1", 0), ListenerLimits())
    assert listener.advertised_at(Endpoint("127.0.0.1", 40123), "machine-1") == Endpoint("127.0.0.1", 40123)


def test_the_settings_of_the_http_listener() -> None:
    config = BrokerConfig.model_validate(
        {
            "http.listener": "[::1]:0",
            "http.advertised.listener": "broker-1.example:80",
            "http.connections.max": 7,
        }
    )
    listener = http_listener(config)
    assert (listener.name, listener.bind, listener.advertised) == (HTTP, Endpoint("::1", 0), SET)
    assert listener.limits.connections_max == 7
    assert http_listener(BrokerConfig()).advertised is None


def test_an_address_is_written_as_in_a_url() -> None:
    assert [str(Endpoint(host, 80)) for host in ("b1", "10.0.0.1", "::1")] == ["b1:80", "10.0.0.1:80", "[::1]:80"]
