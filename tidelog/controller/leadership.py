"""Changes of leaders and ISRs in all partitions of a broker, or of a topic, when brokers come and go and settings
change. Pure.

Each partition's entry changes by the rules of its topic's commit protocol (`protocols`): `isr_leadership`, or for
commit by majority `quorum_leadership`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.topics import topic_config
from tidelog.controller.broker_state import Brokers, Loss, Lost
from tidelog.controller.protocols import rules_of
from tidelog.controller.records import PartitionChange, PartitionsChanged
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.ids import NodeId

RULES = ("min.insync.replicas", "ack.durability", "unclean.leader.election.enable")
"""The settings of a topic that the controller's elections depend on."""


class TopicRules:
    """The settings of topics; the defaults are looked up only once, for all topics without settings of their own."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._default: TopicConfig | None = None

    def of(self, topic: Topic) -> TopicConfig:
        """Returns the settings of a topic. Those in `RULES` are exact; the others may be the defaults even if the topic
        overrides them."""
        # Most topics set none of these, and a broker that fails touches thousands of them: they share one parsed
        # default.
        own = {name: topic.configs[name] for name in RULES if name in topic.configs}
        if own:
            return topic_config(self._config, own)
        if self._default is None:
            self._default = topic_config(self._config, {})
        return self._default


# -- one partition ---------------------------------------------------------------------------------------------------


def change_of(topic: Topic, was: PartitionInfo, now: PartitionInfo) -> PartitionChange:
    """Returns the record of a partition's change from `was` to `now`."""
    return PartitionChange(
        topic.topic_id,
        now.partition,
        now.leader,
        now.leader_epoch,
        list(now.isr),
        now.partition_epoch,
        list(now.elr),
        list(now.last_known_elr),
        None if now.replicas == was.replicas else list(now.replicas),
        list(now.adding),
        list(now.removing),
        None if now.members == was.members else list(now.members),
        None if now.wanted == was.wanted else list(now.wanted),
        None if now.next_engine_id == was.next_engine_id else now.next_engine_id,
        # Those are the lost logs: replicas that stay, but whose beginning was struck out. `apply` notes a new one.
        [node for node, _ in was.since if node in now.replicas and node not in dict(now.since)],
    )


def as_record(changes: Iterable[PartitionChange]) -> tuple[PartitionsChanged, ...]:
    """Returns one record with all these changes of partitions; no record if there are none."""
    listed = list(changes)
    return (PartitionsChanged(listed),) if listed else ()


# -- all partitions of a broker, or of a topic -------------------------------------------------------------------------


def without(
    image: ClusterImage, node: NodeId, config: BrokerConfig, loss: Loss | None = None, *, new_disk: str = ""
) -> tuple[PartitionsChanged, ...]:
    """Returns the changes of partitions when a broker is fenced. `loss` is what it may have lost; `new_disk` is the
    disk with which it comes back, if that is another one."""
    # An unknown broker's epoch is older than every `volatile_before`, so its acknowledged records count as lost, too.
    lost = None if loss is None else Lost(node, loss, image.brokers[node].epoch if node in image.brokers else -1)
    return _of_broker(image, node, config, Brokers(image, absent=node, new_disk=new_disk), lost)


def including(image: ClusterImage, node: NodeId, config: BrokerConfig) -> tuple[PartitionsChanged, ...]:
    """Returns the changes of partitions when a broker is unfenced: it leads those that have no leader and that it may
    lead. The leaders of others take it into their ISRs themselves."""
    return _of_broker(image, node, config, Brokers(image, present=node), None)


def under_rules(image: ClusterImage, topic: Topic, config: BrokerConfig) -> tuple[PartitionsChanged, ...]:
    """Returns the changes of partitions when the settings of `topic` take effect.

    With a smaller `min.insync.replicas` the leader can commit without the replicas in the ELR; these may lack such
    records, so they leave the ELR.
    """
    rules, brokers = TopicRules(config).of(topic), Brokers(image)
    return as_record(
        change_of(topic, info, now)
        for info in topic.partitions
        # `settled` returns the same object if nothing changes. A record would raise the partition epoch, and so refuse
        # requests of leaders that are under way, for nothing.
        if (now := rules_of(topic).settled(info, info, rules, brokers, None)) is not info
    )


def _of_broker(
    image: ClusterImage, node: NodeId, config: BrokerConfig, brokers: Brokers, lost: Lost | None
) -> tuple[PartitionsChanged, ...]:
    rules = TopicRules(config)
    return as_record(
        change_of(topic, info, now)
        for topic in image.topics.values()
        for info in topic.partitions
        if node in info.replicas
        and (now := rules_of(topic).settled(info, info, rules.of(topic), brokers, lost and lost.of(topic))) is not info
    )
