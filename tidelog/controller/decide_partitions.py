"""Decisions about ISRs and leaders: requests of leaders, and of operators.

A leader's request is a compare-and-set (KIP-497): it names the leader epoch and the partition epoch that it knows, and
every ISR member with the broker epoch in which it fetched. The checks come in Kafka's order. What a leader may conclude
from a refusal is as important as what is refused: a leader that took "perhaps" for "no" would commit without a member
that the controller considers in sync, and might elect.

`INELIGIBLE_REPLICA` is the only refusal that means "no"; it uses up the partition epoch, to make that true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tidelog.config.schema import BrokerConfig
from tidelog.controller.broker_state import Brokers, Lost
from tidelog.controller.commands import BrokerCommand
from tidelog.controller.decide_brokers import registered_broker
from tidelog.controller.decision import Decision
from tidelog.controller.leadership import TopicRules, as_record, change_of
from tidelog.controller.partition_commands import (
    ANY_LIFE,
    AlterCode,
    AlterPartition,
    ElectionAnswer,
    ElectionCode,
    ElectionType,
    ElectLeaders,
    HandOver,
    IsrAnswer,
    IsrAsked,
    IsrMember,
    LeadersElected,
    PartitionLed,
    PartitionNamed,
    PartitionReported,
    PartitionsAltered,
)
from tidelog.controller.protocols import rules_of
from tidelog.controller.records import MetadataRecord, PartitionChange, PartitionRegrouped
from tidelog.model.cluster import END_UNKNOWN, NO_LEADER, BrokerInfo, ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import NotController
from tidelog.model.ids import NodeId

R = TypeVar("R", bound=PartitionReported)


class Partitions:
    """The partitions of an image, by topic id and number, with the changes of one decision."""

    def __init__(self, image: ClusterImage, config: BrokerConfig) -> None:
        self.image = image
        self._rules = TopicRules(config)
        self._topics: Mapping[str, Topic] = {topic.topic_id: topic for topic in image.topics.values()}
        self._changed: dict[tuple[str, int], PartitionInfo] = {}

    def find(self, topic_id: str, partition: int) -> tuple[Topic, PartitionInfo] | None:
        """Returns a topic and its partition, as changed so far; None if there is no such partition."""
        topic = self._topics.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        return topic, self._changed.get((topic_id, partition), topic.partitions[partition])

    def settle(
        self,
        topic: Topic,
        was: PartitionInfo,
        proposed: PartitionInfo,
        *,
        even_unclean: bool = False,
        unfit: NodeId | None = None,
        lost: Lost | None = None,
    ) -> PartitionInfo:
        """Stores a changed partition, with leader and ISR completed by the rules of its protocol. `even_unclean` elects
        any live replica if no other may lead; `unfit` counts as not live; `lost` has lost its log."""
        rules = self._rules.of(topic)
        if even_unclean:
            # The topic's own setting stays off: an operator has allowed this one election.
            rules = rules.model_copy(update={"unclean_leader_election_enable": True})
        brokers = Brokers(self.image, absent=NO_LEADER if unfit is None else unfit)
        return self.put(topic, rules_of(topic).settled(was, proposed, rules, brokers, lost))

    def put(self, topic: Topic, now: PartitionInfo) -> PartitionInfo:
        """Stores a changed partition for this decision, and returns it."""
        # An unchanged entry makes no record: that would raise the partition epoch for nothing.
        if now is not self._changed.get((topic.topic_id, now.partition), topic.partitions[now.partition]):
            self._changed[topic.topic_id, now.partition] = now
        return now

    @property
    def changes(self) -> list[PartitionChange]:
        """Returns the changes that the metadata log is to record."""
        topics = [self._topics[topic_id] for topic_id, _ in self._changed]
        return [
            change_of(topic, topic.partitions[now.partition], now)
            for topic, now in zip(topics, self._changed.values(), strict=True)
        ]


def decide_reports(
    image: ClusterImage,
    command: BrokerCommand,
    config: BrokerConfig,
    reports: Sequence[R],
    act: Callable[[Partitions, BrokerInfo, R, Topic, PartitionInfo], None],
) -> Decision:
    """Returns the decision about a broker's reports, each of which `act` applies to its partition; a report about a
    partition that does not exist (any more) is ignored. Raises `StaleBrokerEpoch`, `BrokerRemoved` or `NotController`.
    """
    broker = registered_broker(image, command.node_id, command.broker_epoch)
    partitions = Partitions(image, config)
    for report in reports:
        entry = partitions.find(report.topic_id, report.partition)
        if entry is not None:
            act(partitions, broker, report, *entry)
    return Decision(as_record(partitions.changes))


# -- ISRs --------------------------------------------------------------------------------------------------------------


def alter_partition(image: ClusterImage, command: AlterPartition, config: BrokerConfig) -> Decision:
    """Decides leaders' requests for other ISRs, each partition separately.

    Raises `StaleBrokerEpoch` or `BrokerRemoved` if the sender is not registered under its broker epoch; `NotController`
    if the sender knows a later registration or later changes of a partition than the image.
    """
    sender = registered_broker(image, command.node_id, command.broker_epoch)
    partitions = Partitions(image, config)
    answers = [_alter(partitions, sender, request) for request in command.partitions]
    return Decision(as_record(partitions.changes), lambda after: PartitionsAltered(after.position, answers))


def _alter(partitions: Partitions, sender: BrokerInfo, request: IsrAsked) -> IsrAnswer:
    entry = partitions.find(request.topic_id, request.partition)
    if entry is None:
        return IsrAnswer(request.topic_id, request.partition, AlterCode.UNKNOWN_PARTITION)
    topic, info = entry
    code = _judge(partitions.image, sender, topic, info, request)
    now = info
    if code is AlterCode.INELIGIBLE_REPLICA:
        # The leader takes this answer as proof that nothing was applied, and reverts. An earlier sending of the request
        # may still arrive, and find the replica eligible again; the new partition epoch refuses it.
        now = partitions.put(topic, replace(info, partition_epoch=info.partition_epoch + 1))
    elif code is AlterCode.NONE:
        nodes = [member.node_id for member in request.isr]
        # The ISR is kept in the order of the replicas: elections go by it.
        isr = tuple(node for node in info.replicas if node in nodes)
        now = partitions.settle(topic, info, replace(info, isr=isr))
        code = AlterCode.NONE if now.leader_epoch == info.leader_epoch else AlterCode.NEW_LEADER_ELECTED
    return IsrAnswer(request.topic_id, request.partition, code, now.leader_epoch, now.partition_epoch, now.isr)


def _judge(image: ClusterImage, sender: BrokerInfo, topic: Topic, info: PartitionInfo, request: IsrAsked) -> AlterCode:
    # This node was the controller once: it must not judge a leader by an image that is older than the leader's.
    if request.leader_epoch > info.leader_epoch or request.partition_epoch > info.partition_epoch:
        raise NotController(f"node {sender.node_id} knows later changes of partition {info.partition} than this one")
    # A deposed leader's set is one that nobody replicates to any more.
    if request.leader_epoch < info.leader_epoch:
        return AlterCode.FENCED_LEADER_EPOCH
    # Only the leader knows who has caught up, and only where it replicates to an ISR.
    if info.leader != sender.node_id or not rules_of(topic).leader_alters_isr:
        return AlterCode.INVALID_REQUEST
    nodes = [member.node_id for member in request.isr]
    is_eligible = all(_is_eligible(image, info, member) for member in request.isr)
    if request.partition_epoch < info.partition_epoch:
        # A request that was applied, and whose answer was lost, comes again under the epoch before: it gets its
        # "applied". Anything older may have been applied and undone since, so the leader has to wait for the metadata.
        is_next = request.partition_epoch == info.partition_epoch - 1
        is_done = is_next and is_eligible and sorted(nodes) == sorted(info.isr)
        return AlterCode.NONE if is_done else AlterCode.INVALID_UPDATE_VERSION
    is_subset = all(node in info.replicas for node in nodes) and len(dict.fromkeys(nodes)) == len(nodes)
    # A leader outside its own ISR would commit what it need not have.
    if not is_subset or info.leader not in nodes:
        return AlterCode.INVALID_REQUEST
    return AlterCode.NONE if is_eligible else AlterCode.INELIGIBLE_REPLICA


def _is_eligible(image: ClusterImage, info: PartitionInfo, member: IsrMember) -> bool:
    """Returns True if the member is live under the broker epoch with which it fetched. A member that is in the ISR
    already needs no such check, since a restarted process leaves the ISR."""
    broker = image.brokers.get(NodeId(member.node_id))
    # A fenced or stopping broker would join, and leave at once; until then every commit waits for it (KIP-841).
    if broker is None or broker.is_fenced:
        return False
    # The fetches of an earlier process say nothing about the log that its successor found (KIP-903).
    is_known = member.broker_epoch == ANY_LIFE and member.node_id in info.isr
    return is_known or member.broker_epoch == broker.epoch


# -- elections ---------------------------------------------------------------------------------------------------------


def elect_leaders(image: ClusterImage, command: ElectLeaders, config: BrokerConfig) -> Decision:
    """Elects leaders, preferred or unclean. Never raises: each partition has its own answer."""
    partitions = Partitions(image, config)
    # Without a list only those partitions are answered that can get another leader; a cluster has too many others.
    partition_names = _electable(image, command.election) if command.partitions is None else command.partitions
    answers = [_elect(partitions, command.election, named) for named in partition_names]
    records: tuple[MetadataRecord, ...] = as_record(partitions.changes)
    if command.election is ElectionType.UNCLEAN:
        # An election that may lose records leaves an audit record in place of the plain change.
        records = tuple(_unclean_record(change, command) for change in partitions.changes)
    return Decision(records, lambda after: LeadersElected(after.position, answers))


def _unclean_record(change: PartitionChange, command: ElectLeaders) -> PartitionRegrouped:
    """Returns the audit record of an election for which no replica was asked: where its log ends is not known."""
    return PartitionRegrouped(change, END_UNKNOWN, command.at_ms, command.by, command.via, change.leader)


def _electable(image: ClusterImage, election: ElectionType) -> Sequence[PartitionNamed]:
    """Returns the partitions of the cluster whose leader this election could change."""
    return [
        PartitionNamed(topic.topic_id, info.partition)
        for topic in image.topics.values()
        for info in topic.partitions
        if (_may_preferred_lead(info) if election is ElectionType.PREFERRED else _is_rescuable(image, topic, info))
    ]


def _may_preferred_lead(info: PartitionInfo) -> bool:
    # Being live is not enough: a preferred leader that lacks records would have the others truncate them.
    return info.leader != info.replicas[0] and info.replicas[0] in info.isr


def _is_rescuable(image: ClusterImage, topic: Topic, info: PartitionInfo) -> bool:
    is_any_live = any(image.is_live(node) for node in info.replicas)
    return rules_of(topic).has_unclean_elections and info.leader == NO_LEADER and is_any_live


def _elect(partitions: Partitions, election: ElectionType, named: PartitionNamed) -> ElectionAnswer:
    entry = partitions.find(named.topic_id, named.partition)
    if entry is None:
        return ElectionAnswer(named.topic_id, named.partition, ElectionCode.UNKNOWN_PARTITION)
    topic, info = entry
    if election is ElectionType.PREFERRED:
        code, now = _elect_preferred(partitions, topic, info)
    else:
        code, now = _elect_unclean(partitions, topic, info)
    return ElectionAnswer(named.topic_id, named.partition, code, now.leader)


def _elect_preferred(partitions: Partitions, topic: Topic, info: PartitionInfo) -> tuple[ElectionCode, PartitionInfo]:
    if info.leader == info.replicas[0]:
        return ElectionCode.ELECTION_NOT_NEEDED, info
    if not _may_preferred_lead(info):
        return ElectionCode.PREFERRED_LEADER_NOT_AVAILABLE, info
    return ElectionCode.NONE, partitions.settle(topic, info, replace(info, leader=info.replicas[0]))


def _elect_unclean(partitions: Partitions, topic: Topic, info: PartitionInfo) -> tuple[ElectionCode, PartitionInfo]:
    # Whoever leads has all that was committed; an unclean election beside it would give that up for nothing.
    if info.leader != NO_LEADER:
        return ElectionCode.ELECTION_NOT_NEEDED, info
    if not _is_rescuable(partitions.image, topic, info):
        return ElectionCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, info
    return ElectionCode.NONE, partitions.settle(topic, info, info, even_unclean=True)


# -- handing over ------------------------------------------------------------------------------------------------------


def hand_over(image: ClusterImage, command: HandOver, config: BrokerConfig) -> Decision:
    """Elects other leaders for a broker that is about to stop. Each partition has its own answer; a partition that the
    broker does not lead in that epoch any more is left as it is. Raises `StaleBrokerEpoch`, `BrokerRemoved` or
    `NotController`."""
    giver = registered_broker(image, command.node_id, command.broker_epoch)
    partitions = Partitions(image, config)
    answers = [_hand_over_partition(partitions, giver.node_id, led, command.leaving) for led in command.partitions]
    return Decision(as_record(partitions.changes), lambda after: LeadersElected(after.position, answers))


def _hand_over_partition(
    partitions: Partitions, giver: NodeId, led: PartitionLed, leaving: Sequence[int]
) -> ElectionAnswer:
    entry = partitions.find(led.topic_id, led.partition)
    if entry is None:
        return ElectionAnswer(led.topic_id, led.partition, ElectionCode.UNKNOWN_PARTITION)
    topic, info = entry
    heir = next((node for node in heirs(info) if node not in leaving), NO_LEADER)
    # The epoch, too: the broker may have been deposed and elected again since it asked, and leads with good reason.
    if info.leader != giver or info.leader_epoch != led.leader_epoch:
        code = ElectionCode.ELECTION_NOT_NEEDED
    elif heir == NO_LEADER:
        code = ElectionCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    else:
        info = partitions.settle(topic, info, replace(info, leader=heir))
        # A majority's rules may refuse the heir: the leader stays if no majority is live.
        is_done = info.leader != giver
        code = ElectionCode.NONE if is_done else ElectionCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return ElectionAnswer(led.topic_id, led.partition, code, info.leader)


def heirs(info: PartitionInfo) -> tuple[NodeId, ...]:
    """Returns the brokers that may take over from the leader without data loss: in-sync replicas, or live voters, that
    are not being removed."""
    # A replica that is to go would have to hand over once more, at the end of its move.
    return tuple(node for node in info.target if node in info.isr and node != info.leader)
