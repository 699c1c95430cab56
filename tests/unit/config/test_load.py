"""Four sources, one meaning, and errors that say which source to change."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.errors import ConfigError
from tidelog.config.load import given_settings, load_config
from tidelog.config.names import environment_name, names_of
from tidelog.config.schema import BrokerConfig
from tidelog.model.levels import SPOKEN_LEVELS, LevelRange


def write(directory: Path, text: str) -> str:
    path = directory / "tidelog.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def error(file: str | None = None, environ: Mapping[str, str] | None = None, **flags: str) -> str:
    return error_of({name.replace("_", "."): value for name, value in flags.items()}, file, environ)


def error_of(flags: Mapping[str, str], file: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(file, environ or {}, flags)
    return caught.value.message


def test_without_any_source_all_is_default() -> None:
    config = load_config(None, {"PATH": "/bin", "HOME": "/root"}, {})
    assert config == BrokerConfig()
    assert config.model_fields_set == set()


@pytest.mark.parametrize(
    ("given_in", "expected"),
    [("", 1 << 30), ("file", 2048), ("file environment", 4096), ("file environment flag", 8192), ("file flag", 8192)],
)
def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path, given_in: str, expected: int) -> None:
    file = write(tmp_path, "log.segment.bytes = 2048") if "file" in given_in else None
    environ = {"TIDELOG_LOG_SEGMENT_BYTES": "4096"} if "environment" in given_in else {}
    flags = {"log.segment.bytes": "8192"} if "flag" in given_in else {}
    assert load_config(file, environ, flags).log_segment_bytes == expected


@pytest.mark.parametrize(
    "text",
    [
        "log.segment.bytes = 4096\nlog.retention.ms = -1",
        '"log.segment.bytes" = 4096\n"log.retention.ms" = "-1"',
        "[log]\nsegment.bytes = 4096\nretention.ms = -1",
        "[log.segment]\nbytes = 4096\n[log.retention]\nms = -1",
        "log = { segment = { bytes = 4096 }, retention = { ms = -1 } }",
    ],
)
def test_dotted_names_and_nested_tables_mean_the_same(tmp_path: Path, text: str) -> None:
    assert load_config(write(tmp_path, text), {}, {}) == BrokerConfig(log_segment_bytes=4096, log_retention_ms=-1)


def test_the_same_name_twice_in_a_file_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, '"log.segment.bytes" = 4096\n[log]\nsegment.bytes = 8192')
    assert "log.segment.bytes is set twice" in error(file)


def test_voters_are_a_list_in_a_file_and_comma_separated_elsewhere(tmp_path: Path) -> None:
    file = write(tmp_path, 'cluster.voters = ["1@127.0.0.1:9192"]')
    from_file = load_config(file, {}, {})
    from_flag = load_config(None, {}, {"cluster.voters": " 1@127.0.0.1:9192 ,"})
    assert from_file.cluster_voters == from_flag.cluster_voters == ("1@127.0.0.1:9192",)
    file = write(tmp_path, 'http.hosts = ["Tidelog.example.com", "*.local"]')
    for config in (load_config(file, {}, {}), load_config(None, {}, {"http.hosts": "tidelog.example.com, *.LOCAL"})):
        assert config.http_hosts == ("tidelog.example.com", "*.local")


def test_no_name_can_hide_another_in_a_nested_table() -> None:
    names = names_of(BrokerConfig)
    assert not [(a, b) for a in names for b in names if b.startswith(f"{a}.")]


def test_every_setting_has_a_variable_of_its_own_and_reads_it() -> None:
    for name in names_of(BrokerConfig):
        variable = environment_name(name)
        assert error(environ={variable: "\x00"}).startswith(f"environment variable {variable}: {name} = ")
    assert load_config(None, {"TIDELOG_DELETE_TOPIC_ENABLE": "False"}, {}) == BrokerConfig(delete_topic_enable=False)


def test_an_unknown_variable_is_an_error_that_suggests_the_nearest_name() -> None:
    message = error(environ={"TIDELOG_LOG_SEGMENT_BYTE": "4096"})
    assert message.startswith("environment variable TIDELOG_LOG_SEGMENT_BYTE: ")
    assert message.endswith("did you mean log.segment.bytes?")


def service_links(prefix: str) -> dict[str, str]:
    """Returns what Kubernetes sets for a service with a named port."""
    return {
        f"{prefix}_SERVICE_HOST": "10.0.0.1",
        f"{prefix}_SERVICE_PORT": "8082",
        f"{prefix}_SERVICE_PORT_HTTP_API": "8082",
        f"{prefix}_PORT": "tcp://10.0.0.1:8082",
        f"{prefix}_PORT_8082_TCP": "tcp://10.0.0.1:8082",
        f"{prefix}_PORT_8082_TCP_PROTO": "tcp",
        f"{prefix}_PORT_8082_TCP_PORT": "8082",
        f"{prefix}_PORT_8082_TCP_ADDR": "10.0.0.1",
    }


@pytest.mark.parametrize("service", ["TIDELOG", "TIDELOG_HTTP", "TIDELOG_LOG_0"])
def test_variables_of_clients_and_of_kubernetes_are_not_settings(service: str) -> None:
    environ = {"TIDELOG_BOOTSTRAP": "http://127.0.0.1:8082", **service_links(service)}
    assert load_config(None, environ, {}) == BrokerConfig()


@pytest.mark.parametrize("variable", ["TIDELOG_HTTP_LISTENERS", "TIDELOG_HTTP_LISTENER_SERVICE"])
def test_a_misspelt_setting_is_not_taken_for_a_service(variable: str) -> None:
    assert error(environ={variable: "8082"}).endswith("did you mean http.listener?")


def test_a_port_that_somebody_set_is_not_taken_for_a_service() -> None:
    assert "there is no setting http.port" in error(environ={"TIDELOG_HTTP_PORT": "8082"})


def test_no_setting_has_the_name_of_a_service_link() -> None:
    value = "tcp://10.0.0.1:8082"
    for name in names_of(BrokerConfig):
        assert name in given_settings(None, {environment_name(name): value}, {})


@pytest.mark.parametrize("text", ["segment.bytes = 1", "[log]\nsegmentbytes = 1", "[logs.segment]\nbytes = 1"])
def test_an_unknown_name_in_a_file_names_the_file(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, text)
    message = error(file)
    assert message.startswith(f"{file}: there is no setting ")
    assert message.endswith("did you mean log.segment.bytes?")


def test_a_bad_value_names_its_source_and_its_bound(tmp_path: Path) -> None:
    file = write(tmp_path, "log.segment.bytes = 5")
    assert error(file) == f"{file}: log.segment.bytes = 5: must be greater than or equal to 1024"
    assert error(environ={"TIDELOG_NODE_ID": "one"}).startswith("environment variable TIDELOG_NODE_ID: node.id = 'one'")
    assert error(node_id="-1").startswith("command line: node.id = '-1'")


def test_every_bad_value_is_named_at_once() -> None:
    message = error(node_id="x", num_partitions="0")
    assert "node.id" in message
    assert "num.partitions" in message


@pytest.mark.parametrize(
    "text",
    [
        "node.id = true",
        "node.id = 1.0",
        "node.id = [1]",
        "node.id = 2030-01-01",
        'node.id = "1_0"',
        "delete.topic.enable = 1",
        'delete.topic.enable = "yes"',
        "broker.rack = 7",
        'broker.rack = ""',
        'log.dir = ""',
        "super.users = 7",
        "super.users = [7]",
        'http.hosts = "tidelog.example.com:8082"',
        'http.hosts = "http://tidelog.example.com"',
        'http.hosts = ["*.*.example.com"]',
        "http.hosts = [1]",
        'cluster.voters = "127.0.0.1:9192"',
        'cluster.voters = "one@127.0.0.1:9192"',
        "cluster.voters = [1]",
        'http.listener = "8082"',
        'http.listener = ":8082"',
        'http.listener = "127.0.0.1:65536"',
        'http.listener = "::1:8082"',
        'http.listener = "http://127.0.0.1:8082"',
        "log.retention.ms = -2",
        "log.segment.bytes = 2147483648",
    ],
)
def test_values_are_not_bent_into_shape(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, text)
    assert error(file).startswith(f"{file}: {text.partition(' ')[0]} = ")


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.toml")
    assert error(missing) == f"cannot read the settings file {missing}: No such file or directory"
    assert "is not a TOML file" in error(write(tmp_path, "log.dir = "))
    (tmp_path / "latin.toml").write_bytes(b'log.dir = "\xe9"')
    assert "is not a TOML file" in error(str(tmp_path / "latin.toml"))
    assert "cannot read the settings file" in error(str(tmp_path))


def test_voters_that_cannot_form_a_cluster_are_refused() -> None:
    assert "names the node id 1 twice" in error(cluster_voters="1@10.0.0.1:9192,1@10.0.0.2:9192")
    assert "names the address 10.0.0.1:9192 twice" in error(cluster_voters="1@10.0.0.1:9192,2@10.0.0.1:9192")
    assert "needs the port" in error(cluster_voters="1@10.0.0.1:0")
    assert "same port" in error(cluster_voters="1@10.0.0.1:9193,2@10.0.0.2:9192")
    assert "HTTP address of a broker" in error(cluster_join="10.0.0.1:8082")


def test_what_is_said_of_operators_needs_their_listener() -> None:
    for name, value in (("security.protocol", "SSL"), ("ssl.client.auth", "none"), ("authentication", "token")):
        said = {f"http.ops.{name}": value, "ssl.keystore.location": "/k.pem"}
        assert f"http.ops.{name} needs http.ops.listener" in error_of(said)


WITH_OPS = {"http.ops.listener": "127.0.0.1:9100", "http.ops.security.protocol": "SSL"}
WITH_KEYS = {"ssl.keystore.location": "/k.pem", "ssl.truststore.location": "/ca.pem"}


def test_operators_have_a_way_in() -> None:
    assert "SSL needs ssl.keystore.location" in error_of(WITH_OPS)
    certificates = {"http.security.protocol": "SSL", "ssl.client.auth": "required", **WITH_KEYS}
    plain = {**certificates, "http.ops.listener": "127.0.0.1:9100"}
    assert "needs http.ops.security.protocol=SSL" in error_of({**plain, "http.ops.ssl.client.auth": "requested"})
    for ways in ({"http.authentication": "certificate"}, {"http.ops.authentication": "certificate,token"}):
        assert "nobody can show a certificate at http.ops.listener" in error_of({**plain, **ways})
    assert "nobody can show" in error_of(
        {**certificates, **WITH_OPS, "http.authentication": "certificate", "http.ops.ssl.client.auth": "none"}
    )


@pytest.mark.parametrize(
    ("given", "authentication", "client_auth"),
    [
        ({}, ("certificate", "token"), "none"),
        ({"http.ops.security.protocol": "SSL"}, ("certificate", "token"), "required"),
        ({"http.ops.security.protocol": "SSL", "http.ops.ssl.client.auth": "none"}, ("certificate", "token"), "none"),
        ({"http.ops.authentication": ""}, (), "none"),
        ({"http.ops.authentication": "basic"}, ("basic",), "none"),
    ],
)
def test_operators_come_in_as_clients_do_or_as_is_said(
    given: dict[str, str], authentication: tuple[str, ...], client_auth: str
) -> None:
    clients = {
        "http.security.protocol": "SSL",
        "ssl.client.auth": "required",
        "http.authentication": "certificate,token",
    }
    config = load_config(None, {}, {**WITH_KEYS, **clients, "http.ops.listener": "127.0.0.1:9100", **given})
    assert (config.ops_authentication, config.ops_client_auth) == (authentication, client_auth)


def test_a_broker_may_be_none_of_the_voters() -> None:
    config = load_config(None, {}, {"node.id": "7", "cluster.voters": "1@10.0.0.1:9193,2@[::1]:9194"})
    assert config.named_voters == ((1, "10.0.0.1", 9193), (2, "::1", 9194))


def test_other_brokers_are_told_an_address_that_they_can_connect_to() -> None:
    named = load_config(None, {}, {"peer.listener": "0.0.0.0:9193", "cluster.voters": "1@b1.example:9193"})
    assert named.peer_address(("0.0.0.0", 9193), http_host="b1") == ("b1.example", 9193)
    unnamed = load_config(None, {}, {"node.id": "2", "cluster.voters": "1@b1.example:9193"})
    assert unnamed.peer_address(("10.0.0.2", 9192), http_host="b2") == ("10.0.0.2", 9192)
    for everywhere in ("0.0.0.0", "::"):
        assert unnamed.peer_address((everywhere, 9192), http_host="b2") == ("b2", 9192)


def test_times_that_contradict_each_other_are_refused() -> None:
    assert "broker.session.timeout.ms" in error(broker_session_timeout_ms="3000")
    assert "controller.quorum.heartbeat.ms" in error(controller_quorum_heartbeat_ms="300")
    assert "controller.quorum.election.timeout.ms" in error(controller_lease_ms="1000")


def test_a_lease_and_its_heartbeats_are_no_longer_than_other_times_allow() -> None:
    def times(lease_ms: int, session_ms: int, heartbeat_ms: int) -> tuple[int, int]:
        flags = {"broker.lease.ms": lease_ms, "broker.session.timeout.ms": session_ms}
        flags["broker.heartbeat.interval.ms"] = heartbeat_ms
        config = load_config(None, {}, {name: str(value) for name, value in flags.items()})
        return config.lease_ms, config.heartbeat_ms

    assert times(9_000, 20_000, 1_000) == (9_000, 1_000)
    assert times(9_000, 20_000, 8_000) == (9_000, 3_000), "three in a lease"
    assert times(30_000, 9_000, 4_000) == (9_000, 3_000), "a session that is over has no lease"


def test_sessions_of_groups_that_contradict_each_other_are_refused() -> None:
    assert "must lie between" in error(group_consumer_session_timeout_ms="1000")
    assert "must lie between" in error(group_max_session_timeout_ms="6000")
    assert "one late heartbeat expels a member" in error(group_consumer_heartbeat_interval_ms="30000")


@pytest.mark.parametrize("name", ["ssl.client.auth", "http.ops.ssl.client.auth", "security.inter.broker.protocol"])
def test_whoever_asks_for_certificates_knows_whom_to_trust(name: str) -> None:
    flags = {
        "http.security.protocol": "SSL",
        "ssl.keystore.location": "broker.pem",
        "http.ops.listener": "127.0.0.1:0",
        "http.ops.security.protocol": "SSL",
        name: "SSL" if name.endswith("protocol") else "required",
    }
    assert "need ssl.truststore.location" in error_of(flags)
    trusting = load_config(None, {}, {**flags, "ssl.truststore.location": "ca.pem"})
    assert trusting.ssl_truststore_location == "ca.pem"


def test_plain_http_asks_nobody_for_a_certificate() -> None:
    flags = {"ssl.client.auth": "required", "ssl.truststore.location": "ca.pem"}
    assert "ssl.client.auth needs http.security.protocol=SSL" in error_of(flags)


def test_lists_may_be_written_as_text() -> None:
    flags = {"ssl.enabled.protocols": "TLSv1.3, TLSv1.3", "super.users": "User:admin; User:ops"}
    config = load_config(None, {}, flags)
    assert (config.ssl_enabled_protocols, config.super_users) == (("TLSv1.3",), ("User:admin", "User:ops"))
    assert "must be one or both of" in error_of({"ssl.enabled.protocols": "TLSv1.1"})


def test_rules_for_the_names_in_certificates_are_read() -> None:
    rules = "RULE:^CN=([a-z]+)$/$1/,DEFAULT"
    assert load_config(None, {}, {"ssl.principal.mapping.rules": rules}).ssl_principal_mapping_rules == rules
    assert "ssl.principal.mapping.rules" in error_of({"ssl.principal.mapping.rules": "RULE:("})


def test_a_broker_speaks_levels_up_to_the_one_that_is_set() -> None:
    assert load_config(None, {}, {}).levels == SPOKEN_LEVELS
    assert load_config(None, {}, {"feature.level.max": "2"}).levels == LevelRange(1, 2)


def test_what_this_version_does_not_have_is_said() -> None:
    assert "compaction is not available" in error(log_cleanup_policy="compact,delete")
    assert "never created by themselves" in error(auto_create_topics_enable="true")
    assert not load_config(None, {}, {"auto.create.topics.enable": "false"}).auto_create_topics_enable


@given(st.one_of(st.sampled_from(names_of(BrokerConfig)), st.text(max_size=40)), st.text(max_size=30))
def test_any_flag_either_works_or_is_a_config_error(name: str, value: str) -> None:
    with contextlib.suppress(ConfigError):
        load_config(None, {}, {name: value})


@given(st.text(max_size=200))
def test_any_file_either_works_or_is_a_config_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    with contextlib.suppress(ConfigError):
        load_config(write(tmp_path_factory.getbasetemp(), text), {}, {})


TLS = {"http_security_protocol": "SSL", "ssl_client_auth": "requested", "ssl_truststore_location": "ca.pem"}


@pytest.mark.parametrize(
    ("without", "missing"),
    [
        (("http_security_protocol",), "needs http.security.protocol=SSL,"),
        (("ssl_client_auth",), "needs ssl.client.auth=requested (or required),"),
        (("ssl_truststore_location",), "needs ssl.truststore.location,"),
        (tuple(TLS), "needs http.security.protocol=SSL and ssl.client.auth=requested (or required) and ssl.truststore"),
    ],
)
def test_logging_in_by_certificate_takes_what_asks_for_one(without: tuple[str, ...], missing: str) -> None:
    flags = {"http_authentication": "token,certificate", "ssl_keystore_location": "broker.pem", **TLS}
    said = error(None, None, **{name: value for name, value in flags.items() if name not in without})
    assert f"http.authentication=certificate {missing}" in said


JWT = {
    "http_authentication": "jwt",
    "sasl_oauthbearer_jwks_endpoint_url": "file:///etc/keys%20of/jwks.json",
    "sasl_oauthbearer_expected_issuer": "https://issuer.example.com",
    "sasl_oauthbearer_expected_audience": "a, b",
}


@pytest.mark.parametrize("missing", list(JWT)[1:])
def test_tokens_of_others_take_an_issuer_an_audience_and_keys(missing: str) -> None:
    said = error(None, None, **{name: value for name, value in JWT.items() if name != missing})
    assert f"http.authentication=jwt needs {missing.replace('_', '.')}:" in said


def test_keys_come_from_a_file() -> None:
    config = load_config(None, {}, {name.replace("_", "."): value for name, value in JWT.items()})
    assert config.jwt_keys_file == "/etc/keys of/jwks.json"
    assert config.takes_jwts and not load_config(None, {}, {}).takes_jwts
    assert config.sasl_oauthbearer_expected_audience == ("a", "b")
    for url in ("https://issuer.example.com/jwks.json", "/etc/jwks.json", "file://elsewhere/jwks.json", "file:"):
        assert "brokers fetch no keys" in error(None, None, **{**JWT, "sasl_oauthbearer_jwks_endpoint_url": url})
    assert "jwt.algorithms" in error(None, None, **{**JWT, "jwt_algorithms": "RS256,none"})
