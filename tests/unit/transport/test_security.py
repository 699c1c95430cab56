"""A client's `security.protocol` and `ssl.*` say, together with its bootstrap addresses, how it connects."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.log import Reader, Writer
from tidelog.model.errors import InvalidRequest
from tidelog.producer import Producer
from tidelog.testing.certificates import ClusterCertificates
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP
from tidelog.transport.metadata import BrokerMetadata, ClusterMetadata, with_scheme
from tidelog.transport.security import Security, SecurityParameters, overridden, parse_security, tls_fault


def test_the_scheme_is_that_of_the_protocol_or_of_the_addresses() -> None:
    assert Security().addresses("a,b:1") == ("http://a:8082", "http://b:1")
    assert Security().addresses("https://a,b:1") == ("https://a:8082", "https://b:1")
    assert Security("SSL").addresses(["a", "https://b:1"]) == ("https://a:8082", "https://b:1")
    assert Security("PLAINTEXT").addresses("http://[::1]:1") == ("http://[::1]:1",)
    assert Security("SSL").addresses(DEFAULT_BOOTSTRAP) == ("https://127.0.0.1:8082",)


@pytest.mark.parametrize(
    ("security", "bootstrap", "said"),
    [
        (Security("SSL"), "http://a", "security.protocol=SSL is https"),
        (Security("PLAINTEXT"), "https://a", "security.protocol=SSL is https"),
        (Security(), "http://a,https://b", "a client speaks one of them"),
        (Security("TLS"), "a", "PLAINTEXT or SSL"),
        (Security(ssl_ca_location="ca.pem"), "a", "set security.protocol to SSL"),
        (Security("SSL", ssl_endpoint_identification_algorithm="maybe"), "a", "ssl.endpoint.identification.algorithm"),
        (Security(), "ftp://a", "neither http"),
    ],
)
def test_what_does_not_agree_is_refused(security: Security, bootstrap: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        security.addresses(bootstrap)


def test_names_are_kafkas_and_unknown_ones_are_refused() -> None:
    given = {"security.protocol": "SSL", "ssl.truststore.location": "ca.pem", "ssl.keystore.location": "me.pem"}
    assert Security(**parse_security(given)) == Security("SSL", "ca.pem", "me.pem")
    assert parse_security({"token.file": "t", "sasl.username": "alice"}) == {
        "token_file": "t",
        "sasl_username": "alice",
    }
    with pytest.raises(InvalidRequest, match=r"there is no ssl\.cipher"):
        parse_security({"ssl.cipher": "x"})
    with pytest.raises(InvalidRequest, match=r"give sasl\.password\.file") as caught:
        parse_security({"sasl.password": "canary"})
    assert "canary" not in caught.value.message


def test_what_clients_take_is_one_list() -> None:
    assert [one.name for one in dataclasses.fields(Security)] == [*SecurityParameters.__annotations__]
    for client in (Producer, Consumer, AdminClient, Writer, Reader):
        assert SecurityParameters.__annotations__.keys() <= inspect.signature(client).parameters.keys()


def test_two_names_of_the_same_are_refused_unless_one_wins() -> None:
    with pytest.raises(
        InvalidRequest, match=r"ssl\.ca\.location and ssl\.truststore\.location are two names of the same"
    ):
        parse_security({"ssl.ca.location": "a.pem", "ssl.truststore.location": "b.pem"})
    file = {"security.protocol": "SSL", "ssl.ca.location": "a.pem", "x": "1"}
    assert overridden(file, {"ssl.truststore.location": "b.pem", "x": "2"}) == {
        "security.protocol": "SSL",
        "ssl.truststore.location": "b.pem",
        "x": "2",
    }


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    for security, name in (
        (Security("SSL", str(tmp_path / "none")), "ssl.ca.location: cannot read"),
        (Security("SSL", str(nonsense)), "ssl.ca.location"),
        (Security("SSL", ssl_keystore_location=str(nonsense)), "ssl.keystore.location"),
    ):
        with pytest.raises(InvalidRequest, match=name):
            security.context()


def test_without_identification_any_host_will_do(tmp_path: Path) -> None:
    made = ClusterCertificates(tmp_path)
    assert Security("SSL", str(made.ca), str(made.client())).context().check_hostname
    assert not Security("SSL", str(made.ca), ssl_endpoint_identification_algorithm="").context().check_hostname


def test_brokers_are_reached_by_the_clients_scheme() -> None:
    told = ClusterMetadata("c", 1, (BrokerMetadata(1, "::1", 1),), ())
    assert with_scheme(told, "http") is told
    assert with_scheme(told, "https").brokers[0].address == "https://[::1]:1"


def test_faults_of_tls_say_what_to_set() -> None:
    assert "PLAINTEXT" in (tls_fault(OSError("[SSL: WRONG_VERSION_NUMBER] wrong version number")) or "")
    assert "ssl.ca.location" in (tls_fault(OSError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed")) or "")
    assert tls_fault(OSError("connection refused")) is None
