"""Settings of the secrets and certificates that authenticate and encrypt connections."""

from __future__ import annotations

from tidelog.config.settings.base import Settings, setting
from tidelog.config.values import Boolean, ClientAuth, MappingRules, Path, SecurityProtocol, TlsVersions


class EncryptionSettings(Settings):
    """Settings of TLS and of the cluster secret."""

    cluster_secret_file: Path | None = setting(
        "cluster.secret.file",
        None,
        "A file whose content all brokers of the cluster share, 16 to 4,096 bytes, and that only its owner may read: "
        "`openssl rand -hex 32 > FILE; chmod 600 FILE`. Brokers prove to each other that they know it, and talk to "
        "nobody who does not. Needed where peer.listener can be reached from other machines. Read at start. Default: "
        "none, whoever reaches peer.listener is believed. (Not in Kafka.)",
    )
    security_allow_insecure: Boolean = setting(
        "security.allow.insecure",
        False,
        "Starts the broker although strangers on other machines can reach a listener that speaks plain text "
        "(http.listener, http.ops.listener) or believes everybody (peer.listener without cluster.secret.file and "
        "without TLS). Otherwise that is refused. The log, /metrics and `tidelog cluster describe` say so. (Not in "
        "Kafka.)",
    )

    # -- encrypted connections -----------------------------------------------------------------------------------

    http_security_protocol: SecurityProtocol = setting(
        "http.security.protocol",
        "PLAINTEXT",
        "How HTTP clients connect: `PLAINTEXT`, http://, or `SSL`, https://; where other machines can reach "
        "http.listener it has to be `SSL`. The same on all brokers. (Kafka: listener.security.protocol.map.)",
    )
    http_ops_security_protocol: SecurityProtocol = setting(
        "http.ops.security.protocol", "PLAINTEXT", "The same for those who connect to http.ops.listener."
    )
    security_inter_broker_protocol: SecurityProtocol = setting(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "How brokers connect to each other: `PLAINTEXT`, or `SSL`, TLS 1.3 by which both ends prove which broker they "
        "are: the certificate of each names it by the URI `broker://CLUSTER/NODE`, CLUSTER the same in all of them. "
        "The same on all brokers.",
    )
    ssl_keystore_location: Path | None = setting(
        "ssl.keystore.location",
        None,
        "A file in PEM with this broker's private key, its certificate and those of the CAs between it and the root. "
        "Nobody but its owner may be able to read it (mode 0600). Looked at every few seconds, and on SIGHUP: new "
        "connections get what is new. Default: none; needed for `SSL`. (Kafka: with ssl.keystore.type=PEM.)",
    )
    ssl_truststore_location: Path | None = setting(
        "ssl.truststore.location",
        None,
        "A file in PEM with the certificates of the CAs that vouch for other brokers and for clients. Loaded again as "
        "ssl.keystore.location is. Default: none; needed among brokers, and to ask clients for certificates.",
    )
    ssl_client_auth: ClientAuth = setting(
        "ssl.client.auth",
        "none",
        "Whether HTTP clients show a certificate of a CA of ssl.truststore.location: `none`, they are not asked; "
        "`requested`, they may; `required`, they must. Other brokers always must.",
    )
    http_ops_ssl_client_auth: ClientAuth | None = setting(
        "http.ops.ssl.client.auth",
        None,
        "The same at http.ops.listener with `SSL`, since probes of orchestrators show no certificate. Default: as "
        "ssl.client.auth. (Kafka: listener.name.NAME.ssl.client.auth.)",
    )
    ssl_enabled_protocols: TlsVersions = setting(
        "ssl.enabled.protocols",
        ("TLSv1.3",),
        "The versions of TLS that HTTP clients may speak: `TLSv1.3`, or `TLSv1.2,TLSv1.3`. Brokers speak 1.3 among "
        "each other. (Kafka: both.)",
    )
    ssl_principal_mapping_rules: MappingRules = setting(
        "ssl.principal.mapping.rules",
        "",
        "Whom a client's certificate stands for, where http.authentication takes certificates: rules with commas "
        "between, each `RULE:pattern/replacement/`, with `L` or `U` behind for lower or upper case, or `DEFAULT`, the "
        "distinguished name itself; the first that matches all of the distinguished name counts. Default: the common "
        "name, so that `CN=alice` is User:alice. (Kafka: the distinguished name.)",
    )
