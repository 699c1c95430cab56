"""Declaration of every setting of a broker and of a topic: name, type, bounds, default, unit, documentation.

The settings of a broker are in `config/settings`, by subject; this module has the rules about several of them. Names
and defaults are Kafka's; where a default differs, the setting's documentation says so. A Python field is the dotted
name with underscores. A setting that has no effect is not declared, rather than accepted and ignored.

A topic's settings take their defaults from the broker's synonym (`segment.bytes` from `log.segment.bytes`), as in
Kafka's `LogConfig`, and inherit its documentation. A few are a topic's alone: no broker has a default for them.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from tidelog.config.settings.access import AccessSettings
from tidelog.config.settings.base import Settings, setting
from tidelog.config.settings.cluster import ClusterSettings
from tidelog.config.settings.encryption import EncryptionSettings
from tidelog.config.settings.groups import GroupSettings
from tidelog.config.settings.housekeeping import HousekeepingSettings
from tidelog.config.settings.identity import IdentitySettings
from tidelog.config.settings.kafka import KAFKA_DEFAULT, KafkaSettings
from tidelog.config.settings.new_topics import NewTopicSettings
from tidelog.config.settings.requests import RequestSettings
from tidelog.config.settings.rest_consumers import RestConsumerSettings
from tidelog.config.settings.topic_defaults import TopicDefaults
from tidelog.config.values import (
    AckDurability,
    BatchBytes,
    Boolean,
    ClientAuth,
    CompressionType,
    Count,
    HoleSpan,
    Limit,
    Milliseconds,
    SegmentBytes,
    Skew,
    TimestampType,
    TopicCleanupPolicy,
    split_address,
    split_voter,
)
from tidelog.model.cluster import CommitOrder, CommitProtocol

ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 -- to recognise them, not to bind to them


class BrokerConfig(  # its fields are in the order of these, from the last one on
    RestConsumerSettings,
    KafkaSettings,
    RequestSettings,
    GroupSettings,
    HousekeepingSettings,
    TopicDefaults,
    AccessSettings,
    NewTopicSettings,
    ClusterSettings,
    EncryptionSettings,
    IdentitySettings,
):
    """Settings of one broker process, read at its start and fixed while it runs."""

    @model_validator(mode="after")
    def _asks_for_certificates(self) -> Self:
        needed = {
            "http.security.protocol=SSL": self.http_security_protocol == "SSL",
            "ssl.client.auth=requested (or required)": self.ssl_client_auth != "none",
            "ssl.truststore.location": self.ssl_truststore_location is not None,
        }
        missing = [name for name, is_there in needed.items() if not is_there]
        if "certificate" in self.http_authentication and missing:
            raise ValueError(
                f"http.authentication=certificate needs {' and '.join(missing)}, or no client is asked for one, and "
                "nobody can log in by it"
            )
        return self

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        if self.uses_tls and self.ssl_keystore_location is None:
            raise ValueError(
                "SSL needs ssl.keystore.location, a file with this broker's key and certificate; `tidelog tls issue` "
                "makes one"
            )
        asks = self.security_inter_broker_protocol == "SSL" or {self.ssl_client_auth, self.ops_client_auth} != {"none"}
        if asks and self.ssl_truststore_location is None:
            raise ValueError(
                "security.inter.broker.protocol=SSL, ssl.client.auth and http.ops.ssl.client.auth need "
                "ssl.truststore.location, a file with the certificates of the CAs to trust; `tidelog tls init` makes "
                "one"
            )
        if self.ssl_client_auth != "none" and not (self.http_security_protocol == "SSL" or self.is_kafka_encrypted):
            raise ValueError("ssl.client.auth needs http.security.protocol=SSL: plain HTTP knows no certificates")
        return self

    @model_validator(mode="after")
    def _knows_kafka_clients(self) -> Self:
        """Checks that Kafka clients log in if HTTP clients do, and that mechanisms which transmit a secret are used
        over TLS only."""
        has_sasl = self.kafka_security_protocol.startswith("SASL_")
        if has_sasl != bool(self.sasl_enabled_mechanisms):
            raise ValueError(
                "kafka.security.protocol=SASL_SSL (or SASL_PLAINTEXT) and sasl.enabled.mechanisms need each other: how "
                "Kafka's clients log in, and by what"
            )
        shown = {"PLAIN", "OAUTHBEARER"} & {*self.sasl_enabled_mechanisms}
        if shown and self.kafka_security_protocol != "SASL_SSL":
            raise ValueError(
                f"{', '.join(sorted(shown))} in sasl.enabled.mechanisms shows what is secret: it needs "
                "kafka.security.protocol=SASL_SSL"
            )
        is_known = has_sasl or self.authorizer_enabled or self.ssl_client_auth == "required"
        if self.kafka_listener and self.http_authentication and not is_known:
            raise ValueError(
                "http.authentication asks who calls, and kafka.listener lets everybody in: set "
                "kafka.security.protocol=SASL_SSL and sasl.enabled.mechanisms, or leave kafka.listener out"
            )
        return self

    @model_validator(mode="after")
    def _has_operators(self) -> Self:
        """Checks that there are no settings of `http.ops.listener` without that listener, and that its clients have a
        way to log in."""
        if self.http_ops_listener is None:
            for name in ("http_ops_security_protocol", "http_ops_ssl_client_auth", "http_ops_authentication"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name.replace('_', '.')} needs http.ops.listener, the address that it is about")
        if self.http_ops_ssl_client_auth not in (None, "none") and self.http_ops_security_protocol != "SSL":
            raise ValueError("http.ops.ssl.client.auth needs http.ops.security.protocol=SSL")
        is_requested = self.http_ops_listener is None or self.ops_client_auth != "none"
        has_no_other = self.ops_authentication == ("certificate",)
        if not is_requested and (has_no_other or "certificate" in (self.http_ops_authentication or ())):
            raise ValueError(
                "nobody can show a certificate at http.ops.listener: set http.ops.authentication to other ways to log "
                "in, or http.ops.security.protocol=SSL and http.ops.ssl.client.auth=requested"
            )
        return self

    @model_validator(mode="after")
    def _is_reached_as_named(self) -> Self:
        _, port = split_address(self.peer_listener)
        for entry in self.cluster_voters:
            node_id, _, named_port = split_voter(entry)
            if node_id == self.node_id and port != named_port:
                raise ValueError(
                    f"cluster.voters names this broker {entry}, but peer.listener is {self.peer_listener}; both must "
                    "have the same port"
                )
        return self

    @property
    def uses_tls(self) -> bool:
        """True if any listener uses TLS."""
        return "SSL" in (
            self.http_security_protocol,
            self.security_inter_broker_protocol,
            self.http_ops_security_protocol,
        ) or (self.kafka_address is not None and self.is_kafka_encrypted)

    @property
    def kafka_address(self) -> str | None:
        """Address (HOST:PORT) of the Kafka listener; None if there is none."""
        if self.kafka_listener is not None:
            return self.kafka_listener or None
        is_plain = not self.model_fields_set & {"http_listener", "http_authentication", "kafka_security_protocol"}
        return KAFKA_DEFAULT if is_plain else None

    @property
    def is_kafka_encrypted(self) -> bool:
        """True if the Kafka listener uses TLS."""
        return self.kafka_security_protocol in ("SSL", "SASL_SSL")

    @property
    def takes_jwts(self) -> bool:
        """True if clients may log in with a JSON Web Token."""
        has_keys = self.sasl_oauthbearer_jwks_endpoint_url is not None
        return "jwt" in self.http_authentication or ("OAUTHBEARER" in self.sasl_enabled_mechanisms and has_keys)

    @property
    def ops_authentication(self) -> tuple[str, ...]:
        """Login methods accepted at `http.ops.listener`."""
        return self.http_authentication if self.http_ops_authentication is None else self.http_ops_authentication

    @property
    def ops_client_auth(self) -> ClientAuth:
        """Whether `http.ops.listener` asks for client certificates: none, requested or required."""
        if self.http_ops_security_protocol != "SSL":
            return "none"
        return self.ssl_client_auth if self.http_ops_ssl_client_auth is None else self.http_ops_ssl_client_auth

    def peer_address(self, bound: tuple[str, int], *, http_host: str) -> tuple[str, int]:
        """Returns the address that other brokers connect to: this broker's entry in `cluster.voters`, if there is one,
        otherwise `bound`, the address of the peer listener, with `http_host` instead of a wildcard host."""
        named = {node_id: (host, port) for node_id, host, port in self.named_voters}
        if self.node_id in named:
            return named[self.node_id]
        return (http_host, bound[1]) if bound[0] in ALL_ADDRESSES else bound


def inherited(name: str, broker_name: str) -> Any:
    """Returns a field of a topic setting with default, unit and documentation of the broker setting `broker_name`."""
    source = BrokerConfig.model_fields[broker_name.replace(".", "_")]
    assert isinstance(source.json_schema_extra, dict)
    extra = {**source.json_schema_extra, "synonym": broker_name}
    return Field(default=source.default, alias=name, description=source.description, json_schema_extra=extra)


class TopicConfig(Settings):
    """The settings in force for one topic: its own, and the broker's where it has none."""

    cleanup_policy: TopicCleanupPolicy = inherited("cleanup.policy", "log.cleanup.policy")
    retention_ms: Limit = inherited("retention.ms", "log.retention.ms")
    retention_bytes: Limit = inherited("retention.bytes", "log.retention.bytes")
    segment_bytes: SegmentBytes = inherited("segment.bytes", "log.segment.bytes")
    segment_ms: Milliseconds = inherited("segment.ms", "log.roll.ms")
    max_message_bytes: BatchBytes = inherited("max.message.bytes", "message.max.bytes")
    message_timestamp_type: TimestampType = inherited("message.timestamp.type", "log.message.timestamp.type")
    message_timestamp_before_max_ms: Skew = inherited(
        "message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"
    )
    message_timestamp_after_max_ms: Skew = inherited(
        "message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"
    )
    compression_type: CompressionType = inherited("compression.type", "compression.type")
    min_insync_replicas: Count | None = inherited("min.insync.replicas", "min.insync.replicas")
    min_insync_racks: Count = inherited("min.insync.racks", "min.insync.racks")
    unclean_leader_election_enable: Boolean = inherited(
        "unclean.leader.election.enable", "unclean.leader.election.enable"
    )
    commit_protocol: CommitProtocol = inherited("commit.protocol", "commit.protocol")
    commit_order: CommitOrder = setting(
        "commit.order",
        "total",
        "Which records of its partition a record waits for before it is acknowledged to `acks=all`. `total`: all "
        "before it. `key`: those before it with the same key, or from the same idempotent producer. `none`: those "
        "before it from the same idempotent producer. Whatever it is, consumers read in the order of offsets, up to "
        "the high watermark, unless they ask for more. Only topics with `commit.protocol=paxos` have it, and it is "
        "fixed when a topic is created. [choosing-a-protocol.md](choosing-a-protocol.md#order) says who should choose "
        "what. (Not in Kafka.)",
    )
    commit_hole_span: HoleSpan = setting(
        "commit.hole.span",
        256,
        "With `commit.order=key` or `none`: the largest number of positions of a partition's Paxos log (each holds a "
        "group of batches) from the first one that is not applied yet to the newest. Further produce requests wait. "
        "Only topics with `commit.protocol=paxos` have it; with `commit.order=total` it means nothing. (Not in Kafka.)",
    )
    ack_durability: AckDurability = inherited("ack.durability", "ack.durability")

    def min_insync_replicas_for(self, replication_factor: int) -> int:
        """Returns the number of in-sync replicas needed for `acks=all` in a partition with `replication_factor`
        replicas."""
        return self.min_insync_replicas or (2 if replication_factor >= 3 else 1)
