"""Every setting of a broker and of a topic: name, type, bounds, default, unit, meaning. Nothing else declares any.

Names and defaults are Kafka's, so that what an operator knows stays true; where a default is ours on purpose, its
documentation says so. A Python field is the dotted name with underscores. Only what this version honours is here: to
accept a name and ignore it would be a lie.

A topic's settings take their defaults from the broker's synonym (`segment.bytes` from `log.segment.bytes`), as in
Kafka's `LogConfig`; bounds and documentation are inherited with them, so each is written once.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tidelog.config.values import (
    INT64_MAX,
    AckDurability,
    Address,
    BatchBytes,
    Boolean,
    Bytes,
    CleanupPolicy,
    ClientAuth,
    CommitSemantics,
    CompressionType,
    Count,
    FeatureLevel,
    Hosts,
    JwtAlgorithms,
    KeysUrl,
    Limit,
    LogFormat,
    LoginMethods,
    LogLevel,
    MappingRules,
    Milliseconds,
    Never,
    NodeNumber,
    Path,
    Principals,
    Rack,
    Seconds,
    SecurityProtocol,
    SegmentBytes,
    ShownBytes,
    Skew,
    Text,
    TimestampType,
    TlsVersions,
    TopicCleanupPolicy,
    Url,
    Voters,
    Words,
    keys_file,
    split_address,
    split_voter,
)
from tidelog.model.cluster import CommitProtocol
from tidelog.model.levels import LEVEL_MAX, LEVEL_MIN, LevelRange

MIB = 1 << 20
DAY_MS = 24 * 60 * 60 * 1000
ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 -- to recognise them, not to bind to them
DEFAULT_REPLICATION_FACTOR_MAX = 3
"""Where `default.replication.factor` is not set: as many replicas as there are brokers, but no more than this."""


def setting(name: str, default: object, doc: str, *, unit: str = "") -> Any:
    """A field under its dotted `name`. A default of None means computed: `doc` says how."""
    return Field(default=default, alias=name, description=doc, json_schema_extra={"unit": unit})


def inherited(name: str, broker_name: str) -> Any:
    """A topic's field whose default, unit and documentation are those of the broker's setting `broker_name`."""
    source = BrokerConfig.model_fields[broker_name.replace(".", "_")]
    assert isinstance(source.json_schema_extra, dict)
    extra = {**source.json_schema_extra, "synonym": broker_name}
    return Field(default=source.default, alias=name, description=source.description, json_schema_extra=extra)


class Settings(BaseModel):
    """A frozen set of settings, given by dotted name or by field name; any other name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


