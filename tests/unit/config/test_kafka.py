"""Kafka's clients have a listener, and settings that would let in strangers or show secrets are refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tidelog.config.exposure import exposed
from tidelog.config.schema import BrokerConfig

ELSEWHERE = "10.0.0.1:9092"
KEYS = {"ssl.keystore.location": "broker.pem"}


def config(**settings: object) -> BrokerConfig:
    return BrokerConfig.model_validate({name.replace("__", "."): value for name, value in settings.items()})


def test_a_broker_with_no_address_of_its_own_has_the_usual_one() -> None:
    assert config().kafka_address == "127.0.0.1:9092"
    assert config(http__listener="127.0.0.1:8083").kafka_address is None
    assert config(http__authentication="token").kafka_address is None
    assert config(http__listener="127.0.0.1:8083", kafka__listener="127.0.0.1:1").kafka_address == "127.0.0.1:1"
    assert config(kafka__listener="").kafka_address is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kafka.listener": "9092"}, "HOST:PORT"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT"}, "need each other"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256"}, "need each other"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN"}, "shows what is secret"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"kafka.security.protocol": "SSL", "kafka.listener": ELSEWHERE}, "ssl.keystore.location"),
        ({"http.authentication": "token", "kafka.listener": ELSEWHERE}, "lets everybody in"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms"),
    ],
)
def test_what_would_not_be_safe_is_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        BrokerConfig.model_validate(settings)


def test_plain_text_that_other_machines_reach_is_exposed() -> None:
    def sentences(**settings: object) -> list[str]:
        found = exposed(config(peer__listener="127.0.0.1:1", **settings), lambda _: [])
        return [sentence for sentence in found if "kafka.listener" in sentence]

    assert not sentences()
    (sentence,) = sentences(kafka__listener=ELSEWHERE)
    assert "kafka.security.protocol=SSL" in sentence
    assert not sentences(kafka__listener=ELSEWHERE, kafka__security__protocol="SSL", **KEYS)
    assert not sentences(
        kafka__listener=ELSEWHERE,
        kafka__security__protocol="SASL_SSL",
        sasl__enabled__mechanisms="PLAIN,SCRAM-SHA-512",
        **KEYS,
    )


def test_who_has_to_log_in_over_http_may_be_anonymous_here_only_if_acls_say_what_it_may() -> None:
    settings = {"http.authentication": "token", "kafka.listener": "127.0.0.1:1"}
    with pytest.raises(ValidationError):
        BrokerConfig.model_validate(settings)
    assert BrokerConfig.model_validate({**settings, "authorizer.enabled": True}).kafka_address
