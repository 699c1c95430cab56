"""Files of `ssl.*` settings: what is of use, and a sentence for all that is not."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.adapters.certificates import Kind, issued
from tidelog.adapters.tls_contexts import load_contexts
from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig
from tidelog.testing.certificates import ClusterCertificates


@pytest.fixture
def made(tmp_path: Path) -> ClusterCertificates:
    return ClusterCertificates(tmp_path / "tls")


def config(made: ClusterCertificates, keystore: Path, more: Mapping[str, str] = {}) -> BrokerConfig:
    settings = {**made.settings(1), "ssl.keystore.location": str(keystore), **more}
    return BrokerConfig.model_validate(settings)


def fault(made: ClusterCertificates, keystore: Path, more: Mapping[str, str] = {}) -> str:
    with pytest.raises(ConfigError) as raised:
        load_contexts(config(made, keystore, more))
    return raised.value.message


def test_a_brokers_files_give_contexts_its_name_and_the_end_of_its_time(made: ClusterCertificates) -> None:
    found = load_contexts(config(made, made.broker(1)))
    assert found.own.name == "broker://test/1"
    assert found.answering is not None
    assert found.calling is not None
    assert found.expires_s > 0


def test_without_tls_among_brokers_the_certificate_may_be_any_servers(
    made: ClusterCertificates, tmp_path: Path
) -> None:
    file = issued(made, tmp_path / "server.pem", Kind.SERVER)
    plain = {"security.inter.broker.protocol": "PLAINTEXT"}
    assert load_contexts(config(made, file, plain)).own.name == ""
    assert "names no broker" in fault(made, file)


def test_files_that_are_missing_or_nonsense_are_named(made: ClusterCertificates, tmp_path: Path) -> None:
    assert "cannot read" in fault(made, tmp_path / "none.pem")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    nonsense.chmod(0o600)
    assert "no certificate in PEM" in fault(made, nonsense)
    truststore = {"ssl.truststore.location": str(nonsense)}
    assert "no certificates of CAs" in fault(made, made.broker(1), truststore)
    assert "cannot read" in fault(
        made, made.directory / "broker-1.pem", {"ssl.truststore.location": str(tmp_path / "n")}
    )


def test_a_key_that_others_may_read_is_refused(made: ClusterCertificates) -> None:
    keystore = made.broker(1)
    for mode in (0o640, 0o604, 0o620):
        keystore.chmod(mode)
        assert "chmod 600" in fault(made, keystore)
    keystore.chmod(0o400)
    load_contexts(config(made, keystore))


def test_a_key_that_does_not_fit_is_refused(made: ClusterCertificates) -> None:
    one, two = made.broker(1), made.broker(2)
    key, _, _ = one.read_text().partition("-----BEGIN CERTIFICATE")
    _, _, certificate = two.read_text().partition("-----BEGIN CERTIFICATE")
    one.write_text(f"{key}-----BEGIN CERTIFICATE{certificate}")
    assert "does not fit" in fault(made, one)


def test_a_key_with_a_password_asks_nobody_for_it(made: ClusterCertificates, tmp_path: Path) -> None:
    file = issued(made, tmp_path / "locked.pem", Kind.BROKER, password=b"secret")
    assert "password" in fault(made, file)


def test_an_expired_certificate_is_refused(made: ClusterCertificates, tmp_path: Path) -> None:
    file = issued(made, tmp_path / "old.pem", Kind.BROKER, days=-1)
    assert "certificate has expired" in fault(made, file)
    file = issued(made, tmp_path / "early.pem", Kind.BROKER, starts_in_days=1)
    assert "not yet valid" in fault(made, file)


def test_another_brokers_and_a_clients_certificate_are_refused(made: ClusterCertificates) -> None:
    assert "is that of node 2, and node.id is 1" in fault(made, made.broker(2))
    assert "unsuitable certificate purpose" in fault(made, made.client())


def test_a_certificate_that_the_others_would_not_take_is_refused(made: ClusterCertificates, tmp_path: Path) -> None:
    other = ClusterCertificates(tmp_path / "other")
    assert "is not vouched for by" in fault(made, other.broker(1))


def test_only_the_versions_that_are_named_are_spoken(made: ClusterCertificates) -> None:
    keystore = made.broker(1)
    strict = load_contexts(config(made, keystore)).http
    assert strict.minimum_version is ssl.TLSVersion.TLSv1_3
    wider = load_contexts(config(made, keystore, {"ssl.enabled.protocols": "TLSv1.2,TLSv1.3"})).http
    assert wider.minimum_version is ssl.TLSVersion.TLSv1_2
