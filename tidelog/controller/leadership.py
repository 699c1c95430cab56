"""Who leads a partition, and who may: the rules by which a partition's entry follows events. Pure.

Three sets are kept, after Kafka's KIP-966. The *ISR* has everything acknowledged and is live. The *ELR* has everything
acknowledged and is not in sync any more: a leader commits nothing while fewer than `min.insync.replicas` are in sync,
so whoever leaves then has it all still. The *last known* leader is remembered for when both are empty. A leader is
sought in

    the ISR -> the ELR -> the last known leader -> anyone, if unclean elections are on, but who is only being filled

and if there is none, nobody leads (-1), until one of them is live again. The first two lose nothing. The third may
lose what power cuts take, as `ack.durability=replicated` says; without that it cannot be needed. The fourth loses
records.

A process that did not stop in good order may have lost what was not fsynced: with `replicated` it leaves ISR and ELR,
with `fsynced` nothing acknowledged is lost, and it stays eligible, unless that became the setting during its life. A
new disk has nothing, and leaves everything.

Partitions that commit by majority have rules of their own: `quorum_leadership`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.topics import topic_config
from tidelog.controller.quorum_leadership import Brokers, quorum_settled
from tidelog.controller.records import PartitionChange, PartitionsChanged
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionInfo, Topic
from tidelog.model.ids import NodeId

RULES = ("min.insync.replicas", "ack.durability", "unclean.leader.election.enable")
"""The settings of a topic that the controller follows."""

IsLive = Callable[[NodeId], bool]


class TopicRules:
    """The settings of topics, looked up once where a topic sets none of its own."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._default: TopicConfig | None = None

    def of(self, topic: Topic) -> TopicConfig:
        """Those in `RULES` are the topic's; the others may be the defaults."""
        own = {name: topic.configs[name] for name in RULES if name in topic.configs}
        if own:
            return topic_config(self._config, own)
        if self._default is None:
            self._default = topic_config(self._config, {})
        return self._default


class Loss(enum.Enum):
    """What a broker has lost with its last life."""

    NOT_SYNCED = enum.auto()
    """Perhaps whatever was not fsynced."""
    ACKNOWLEDGED = enum.auto()
    """Perhaps what it has acknowledged, too."""
    DISK = enum.auto()


@dataclass(frozen=True, slots=True)
class Lost:
    """A broker that comes back with less than it had."""

    node: NodeId
    loss: Loss
    epoch: int
    """Of the life that was lost."""

    def of(self, topic: Topic) -> Lost:
        """What that means for a topic."""
        if self.loss is Loss.NOT_SYNCED and self.epoch < topic.volatile_before:
            return replace(self, loss=Loss.ACKNOWLEDGED)
        return self

    def takes_acknowledged(self, rules: TopicConfig) -> bool:
        """Records may be gone that the broker has vouched for."""
        return self.loss is not Loss.NOT_SYNCED or rules.ack_durability == "replicated"


# -- one partition ---------------------------------------------------------------------------------------------------


def followed(
    was: PartitionInfo, asked: PartitionInfo, rules: TopicConfig, brokers: Brokers, lost: Lost | None = None
) -> PartitionInfo:
    """The entry that follows `was` if `asked` is wanted, by the rules of the partition's commit protocol."""
    if asked.members:
        return quorum_settled(was, asked, brokers)
    return settled(was, asked, rules, brokers.is_live, lost)


def settled(
    was: PartitionInfo, asked: PartitionInfo, rules: TopicConfig, is_live: IsLive, lost: Lost | None = None
) -> PartitionInfo:
    """The entry that follows `was` if `asked` (it, with another ISR, leader or replicas) is wanted, and the live are
    live: fenced members out of the ISR, a finished move finished, a leader found, the ELR kept, epochs counted."""
    gone = lost.node if lost is not None and lost.takes_acknowledged(rules) else NO_LEADER
    isr = tuple(node for node in asked.replicas if node in asked.isr and node != gone and is_live(node))
    now = replace(asked, isr=isr)
    complete = tuple(node for node in now.replicas if node in (*was.isr, *was.elr) and node != gone)
    now = replace(now, last_known_elr=_last_known(was, now, lost))
    now = _led(now, complete, rules, is_live)
    is_unclean = bool(now.isr) and all(node not in complete for node in now.isr)
    if not is_unclean:  # else a move would end with whoever is left, and what the others have be deleted at once
        now = _moved(now)
    is_enough = len(now.isr) >= min_isr(now, rules)
    elr = () if is_enough or is_unclean else _besides(now, complete)
    now = replace(now, elr=elr, last_known_elr=() if now.isr else now.last_known_elr)
    return _numbered(was, now)


