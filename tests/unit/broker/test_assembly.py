"""What a broker process tells others of itself."""

from __future__ import annotations

import pytest

from tidelog.adapters.system import host_name
from tidelog.broker.assembly import advertised_address
from tidelog.config.schema import BrokerConfig


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "::"])
def test_clients_are_never_told_to_connect_to_all_addresses(wildcard: str) -> None:
    assert advertised_address(BrokerConfig(), (wildcard, 8082)) == (host_name(), 8082)


def test_the_bound_address_is_advertised_unless_another_is_set() -> None:
    assert advertised_address(BrokerConfig(), ("127.0.0.1", 40123)) == ("127.0.0.1", 40123)
    config = BrokerConfig.model_validate({"http.advertised.listener": "broker-1.example:80"})
    assert advertised_address(config, ("0.0.0.0", 8082)) == ("broker-1.example", 80)
