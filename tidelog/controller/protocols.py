"""The controller's rules that differ between commit protocols: one table, keyed by protocol. Pure.

Everything else in this package holds for any protocol. A third protocol gets a module beside `isr_leadership` and
`quorum_leadership`, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tidelog.config.schema import TopicConfig
from tidelog.controller.broker_state import Brokers, Lost
from tidelog.controller.isr_leadership import isr_called_off, isr_new_partition, isr_settled
from tidelog.controller.quorum_leadership import quorum_called_off, quorum_new_partition, quorum_settled
from tidelog.model.cluster import ISR, PAXOS, ClusterImage, PartitionInfo, Topic
from tidelog.model.ids import NodeId, TopicPartition


@dataclass(frozen=True, slots=True)
class ProtocolRules:
    """The rules of one commit protocol: pure functions of a partition's metadata entry, and flags."""

    new_partition: Callable[[ClusterImage, int, tuple[NodeId, ...]], PartitionInfo]
    """A function that returns the entry of a new partition with these replicas; it has no leader if too few of them are
    live."""
    settled: Callable[[PartitionInfo, PartitionInfo, TopicConfig, Brokers, Lost | None], PartitionInfo]
    """A function that returns the entry that follows the first one if the second is requested: leader, in-sync or
    voting replicas, state of the reassignment, and epochs. It takes into account the data that a broker may have lost.
    """
    called_off: Callable[[PartitionInfo, TopicPartition], PartitionInfo]
    """A function that returns the entry to settle when a reassignment is cancelled. Raises `InvalidRequest` if that
    would lose records."""
    live_needed: Callable[[PartitionInfo], int]
    """A function that returns the number of electable replicas that must be live before one of them is elected."""
    sources: Callable[[PartitionInfo], tuple[NodeId, ...]]
    """A function that returns the brokers from which a new replica copies."""
    leader_alters_isr: bool
    """True if leaders request other in-sync sets (`AlterPartition`)."""
    leader_reports_members: bool
    """True if replicas vote, and leaders report the voters (`AlterMembers`) and the end of their epoch
    (`ReportPaxosLeader`)."""
    has_unclean_elections: bool
    """True if a replica that lacks records may be elected, and the others then follow it. False for commit by majority,
    where a minority would contradict values that the others have chosen."""


PROTOCOL_RULES: Final[Mapping[str, ProtocolRules]] = MappingProxyType(
    {
        ISR: ProtocolRules(
            new_partition=isr_new_partition,
            settled=isr_settled,
            called_off=isr_called_off,
            # Each member of ISR and ELR holds everything committed, so one alone can lead without asking anybody.
            live_needed=lambda info: 1,
            # A follower's tail may still be truncated, so only the leader's log is worth copying.
            sources=lambda info: (info.leader,),
            leader_alters_isr=True,
            leader_reports_members=False,
            has_unclean_elections=True,
        ),
        PAXOS: ProtocolRules(
            new_partition=quorum_new_partition,
            settled=quorum_settled,
            called_off=quorum_called_off,
            # A leader reads promises from a majority first; with fewer answers it could overlook a chosen value.
            live_needed=lambda info: info.majority,
            # A value that is known to be chosen never changes, so any replica that has it may give it.
            sources=lambda info: info.replicas,
            leader_alters_isr=False,
            leader_reports_members=True,
            has_unclean_elections=False,
        ),
    }
)


def rules_of(topic: Topic) -> ProtocolRules:
    """Returns the rules of the topic's commit protocol."""
    return PROTOCOL_RULES[topic.commit_protocol]