def min_isr(info: PartitionInfo, rules: TopicConfig) -> int:
    """In-sync replicas without which nothing is committed: never more than the partition has replicas."""
    return min(rules.min_insync_replicas_for(info.replication_factor), info.replication_factor)


def _moved(now: PartitionInfo) -> PartitionInfo:
    """A move is complete when all replicas that shall stay are in sync."""
    target = now.target
    if not (now.adding or now.removing) or any(node not in now.isr for node in target):
        return now
    leader = now.leader if now.leader in target else target[0]
    return replace(now, leader=leader, replicas=target, isr=target, adding=(), removing=())


def _besides(now: PartitionInfo, nodes: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    return tuple(node for node in nodes if node in now.replicas and node not in now.isr)


def _last_known(was: PartitionInfo, now: PartitionInfo, lost: Lost | None) -> tuple[NodeId, ...]:
    known = was.last_known_elr if was.leader == NO_LEADER else (was.leader,)
    wiped = lost.node if lost is not None and lost.loss is Loss.DISK else NO_LEADER
    return tuple(node for node in known if node in now.replicas and node != wiped)


def _led(now: PartitionInfo, complete: tuple[NodeId, ...], rules: TopicConfig, is_live: IsLive) -> PartitionInfo:
    if now.isr:
        return now if now.leader in now.isr else replace(now, leader=now.isr[0])
    candidates = list(complete)
    if not complete:
        candidates += now.last_known_elr
    if rules.unclean_leader_election_enable:
        candidates += [*now.last_known_elr, *now.original]  # not one that is only being filled
    leader = next((node for node in candidates if is_live(node)), NO_LEADER)
    return replace(now, leader=leader, isr=() if leader == NO_LEADER else (leader,))


def _numbered(was: PartitionInfo, now: PartitionInfo) -> PartitionInfo:
    if now == was:
        return was
    is_new_reign = now.leader != was.leader or any(node not in now.replicas for node in was.replicas)
    return replace(now, leader_epoch=was.leader_epoch + is_new_reign, partition_epoch=was.partition_epoch + 1)


def change_of(topic: Topic, was: PartitionInfo, now: PartitionInfo) -> PartitionChange:
    """What the log says of it."""
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
    )


def as_record(changes: Iterable[PartitionChange]) -> tuple[PartitionsChanged, ...]:
    """All changes of one event are one record; none is no record."""
    listed = list(changes)
    return (PartitionsChanged(listed),) if listed else ()


# -- all partitions of a broker, or of a topic -------------------------------------------------------------------------


def without(
    image: ClusterImage, node: NodeId, config: BrokerConfig, loss: Loss | None = None, *, new_disk: str = ""
) -> tuple[PartitionsChanged, ...]:
    """What changes when a broker is fenced, and has lost something perhaps. `new_disk`: if it comes back on another."""
    lost = None if loss is None else Lost(node, loss, image.brokers[node].epoch if node in image.brokers else -1)
    return _of_broker(image, node, config, Brokers(image, absent=node, new_disk=new_disk), lost)


def including(image: ClusterImage, node: NodeId, config: BrokerConfig) -> tuple[PartitionsChanged, ...]:
    """What changes when a broker is unfenced: it leads where nobody else could. Into the ISR leaders take it."""
    return _of_broker(image, node, config, Brokers(image, present=node), None)


def under_rules(image: ClusterImage, topic: Topic, config: BrokerConfig) -> tuple[PartitionsChanged, ...]:
    """What changes when the settings are those of `topic` from now on.

    If fewer need be in sync, the leader commits again without those in the ELR, which lack that; so they leave it.
    """
    rules, brokers = TopicRules(config).of(topic), Brokers(image)
    return as_record(
        change_of(topic, info, now)
        for info in topic.partitions
        if (now := followed(info, info, rules, brokers)) is not info
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
        and (now := followed(info, info, rules.of(topic), brokers, lost and lost.of(topic))) is not info
    )
