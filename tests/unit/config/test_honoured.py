"""A setting that is accepted and ignored is a lie: each one must be read by code outside `tidelog/config`."""

from __future__ import annotations

import ast
from pathlib import Path

from tidelog.config.names import broker_synonyms, field_name, names_of
from tidelog.config.schema import BrokerConfig, TopicConfig

PACKAGE = Path(__file__).parents[3] / "tidelog"

READ_BY_METHOD = {
    "broker.heartbeat.interval.ms": "heartbeat_ms",
    "broker.lease.ms": "lease_ms",
    "default.replication.factor": "replication_factor_for",
    "feature.level.max": "levels",
    "http.ops.authentication": "ops_authentication",
    "http.ops.ssl.client.auth": "ops_client_auth",
    "kafka.listener": "kafka_address",
    "kafka.security.protocol": "is_kafka_encrypted",
    "min.insync.replicas": "min_insync_replicas_for",
    "sasl.oauthbearer.jwks.endpoint.url": "jwt_keys_file",
}
"""Settings that are computed, or whose default is, with the method that gives their value."""
WITHOUT_A_CHOICE = {"auto.create.topics.enable"}
"""Settings with one possible value: the schema itself refuses all else."""


def attributes_read(names: list[str]) -> set[str]:
    """Returns those of these names that are read from something."""
    files = [file for file in PACKAGE.rglob("*.py") if "config" not in file.relative_to(PACKAGE).parts[0]]
    found = set[str]()
    for text in [file.read_text(encoding="utf-8") for file in files]:
        if any(name in text for name in names if name not in found):
            found |= {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    return found


def test_every_setting_is_read() -> None:
    through_topics = set(broker_synonyms().values())
    names = [*names_of(TopicConfig), *(name for name in names_of(BrokerConfig) if name not in through_topics)]
    attributes = {name: READ_BY_METHOD.get(name, field_name(name)) for name in names}
    read = attributes_read([*attributes.values()])
    ignored = [name for name, attribute in attributes.items() if attribute not in read]
    assert set(ignored) <= WITHOUT_A_CHOICE
