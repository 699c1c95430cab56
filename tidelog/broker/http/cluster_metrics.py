"""The cluster as one broker sees it, as Prometheus metrics: the controller, the brokers, and how far each has applied
the metadata log.

They are also there while a broker waits to join its cluster, when an operator needs them most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.metric_families import counts, gauge, gauges
from tidelog.model.cluster import NO_LEADER, Topic

NOBODY: Final = -1

PEER_COUNTERS: Final = {
    "connects": "Connections to other brokers that were opened.",
    "failed_connects": "Attempts to connect to another broker that failed.",
    "requests": "Requests sent to other brokers.",
    "timeouts": "Requests to other brokers without an answer in time.",
    "lost": "Requests to other brokers whose connection died under them.",
    "served": "Requests of other brokers that were answered.",
    "overloads": "Requests of other brokers that were refused because of a bound.",
    "refusals": "Connections with other brokers, in either direction, that this one would not have.",
    "unproved": "Refused connections with brokers that did not prove that they know the cluster's secret.",
    "notifications_dropped": "One-way messages to other brokers that were not sent: no connection, or too much waits.",
}


class _Counts(NamedTuple):
    leaderless: int
    losses: int
    regroupings: int


class ClusterMetrics(Collector):
    """Metrics of one broker's view of its cluster. Brokers may differ for a moment; a difference that lasts is a
    fault.
    """

    def __init__(self, face: BrokerFace) -> None:
        self._face = face
        self._counted: dict[str, tuple[Topic, _Counts]] = {}
        """Number of partitions without a leader, of accepted losses and of regroupings, by topic name, with the topic
        object that was counted: an unchanged topic keeps its object.
        """

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics for one scrape."""
        yield from self._controller()
        yield from self._brokers()
        yield from self._peers()

    def _controller(self) -> Iterator[Metric]:
        statistics, image = self._face.statistics, self._face.cluster.image
        leader = self._face.cluster.controller_node
        yield gauge("controller_active", "1 if this broker is the active controller.", statistics.controller.is_active)
        yield gauge(
            "controller_node_id",
            "The node id of the active controller; -1 while it is not known.",
            NOBODY if leader is None else leader,
        )
        yield gauge("controller_epoch", "Rises with each active controller.", image.controller_epoch)
        yield CounterMetricFamily(
            "tidelog_controller_changes",
            "Times that this broker learned of a new controller.",
            statistics.channel.leader_changes,
        )
        yield gauge("metadata_position", "Records of the metadata log that this broker has applied.", image.position)
        yield gauges(
            "metadata_lag_records",
            "Records by which a live broker is behind the active controller, which alone tells.",
            ["node_id"],
            {str(node_id): records for node_id, records in statistics.controller.lags.items()},
        )
        yield gauges(
            "feature_level",
            "The feature level of the cluster, and the highest that this broker speaks.",
            ["of"],
            {"cluster": image.level, "broker": self._face.cluster.levels.highest},
        )
        yield gauge("metadata_voters", "Brokers that vote on the metadata log.", len(image.voters))

    def _brokers(self) -> Iterator[Metric]:
        image = self._face.cluster.image
        live = len(image.live_brokers)
        yield gauges("brokers", "Registered brokers.", ["state"], {"live": live, "fenced": len(image.brokers) - live})
        self._counted = {topic.name: (topic, self._counts(topic)) for topic in image.topics.values()}
        leaderless = sum(counted.leaderless for _, counted in self._counted.values())
        yield gauge("partitions_without_leader", "Partitions of the cluster that nobody leads.", leaderless)
        yield gauges(
            "accepted_losses",
            "Ranges of offsets that were given up, and decisions to go on without replicas, by topic.",
            ["topic", "given_up"],
            {
                (name, given_up): count
                for name, (_, counted) in self._counted.items()
                for given_up, count in (("records", counted.losses), ("votes", counted.regroupings))
                if count
            },
        )

    def _counts(self, topic: Topic) -> _Counts:
        counted_topic, counted = self._counted.get(topic.name, (None, None))
        if counted is not None and counted_topic is topic:
            return counted
        infos = topic.partitions
        return _Counts(
            sum(info.leader == NO_LEADER for info in infos),
            sum(len(info.losses) for info in infos),
            sum(len(info.regroupings) for info in infos),
        )

    def _peers(self) -> Iterator[Metric]:
        yield gauge(
            "insecure_listeners",
            "Listeners of this broker that strangers on other machines can reach, and that believe them.",
            len(self._face.cluster.insecure_listeners),
        )
        peers = self._face.statistics.peers
        yield gauge("peers_known", "Other brokers that this one keeps connections to.", len(peers.node_ids))
        yield gauge("peers_connected", "Other brokers that this one is connected to.", len(peers.connected))
        for name, meaning in PEER_COUNTERS.items():
            yield CounterMetricFamily(f"tidelog_peer_{name}", meaning, getattr(peers.statistics, name))
        yield counts(
            "peer_notifications",
            "One-way messages to other brokers that were sent, by lane: 0 is for control, the others are for data.",
            ["lane"],
            {str(lane): count for lane, count in peers.statistics.notified.items()},
        )
        yield counts(
            "peer_messages_refused",
            "Messages of other brokers that no correct broker could have sent, or not that one, or not then.",
            ["reason"],
            peers.statistics.refused,
        )