class BrokerConfig(Settings):
    """What one broker process is told at its start; it never changes while the broker runs."""

    # -- who and where -------------------------------------------------------------------------------------------

    node_id: NodeNumber = setting("node.id", 1, "This broker's number, unique in its cluster.")
    log_dir: Path = setting(
        "log.dir", "tidelog-data", "The directory of this broker's data; relative to where the broker was started."
    )
    broker_rack: Rack | None = setting(
        "broker.rack", None, "The rack or zone this broker stands in, shown in the metadata. Default: none."
    )
    http_listener: Address = setting(
        "http.listener", "127.0.0.1:8082", "Where HTTP clients connect, HOST:PORT. Port 0 lets the system choose one."
    )
    http_advertised_listener: Address | None = setting(
        "http.advertised.listener",
        None,
        "The address that the metadata tells HTTP clients, HOST:PORT, where it is not the one listened on: behind a "
        "load balancer, or on a machine with several names. Default: http.listener; if that is all addresses "
        "(0.0.0.0 or [::]), this machine's name. (Kafka: advertised.listeners.)",
    )
    http_ops_listener: Address | None = setting(
        "http.ops.listener",
        None,
        "A second address, HOST:PORT, for orchestrators and monitors: there, and nowhere else, /healthz, /readyz and "
        "/metrics are served, with places of its own that no client can take. Default: none, they are served at "
        "http.listener. (Not in Kafka.)",
    )
    http_hosts: Hosts = setting(
        "http.hosts",
        (),
        "Further names that HTTP clients reach this broker by, without ports: `tidelog.example.com`, or "
        "`*.svc.cluster.local` for all names that end so. A request whose Host header has another name is refused with "
        "421, so that no web page can reach the broker under a name of its own. Always known: IP addresses, names "
        "without a dot, the hosts of http.listener and http.ops.listener, and every host that a broker of the cluster "
        "advertises. `*` lets all names in. (Not in Kafka.)",
    )
    peer_listener: Address = setting(
        "peer.listener",
        "127.0.0.1:9192",
        "Where other brokers connect, HOST:PORT. They find this broker under the address that `cluster.voters` has for "
        "it, with the same port, or else under this one; if that is all addresses (0.0.0.0 or [::]), under the host "
        "that HTTP clients are told.",
    )
    cluster_voters: Voters = setting(
        "cluster.voters",
        (),
        "The brokers that found the cluster, each `node id@peer address`, the same list on each of them; they are the "
        "first to vote on its metadata, and the cluster begins when all of them have been started. An odd number is "
        "best: 3 survive the loss of one, 5 of two, and 4 no more than 3. A broker that is not in the list joins the "
        "cluster that they form. Once there is a cluster, the list only says where to find it: who votes is kept in "
        "the metadata itself. Default: none, a cluster of this broker alone. (Kafka: controller.quorum.voters.)",
    )
    feature_level_max: FeatureLevel = setting(
        "feature.level.max",
        LEVEL_MAX,
        "The highest feature level that this broker speaks; a lower one has it behave towards others as a broker of an "
        "older version does. A new cluster begins at the highest level that all founders speak that its first "
        "controller hears, and can be upgraded (`tidelog cluster upgrade`), but never go back: so set this on all "
        "founders if brokers of an older version are to join. (Kafka: inter.broker.protocol.version.)",
    )
    cluster_join: Url | None = setting(
        "cluster.join",
        None,
        "The HTTP address of any broker of an existing cluster, as in http://10.0.0.1:8082: a broker with an empty "
        "data directory joins that cluster, instead of founding one. Later starts ignore it.",
    )

    cluster_token_file: Path | None = setting(
        "cluster.token.file",
        None,
        "A file that holds a token ID.SECRET, readable for its owner only (0600), which is shown to the cluster that "
        "this broker joins (cluster.join); it takes the right to Describe the cluster. Default: none.",
    )

    # -- who may come in -----------------------------------------------------------------------------------------

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

    # -- the cluster's metadata ----------------------------------------------------------------------------------

    broker_heartbeat_interval_ms: Milliseconds = setting(
        "broker.heartbeat.interval.ms",
        2_000,
        "How often a broker tells the active controller that it lives.",
        unit="ms",
    )
    broker_session_timeout_ms: Milliseconds = setting(
        "broker.session.timeout.ms",
        9_000,
        "A broker that the active controller has not heard of for this long is fenced: it leads nothing until it is "
        "heard again. A process that has surely ended is fenced at once, and one that two other brokers find silent "
        "after broker.lease.ms.",
        unit="ms",
    )
    broker_lease_ms: Milliseconds = setting(
        "broker.lease.ms",
        1_000,
        "For how long after a heartbeat that was answered a broker may serve as a leader; it sends three in that time, "
        "whatever broker.heartbeat.interval.ms says. A broker that is silent is fenced after this time, if two others "
        "say so. Never longer than broker.session.timeout.ms. The same on all brokers. (Not in Kafka.)",
        unit="ms",
    )
    clock_skew_ms_max: Milliseconds = setting(
        "clock.skew.ms.max",
        30_000,
        "A broker whose clock differs by more than this from the median of the live brokers' goes by theirs, deletes "
        "nothing by age, and says so. (Not in Kafka.)",
        unit="ms",
    )
    broker_stamp_interval_ms: Milliseconds = setting(
        "broker.stamp.interval.ms",
        10_000,
        "How often a broker marks the time in its data directory, and the active controller notes that in the "
        "metadata. A directory that is put back from a copy of its broker's last life is recognised if the copy is "
        "older than three of these.",
        unit="ms",
    )
    controller_quorum_heartbeat_ms: Milliseconds = setting(
        "controller.quorum.heartbeat.ms",
        100,
        "How often the active controller tells the other voters that it leads.",
        unit="ms",
    )
    controller_quorum_election_timeout_ms: Milliseconds = setting(
        "controller.quorum.election.timeout.ms",
        1_000,
        "Voters elect another active controller when they have not heard of it for this long, or up to twice as long; "
        "one that does not hear of a majority for this long resigns. The same on all brokers.",
        unit="ms",
    )
    controller_lease_ms: Milliseconds = setting(
        "controller.lease.ms",
        400,
        "For how long after each heartbeat a voter supports no other controller. The same on all brokers; longer than "
        "the heartbeat, and shorter than the election timeout.",
        unit="ms",
    )
    controller_voter_replace_ms: Milliseconds = setting(
        "controller.voter.replace.ms",
        600_000,
        "A voter that was silent for this long gives its vote to another broker that is live, if there is one. (A "
        "voter whose disk was replaced gives it up at once.)",
        unit="ms",
    )
    metadata_log_snapshot_records: Count = setting(
        "metadata.log.snapshot.records",
        10_000,
        "After this many records of the metadata log, every broker writes down the state of the cluster, and the log "
        "before it is removed. (Kafka counts bytes: metadata.log.max.record.bytes.between.snapshots.)",
    )

    replica_lag_time_max_ms: Milliseconds = setting(
        "replica.lag.time.max.ms",
        30_000,
        "A replica that has been behind its leader for this long is not in sync any more, and is not waited for.",
        unit="ms",
    )
    replica_stall_ms_max: Milliseconds = setting(
        "replica.stall.ms.max",
        500,
        "A replica in sync that acknowledges nothing for this long, while a producer waits for it and another replica "
        "does acknowledge, leaves the in-sync set at once, as long as min.insync.replicas stay: a process or a disk "
        "that hangs. The limit is longer for a replica that has lately come out of stalls (three times the longest, of "
        "which at most this much counts). It comes back when it has kept up for a second, and longer each time. (Not "
        "in Kafka, where producers wait for replica.lag.time.max.ms, or for the broker's session to end.)",
        unit="ms",
    )
    leader_replication_throttled_rate: Bytes = setting(
        "leader.replication.throttled.rate",
        INT64_MAX,
        "How many bytes per second this broker sends to replicas that are being reassigned, until they are in sync; "
        "the copies of replicas that are in sync, and of those that only lag, are never slowed down. A throttle that "
        "is given with a move (`--throttle`) counts instead. Default: no limit.",
        unit="bytes/s",
    )
    follower_replication_throttled_rate: Bytes = setting(
        "follower.replication.throttled.rate",
        INT64_MAX,
        "How many bytes per second this broker asks for, for its replicas that are being reassigned, until they are in "
        "sync. A throttle that is given with a move (`--throttle`) counts instead. Default: no limit.",
        unit="bytes/s",
    )
    auto_leader_rebalance_enable: Boolean = setting(
        "auto.leader.rebalance.enable",
        True,
        "Whether partitions go back to their preferred leader, the first of their replicas, when it is in sync again.",
    )
    leader_imbalance_check_interval_seconds: Count = setting(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the active controller looks for partitions that are not led by their preferred leader.",
        unit="s",
    )

    log_level: LogLevel = setting(
        "log.level",
        "info",
        "Events of this level and graver ones are logged to standard error. SIGUSR2 switches to `debug`, and back; "
        "`tidelog broker log-level` sets any.",
    )
    log_format: LogFormat = setting(
        "log.format", "text", "How events are logged: `text`, pairs of names and values, or `json`; one a line."
    )

    audit_log_file: Path | None = setting(
        "audit.log.file",
        None,
        "A file for the audit log: a line of JSON for what is refused, and for each change of the cluster. Only this "
        "user may read it. Default: no audit log.",
    )
    audit_log_topic: Boolean = setting(
        "audit.log.topic",
        False,
        "Whether this broker writes the lines of its audit log to the topic `__audit` as well, or instead, if "
        "audit.log.file is not set. The first broker to have a line makes the topic, with the replicas and the "
        "commit.protocol that offsets.topic.* say. Lines that cannot be written there are counted, and no request "
        "waits for them.",
    )
    audit_log_bytes_max: Count = setting(
        "audit.log.bytes.max",
        100 << 20,
        "From this size on the audit log begins a new file, and the old one gets a number behind its name.",
        unit="bytes",
    )
    audit_log_files_max: Count = setting(
        "audit.log.files.max", 5, "Files of the audit log that are kept, the one that is written included."
    )

    # -- what new topics get -------------------------------------------------------------------------------------

    num_partitions: Count = setting("num.partitions", 1, "Partitions of a topic that is created without a number.")
    default_replication_factor: Count | None = setting(
        "default.replication.factor",
        None,
        "Replicas of a topic that is created without a number. Default: 3, or as many as there are brokers if those "
        "are fewer. (Kafka: 1, which loses data with the first disk.)",
    )
    auto_create_topics_enable: Never = setting(
        "auto.create.topics.enable",
        False,
        "Always false: a topic is never created because somebody wrote to it or asked for it. (Kafka: true, which "
        "turns a misspelt name into a topic.)",
    )
    delete_topic_enable: Boolean = setting("delete.topic.enable", True, "Whether topics can be deleted.")
    topics_max: Count = setting("topics.max", 10_000, "The most topics that the cluster may have. (Kafka: no limit.)")
    topic_partitions_max: Count = setting(
        "topic.partitions.max", 10_000, "The most partitions that a topic may have. (Kafka: no limit.)"
    )
    request_partitions_max: Count = setting(
        "request.partitions.max",
        10_000,
        "The most partitions that one request may make, of a new topic or of one that grows. (Kafka: no limit.)",
    )
    broker_partitions_max: Count = setting(
        "broker.partitions.max",
        12_000,
        "The most partitions that a broker may hold a replica of. A topic, a growth or a move that would give it more "
        "is refused; the brokers' own topics count, and are never refused. (Kafka: no limit.)",
    )

    # -- who is calling, and what they may ---------------------------------------------------------------------------

    http_authentication: LoginMethods = setting(
        "http.authentication",
        (),
        "How HTTP clients say who they are: `token` (Authorization: Bearer ID.SECRET), `basic` (a user's name and "
        "password), `certificate` (shown in TLS; ssl.client.auth), `jwt` (Authorization: Bearer and a JSON Web Token; "
        "sasl.oauthbearer.*), or several, with commas between. Whoever shows none is refused with 401, but for "
        "/healthz, /readyz, / and /openapi.json. Default: nobody has to log in, and everybody is User:ANONYMOUS. (Not "
        "in Kafka.)",
    )
    http_ops_authentication: LoginMethods | None = setting(
        "http.ops.authentication",
        None,
        "The same at http.ops.listener, where /metrics alone wants to know; empty: nobody has to log in there. "
        "Default: as http.authentication. (Not in Kafka.)",
    )
    http_bootstrap_token_file: Path | None = setting(
        "http.bootstrap.token.file",
        None,
        "A file that holds ID.SECRET, and that only its owner may read (0600): a token that stands for the first of "
        "super.users on this broker, so that the first administrator of a cluster can log in and make others. "
        "Default: none. (Not in Kafka.)",
    )
    sasl_oauthbearer_jwks_endpoint_url: KeysUrl | None = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        "The file with the keys that JSON Web Tokens are verified by, as in file:///etc/tidelog/jwks.json: a JWKS, or "
        "public keys and certificates in PEM. Nobody but its owner may be able to write it, nor to read it if it holds "
        "shared secrets (HS256). Looked at every few seconds, and on SIGHUP. Default: none; needed for `jwt`. (Kafka: "
        "https:// too; brokers fetch nothing here.)",
    )
    sasl_oauthbearer_expected_issuer: Text | None = setting(
        "sasl.oauthbearer.expected.issuer",
        None,
        "The `iss` that a JSON Web Token must have. Default: none; needed for `jwt`. (Kafka: not checked without it.)",
    )
    sasl_oauthbearer_expected_audience: Words = setting(
        "sasl.oauthbearer.expected.audience",
        (),
        "The `aud` that a JSON Web Token must have, or several with commas between, of which it must have one. "
        "Default: none; needed for `jwt`. (Kafka: not checked without it.)",
    )
    sasl_oauthbearer_sub_claim_name: Text = setting(
        "sasl.oauthbearer.sub.claim.name",
        "sub",
        "The claim of a JSON Web Token that names its principal: with `alice` in it, whoever shows it is User:alice.",
    )
    sasl_oauthbearer_clock_skew_seconds: Seconds = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "How far the clock of whoever issues JSON Web Tokens may be from this broker's.",
        unit="s",
    )
    jwt_algorithms: JwtAlgorithms = setting(
        "jwt.algorithms",
        ("RS256", "ES256"),
        "How JSON Web Tokens may be signed, with commas between: RS256, RS384, RS512, PS256, PS384, PS512, ES256, "
        "ES384, ES512, EdDSA; and HS256, HS384, HS512, with which whoever can verify a token can make one. (Not in "
        "Kafka.)",
    )
    authorizer_enabled: Boolean = setting(
        "authorizer.enabled",
        False,
        "Whether ACLs say what callers may do; what no ACL allows is refused with 403 then. The same on all brokers. "
        "(Kafka: authorizer.class.name.)",
    )
    super_users: Principals = setting(
        "super.users",
        (),
        "Principals who may do everything, with semicolons between: User:admin;User:ops. The same on all brokers.",
    )
    allow_everyone_if_no_acl_found: Boolean = setting(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether everybody may do everything to a resource that no ACL names.",
    )
    users_max: Count = setting("users.max", 1_000, "The most users that the cluster may have. (Not in Kafka.)")
    tokens_max: Count = setting(
        "tokens.max",
        5_000,
        "The most tokens that the cluster may have; those that are over make room. (Not in Kafka.)",
    )
    acls_max: Count = setting("acls.max", 5_000, "The most ACLs that the cluster may have. (Kafka: no limit.)")

    # -- defaults of every topic; each can be set for one topic under its own name ------------------------------------

    log_segment_bytes: SegmentBytes = setting(
        "log.segment.bytes",
        1024 * MIB,
        "A segment file that reaches this size is closed and a new one begun. (Kafka refuses less than 1 MiB; here "
        "the minimum is 1 KiB, so that a test can roll segments with a few records. Small segments cost open "
        "files.)",
        unit="bytes",
    )
    log_roll_ms: Milliseconds = setting(
        "log.roll.ms",
        7 * DAY_MS,
        "A segment whose first record is this old is closed at the next append, even if it is not full, so that "
        "retention by age can take it.",
        unit="ms",
    )
    log_retention_ms: Limit = setting(
        "log.retention.ms",
        7 * DAY_MS,
        "A closed segment is deleted once its youngest record is older than this. -1: never because of age.",
        unit="ms",
    )
    log_retention_bytes: Limit = setting(
        "log.retention.bytes",
        -1,
        "The oldest closed segments of a partition are deleted as long as the rest is at least this large. -1: no "
        "limit.",
        unit="bytes",
    )
    log_cleanup_policy: CleanupPolicy = setting(
        "log.cleanup.policy",
        "delete",
        "`delete`: old segments go, by age and by size. Empty: everything is kept for ever. (Kafka's `compact` is "
        "not available in this version, but for `__consumer_offsets`, which the brokers compact themselves.)",
    )
    message_max_bytes: BatchBytes = setting(
        "message.max.bytes",
        1048588,
        "The largest record batch a partition takes, compressed and with its header; a larger one is refused with 413.",
        unit="bytes",
    )
    log_message_timestamp_type: TimestampType = setting(
        "log.message.timestamp.type",
        "CreateTime",
        "`CreateTime`: records keep the timestamp their producer gave them. `LogAppendTime`: the broker stamps them "
        "when it appends them.",
    )
    log_message_timestamp_before_max_ms: Skew = setting(
        "log.message.timestamp.before.max.ms",
        2**63 - 1,
        "How far a record's timestamp may lie before the broker's clock. Applies to `CreateTime`.",
        unit="ms",
    )
    log_message_timestamp_after_max_ms: Skew = setting(
        "log.message.timestamp.after.max.ms",
        3_600_000,
        "How far a record's timestamp may lie after the broker's clock. Applies to `CreateTime`.",
        unit="ms",
    )
    compression_type: CompressionType = setting(
        "compression.type",
        "producer",
        "The codec of the batches that the broker builds itself, from records sent as JSON; `producer` leaves those "
        "uncompressed. Batches that a producer built are stored as they came. (Kafka compresses them again if their "
        "codec is another; here a broker never touches records it was sent.)",
    )
    min_insync_replicas: Count | None = setting(
        "min.insync.replicas",
        None,
        "Replicas that must be in sync for `acks=all` to be accepted. Default: 2 where a topic has three replicas "
        "or more, else 1. The same on all brokers. (Kafka: 1, which acknowledges records that only one broker has.) "
        "With `commit.protocol=paxos` it means nothing: a majority of the replicas is always needed, and is enough.",
    )
    min_insync_racks: Count = setting(
        "min.insync.racks",
        1,
        "Racks (`broker.rack`) that need a replica in sync for `acks=all` to be accepted, so that acknowledged records "
        "outlive the loss of a rack; never more than a partition's replicas stand in. Brokers without a rack "
        "stand in one. The same on all brokers. With `commit.protocol=paxos` it means nothing. (Not in Kafka.)",
    )
    unclean_leader_election_enable: Boolean = setting(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that may lack acknowledged records leads if none that has them all is left. `false`: the "
        "partition waits for one. `true`: it goes on at once, and those records are lost. With `commit.protocol=paxos` "
        "it means nothing: there are no such elections.",
    )
    commit_protocol: CommitProtocol = setting(
        "commit.protocol",
        "isr",
        "How partitions commit: `isr`, primary and backups with a set of in-sync replicas, or `paxos`, by majority. "
        "Fixed when a topic is created. [choosing-a-protocol.md](choosing-a-protocol.md) compares them.",
    )
    ack_durability: AckDurability = setting(
        "ack.durability",
        "fsynced",
        "What `acks=all` waits for on each replica that counts. `fsynced`: the records are on the disk. "
        "`replicated`: they are in the operating system's memory, as with Kafka; a power cut takes what was not yet "
        "written, which begins after 50 ms.",
    )

    # -- housekeeping --------------------------------------------------------------------------------------------

    log_retention_check_interval_ms: Milliseconds = setting(
        "log.retention.check.interval.ms", 300_000, "How often closed segments are looked through.", unit="ms"
    )
    paxos_journal_max_bytes: Bytes = setting(
        "paxos.journal.max.bytes",
        64 * MIB,
        "When the journal of a partition with `commit.protocol=paxos` has outgrown this, its replicas agree to give up "
        "what they have in their logs. It may be larger while one of them lags: four times as large, then the others "
        "do not wait.",
        unit="bytes",
    )
    paxos_journal_max_entries: Count = setting(
        "paxos.journal.max.entries",
        20_000,
        "The same, if the journal has more than so many entries, each of which costs memory.",
    )
    log_scrub_period_ms: Milliseconds = setting(
        "log.scrub.period.ms",
        7 * DAY_MS,
        "Everything that is stored is read and verified at least this often, so that what the disk has spoilt is "
        "found, and repaired with another replica's copy, before that is spoilt, too. The reading is spread over the "
        "period. "
        "(Not in Kafka, which finds damage when somebody reads it.)",
        unit="ms",
    )
    log_scrub_io_max_bytes_per_second: Bytes = setting(
        "log.scrub.io.max.bytes.per.second",
        16 * MIB,
        "The scrubber never reads faster. A broker that stores more than this allows for in half a "
        "`log.scrub.period.ms` takes longer.",
        unit="bytes",
    )
    producer_id_expiration_ms: Milliseconds = setting(
        "producer.id.expiration.ms",
        DAY_MS,
        "How long a partition remembers an idempotent producer, or an `Idempotency-Key`, that sends nothing more.",
        unit="ms",
    )

    # -- consumer groups -----------------------------------------------------------------------------------------

    offsets_topic_num_partitions: Count = setting(
        "offsets.topic.num.partitions",
        16,
        "Partitions of `__consumer_offsets`, which keeps the groups' members and committed offsets: as many brokers "
        "can share the work. In force when the topic is made, by the first request about a group, and never changed "
        "after. (Kafka: 50.)",
    )
    offsets_topic_replication_factor: Count = setting(
        "offsets.topic.replication.factor",
        3,
        "Replicas of `__consumer_offsets`, or as many as the cluster has brokers if those are fewer. In force when the "
        "topic is made.",
    )
    offsets_topic_commit_protocol: CommitProtocol = setting(
        "offsets.topic.commit.protocol",
        "paxos",
        "How `__consumer_offsets` commits: `paxos`, by majority, so that the death of one broker of three stops no "
        "group for longer than an election, or `isr`. In force when the topic is made.",
    )
    offsets_retention_minutes: Count = setting(
        "offsets.retention.minutes",
        10_080,
        "For how long a group's offsets are kept once it has no members; for groups that never had any, since each "
        "offset was committed.",
        unit="min",
    )
    offsets_retention_check_interval_ms: Milliseconds = setting(
        "offsets.retention.check.interval.ms", 600_000, "How often offsets that are too old are looked for.", unit="ms"
    )
    offset_metadata_max_bytes: Count = setting(
        "offset.metadata.max.bytes",
        4_096,
        "How much text may come with a committed offset.",
        unit="bytes",
    )
    group_consumer_session_timeout_ms: Milliseconds = setting(
        "group.consumer.session.timeout.ms",
        45_000,
        "A member of a group that was not heard for so long is expelled, and its partitions are given to others; for "
        "members that do not ask for another time.",
        unit="ms",
    )
    group_min_session_timeout_ms: Milliseconds = setting(
        "group.min.session.timeout.ms", 6_000, "The shortest session that a member may ask for.", unit="ms"
    )
    group_max_session_timeout_ms: Milliseconds = setting(
        "group.max.session.timeout.ms", 1_800_000, "The longest session that a member may ask for.", unit="ms"
    )
    group_consumer_heartbeat_interval_ms: Milliseconds = setting(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "How often the members of groups are told to be heard.",
        unit="ms",
    )
    group_consumer_max_size: Count = setting(
        "group.consumer.max.size", 10_000, "The most members that a group may have. (Kafka: no limit.)"
    )
    offsets_topic_partition_groups_max: Count = setting(
        "offsets.topic.partition.groups.max",
        2_000,
        "The most groups that one partition of `__consumer_offsets` keeps: a cluster may have "
        "`offsets.topic.num.partitions` times as many, if their names are spread evenly. (Kafka: no limit.)",
    )

    # -- requests and their bounds -------------------------------------------------------------------------------

    request_timeout_ms_max: Milliseconds = setting(
        "request.timeout.ms.max",
        30_000,
        "The longest a request may wait, for a commit or for data; a client that asks for more gets this.",
        unit="ms",
    )
    request_queue_wait_ms_max: Milliseconds = setting(
        "request.queue.wait.ms.max",
        100,
        "How long a client's request should wait for its turn. When all of a class (produces, reads, reads that wait "
        "for data, administration) have waited for longer for request.queue.interval.ms, those that have are refused "
        "with 503 and Retry-After, until none had to be for as long again. Heartbeats and commits of groups, and the "
        "metadata, never are. (Not in Kafka.)",
        unit="ms",
    )
    request_queue_interval_ms: Milliseconds = setting(
        "request.queue.interval.ms",
        1_000,
        "For how long requests may wait over request.queue.wait.ms.max: a burst that is over sooner is served. (Not in "
        "Kafka.)",
        unit="ms",
    )
    loop_lag_ms_max: Milliseconds = setting(
        "loop.lag.ms.max",
        200,
        "How late the timers of a broker's event loop may fire (the median of the last nine looks) before it brakes: "
        "from here on reads that wait for data are refused with 503, at twice this all reads and administration, at "
        "four times produces. Each level ends at half of what it began at. (Not in Kafka.)",
        unit="ms",
    )
    fetch_max_bytes: Bytes = setting(
        "fetch.max.bytes",
        57_671_680,
        "The most data one read returns, whatever `max_bytes` says; a first batch that is larger is returned whole.",
        unit="bytes",
    )
    http_head_timeout_ms: Milliseconds = setting(
        "http.head.timeout.ms",
        10_000,
        "A request's line and headers that take longer to arrive, from their first byte on, are refused with 408.",
        unit="ms",
    )
    http_body_timeout_ms: Milliseconds = setting(
        "http.body.timeout.ms", 10_000, "A request body that takes longer to arrive is refused with 408.", unit="ms"
    )
    http_linger_timeout_ms: Milliseconds = setting(
        "http.linger.timeout.ms",
        30_000,
        "How long the rest of a body that is refused is read, and dropped, so that its client gets the answer and no "
        "reset. It ends sooner when the client closes, or sends nothing for five seconds. (nginx: lingering_time.)",
        unit="ms",
    )
    http_linger_bytes_max: Bytes = setting(
        "http.linger.bytes.max",
        64 * MIB,
        "The most that is read so of one body; who sends on gets a reset.",
        unit="bytes",
    )
    http_request_bytes_max: Bytes = setting(
        "http.request.bytes.max", 5 * MIB, "The largest JSON body; a larger one is refused with 413.", unit="bytes"
    )
    http_record_bytes_max: ShownBytes = setting(
        "http.record.bytes.max",
        8 * MIB,
        "The longest record that is shown as JSON; a longer one is refused with 406, and can be read as a raw batch. "
        "The event loop is held for some 2 ms for each MiB of it.",
        unit="bytes",
    )
    http_batches_bytes_max: Bytes = setting(
        "http.batches.bytes.max",
        32 * MIB,
        "The largest body of raw record batches; a larger one is refused with 413.",
        unit="bytes",
    )
    http_batches_partitions_max: Count = setting(
        "http.batches.partitions.max",
        1_000,
        "The most partitions that one request may send record batches to; one with more is refused with 422.",
    )
    http_body_budget_bytes: Bytes = setting(
        "http.body.budget.bytes",
        256 * MIB,
        "Memory for all request bodies that are in the broker at one time; a request beyond it is refused with 503, "
        "before its body is read if that has a Content-Length.",
        unit="bytes",
    )
    http_connections_max: Count = setting(
        "http.connections.max",
        2000,
        "Client connections open at one time. One more gets the place of one at rest, or is refused with 503. "
        "/healthz, /readyz and /metrics have places of their own beyond these. (Kafka: "
        "listener.name.NAME.max.connections.)",
    )
    http_ops_connections_max: Count = setting(
        "http.ops.connections.max", 32, "The same at http.ops.listener; clients' connections are not among them."
    )
    http_address_connections_max: Count | None = setting(
        "http.address.connections.max",
        None,
        "Of these, how many one client address may have; one more gets the place of one of them that is at rest, or is "
        "refused with 503. Default: as many as there are, since a proxy or a load balancer is one address. (Kafka: "
        "max.connections.per.ip.)",
    )

    quota_buckets_max: Count = setting(
        "quota.buckets.max",
        10_000,
        "Whose use of their quotas this broker remembers: users, client ids and addresses. Of more, the one that was "
        "not heard of for longest is forgotten, and begins anew with a second's worth.",
    )

    # -- REST consumers ------------------------------------------------------------------------------------------

    consumer_instance_timeout_ms: Milliseconds = setting(
        "consumer.instance.timeout.ms",
        300_000,
        "A REST consumer instance of which nothing was asked for this long is deleted, and its partitions are given to "
        "others.",
        unit="ms",
    )
    consumer_instances_max: Count = setting(
        "consumer.instances.max",
        10_000,
        "REST consumer instances that one broker keeps, of the groups that it coordinates; one more is refused with "
        "503.",
    )
    consumer_request_timeout_ms: Milliseconds = setting(
        "consumer.request.timeout.ms",
        1_000,
        "How long a read of a REST consumer waits for a record, where neither the read nor the instance says. (With "
        "Confluent's proxy it is the most a read may wait, and each one does.)",
        unit="ms",
    )
    consumer_request_max_bytes: Bytes = setting(
        "consumer.request.max.bytes",
        64 * MIB,
        "The most that a read of a REST consumer returns, keys, values and headers counted; one record always is. "
        "However large this is, an answer has no more than 8 MiB: what is left comes with the next one.",
        unit="bytes",
    )
    rest_commit_semantics: CommitSemantics = setting(
        "rest.commit.semantics",
        "processed",
        "What `offset` means where a REST consumer commits. `processed`: the last record that was processed, as with "
        "Confluent's proxy; the offset after it is kept. `next`: the next record to be read, as everywhere in Kafka, "
        "and in Strimzi's bridge. What is asked for later is the next one with both.",
    )

    @model_validator(mode="after")
    def _times_fit(self) -> BrokerConfig:
        if not self.broker_heartbeat_interval_ms * 2 <= self.broker_session_timeout_ms:
            raise ValueError(
                "broker.session.timeout.ms must be at least twice broker.heartbeat.interval.ms, or one late heartbeat "
                "fences a broker"
            )
        if not self.controller_quorum_heartbeat_ms * 2 <= self.controller_lease_ms:
            raise ValueError("controller.lease.ms must be at least twice controller.quorum.heartbeat.ms")
        if not self.controller_lease_ms < self.controller_quorum_election_timeout_ms:
            raise ValueError("controller.lease.ms must be less than controller.quorum.election.timeout.ms")
        return self

    @model_validator(mode="after")
    def _sessions_fit(self) -> BrokerConfig:
        shortest, longest = self.group_min_session_timeout_ms, self.group_max_session_timeout_ms
        if not shortest <= self.group_consumer_session_timeout_ms <= longest:
            raise ValueError(
                "group.consumer.session.timeout.ms must lie between group.min.session.timeout.ms and "
                "group.max.session.timeout.ms"
            )
        if not self.group_consumer_heartbeat_interval_ms * 2 <= self.group_consumer_session_timeout_ms:
            raise ValueError(
                "group.consumer.session.timeout.ms must be at least twice group.consumer.heartbeat.interval.ms, or one "
                "late heartbeat expels a member"
            )
        return self

    @model_validator(mode="after")
    def _asks_for_certificates(self) -> BrokerConfig:
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
    def _has_keys(self) -> BrokerConfig:
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
        if self.ssl_client_auth != "none" and self.http_security_protocol != "SSL":
            raise ValueError("ssl.client.auth needs http.security.protocol=SSL: plain HTTP knows no certificates")
        return self

    @model_validator(mode="after")
    def _knows_the_issuer(self) -> BrokerConfig:
        if "jwt" not in self.http_authentication:
            return self
        needed = {
            "sasl.oauthbearer.jwks.endpoint.url": self.sasl_oauthbearer_jwks_endpoint_url,
            "sasl.oauthbearer.expected.issuer": self.sasl_oauthbearer_expected_issuer,
            "sasl.oauthbearer.expected.audience": self.sasl_oauthbearer_expected_audience,
        }
        missing = [name for name, value in needed.items() if not value]
        if missing:
            raise ValueError(
                f"http.authentication=jwt needs {' and '.join(missing)}: without it, tokens that were made for others "
                "would do"
            )
        return self

    @model_validator(mode="after")
    def _has_operators(self) -> BrokerConfig:
        """Nothing is said of a listener that there is not, as it would be ignored; and a monitor has a way in."""
        if self.http_ops_listener is None:
            for name in ("http_ops_security_protocol", "http_ops_ssl_client_auth", "http_ops_authentication"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name.replace('_', '.')} needs http.ops.listener, the address that it is about")
        if self.http_ops_ssl_client_auth not in (None, "none") and self.http_ops_security_protocol != "SSL":
            raise ValueError("http.ops.ssl.client.auth needs http.ops.security.protocol=SSL")
        is_asked = self.http_ops_listener is None or self.ops_client_auth != "none"
        has_no_other = self.ops_authentication == ("certificate",)
        if not is_asked and (has_no_other or "certificate" in (self.http_ops_authentication or ())):
            raise ValueError(
                "nobody can show a certificate at http.ops.listener: set http.ops.authentication to other ways to log "
                "in, or http.ops.security.protocol=SSL and http.ops.ssl.client.auth=requested"
            )
        return self

    @model_validator(mode="after")
    def _is_reached_as_named(self) -> BrokerConfig:
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
        """Returns True if one of the listeners speaks TLS."""
        return "SSL" in (
            self.http_security_protocol,
            self.security_inter_broker_protocol,
            self.http_ops_security_protocol,
        )

    @property
    def ops_authentication(self) -> tuple[str, ...]:
        """Returns the ways to log in at `http.ops.listener`."""
        return self.http_authentication if self.http_ops_authentication is None else self.http_ops_authentication

    @property
    def ops_client_auth(self) -> ClientAuth:
        """Tells whether certificates are shown at `http.ops.listener`."""
        if self.http_ops_security_protocol != "SSL":
            return "none"
        return self.ssl_client_auth if self.http_ops_ssl_client_auth is None else self.http_ops_ssl_client_auth

    @property
    def jwt_keys_file(self) -> str:
        """The file of `sasl.oauthbearer.jwks.endpoint.url`, which is set."""
        assert self.sasl_oauthbearer_jwks_endpoint_url is not None
        return keys_file(self.sasl_oauthbearer_jwks_endpoint_url)

    @property
    def levels(self) -> LevelRange:
        """Returns the feature levels that this broker speaks."""
        return LevelRange(LEVEL_MIN, self.feature_level_max)

    @property
    def lease_ms(self) -> int:
        """For how long after an answered heartbeat this broker may serve as a leader."""
        return min(self.broker_lease_ms, self.broker_session_timeout_ms)

    @property
    def heartbeat_ms(self) -> int:
        """How often it sends one: three in a lease, or more often."""
        return min(self.broker_heartbeat_interval_ms, max(self.lease_ms // 3, 1))

    @property
    def named_voters(self) -> tuple[tuple[int, str, int], ...]:
        """`cluster.voters` as node id, host and port."""
        return tuple(split_voter(entry) for entry in self.cluster_voters)

    def peer_address(self, bound: tuple[str, int], *, http_host: str) -> tuple[str, int]:
        """The address that other brokers are told, of one that listens at `bound`: nobody can connect to "all"."""
        named = {node_id: (host, port) for node_id, host, port in self.named_voters}
        if self.node_id in named:
            return named[self.node_id]
        return (http_host, bound[1]) if bound[0] in ALL_ADDRESSES else bound

    def replication_factor_for(self, brokers: int) -> int:
        """Replicas of a topic created without a number, in a cluster of `brokers` brokers, fenced ones included."""
        return self.default_replication_factor or min(DEFAULT_REPLICATION_FACTOR_MAX, brokers)


class TopicConfig(Settings):
    """The settings in force for one topic: its own, and the broker's for those it leaves alone (see `topics`)."""

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
    ack_durability: AckDurability = inherited("ack.durability", "ack.durability")

    def min_insync_replicas_for(self, replication_factor: int) -> int:
        """In-sync replicas needed for `acks=all` by a partition with `replication_factor` replicas."""
        return self.min_insync_replicas or (2 if replication_factor >= 3 else 1)
