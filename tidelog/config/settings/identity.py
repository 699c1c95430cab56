"""Settings of a broker's node id, directory, and listener addresses."""

from __future__ import annotations

from tidelog.config.settings.base import Settings, setting
from tidelog.config.values import Address, FeatureLevel, Hosts, NodeNumber, Path, Rack, Url, Voters, split_voter
from tidelog.model.levels import LEVEL_MAX, LEVEL_MIN, LevelRange


class IdentitySettings(Settings):
    """Settings of a broker's id, rack, data directory and addresses."""

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

    @property
    def levels(self) -> LevelRange:
        """Feature levels that this broker supports."""
        return LevelRange(LEVEL_MIN, self.feature_level_max)

    @property
    def named_voters(self) -> tuple[tuple[int, str, int], ...]:
        """Voters of `cluster.voters`, each as node id, host and port."""
        return tuple(split_voter(entry) for entry in self.cluster_voters)
