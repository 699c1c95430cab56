"""Settings of the listener that speaks Kafka's protocol."""

from __future__ import annotations

from tidelog.config.settings.base import MIB, Settings, setting
from tidelog.config.values import Address, Bytes, Count, KafkaSecurity, Milliseconds, OptionalAddress, SaslMechanisms

KAFKA_DEFAULT = "127.0.0.1:9092"
"""Address of the Kafka listener of a broker that is started without settings for it."""


class KafkaSettings(Settings):
    """Settings of the Kafka listener: address, login and limits."""

    kafka_listener: OptionalAddress | None = setting(
        "kafka.listener",
        None,
        "Where Kafka's clients connect, HOST:PORT; empty: nowhere. Port 0 lets the system choose one. Default: "
        f"{KAFKA_DEFAULT} for a broker whose http.listener and http.authentication are left at their defaults, if it "
        "can be had there; else nowhere. (Kafka: listeners.)",
    )
    kafka_advertised_listener: Address | None = setting(
        "kafka.advertised.listener",
        None,
        "The address that the metadata tells Kafka's clients, HOST:PORT, where it is not the one listened on. Default: "
        "kafka.listener; if that is all addresses (0.0.0.0 or [::]), this machine's name. (Kafka: "
        "advertised.listeners.)",
    )
    kafka_connections_max: Count = setting(
        "kafka.connections.max",
        2_000,
        "Connections of Kafka's clients open at one time; one more is closed at once. http.address.connections.max "
        "counts for them, too, by itself. (Kafka: listener.name.NAME.max.connections.)",
    )
    connections_max_idle_ms: Milliseconds = setting(
        "connections.max.idle.ms",
        600_000,
        "A connection of a Kafka client on which nothing happens for so long is closed.",
        unit="ms",
    )
    kafka_request_max_bytes: Bytes = setting(
        "kafka.request.max.bytes",
        32 * MIB,
        "The largest Produce request; the connection of a larger one is closed. All others may have 1 MiB. (Kafka: "
        "socket.request.max.bytes.)",
        unit="bytes",
    )
    kafka_security_protocol: KafkaSecurity = setting(
        "kafka.security.protocol",
        "PLAINTEXT",
        "How Kafka's clients connect: `PLAINTEXT`, `SSL`, or with a login by sasl.enabled.mechanisms `SASL_PLAINTEXT`, "
        "`SASL_SSL`. Where other machines can reach kafka.listener it has to be `SSL` or `SASL_SSL`. Without SASL "
        "whoever shows a certificate (ssl.client.auth) is whom ssl.principal.mapping.rules make of it, and everybody "
        "else User:ANONYMOUS. (Kafka: listener.security.protocol.map.)",
    )
    sasl_enabled_mechanisms: SaslMechanisms = setting(
        "sasl.enabled.mechanisms",
        (),
        "How Kafka's clients log in, with commas between: `SCRAM-SHA-256`, `SCRAM-SHA-512` and `PLAIN` by a user's "
        "name and password, `OAUTHBEARER` by a token ID.SECRET or, with sasl.oauthbearer.*, a JSON Web Token. The last "
        "two show what is secret, and need `SASL_SSL`. Default: none. (Kafka: GSSAPI.)",
    )
