"""Commands about single partitions (ISRs, leaders, replicas, losses), and their answers."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidelog.controller.commands import BrokerCommand, ClientCommand, CommandAnswer
from tidelog.controller.member_steps import MemberSet
from tidelog.controller.records import GivenUpRange
from tidelog.model.losses import LossStatement
from tidelog.model.wire_numbers import Int64, Natural, NaturalOrNone

ANY_LIFE = -1
"""A broker epoch that matches any: the member stays in the ISR with the epoch that it has there."""


class IsrMember(msgspec.Struct, frozen=True, array_like=True):
    """An ISR member with the broker epoch of the process that is in sync (KIP-903); an earlier process of the broker
    proves nothing about this one."""

    node_id: Natural
    broker_epoch: NaturalOrNone


class PartitionAsked(msgspec.Struct, frozen=True):
    """A partition as its leader knew it when it asked for a change."""

    topic_id: str
    partition: Natural
    leader_epoch: Natural
    partition_epoch: Natural


class IsrAsked(PartitionAsked, frozen=True):
    """The ISR that a leader requests, with the leader epoch and partition epoch that it knew."""

    isr: Sequence[IsrMember]


class AlterPartition(BrokerCommand, frozen=True, tag=True):
    """Command: the leader of partitions requests other ISRs (KIP-497). Answered by `PartitionsAltered`."""

    partitions: Sequence[IsrAsked]


class PartitionNamed(msgspec.Struct, frozen=True, array_like=True):
    """A partition, identified by its topic's id, so that a repeated command cannot affect another topic of the same
    name."""

    topic_id: str
    partition: Int64


class ElectionType(enum.StrEnum):
    """The two kinds of leader election, as in Kafka."""

    PREFERRED = "preferred"
    """Elects the first replica of the list, if it is in sync."""
    UNCLEAN = "unclean"
    """Elects any live replica for a partition without a leader; records may be lost."""


class ElectLeaders(ClientCommand, frozen=True, tag=True):
    """Command: elect leaders. Answered by `LeadersElected`. Without `partitions`, all of the cluster. For an unclean
    election the metadata records the user (`by`), the broker asked (`via`) and the time."""

    election: ElectionType
    partitions: Sequence[PartitionNamed] | None = None
    by: str = ""
    via: NaturalOrNone = -1
    at_ms: Int64 = 0


class PartitionReported(msgspec.Struct, frozen=True, array_like=True):
    """The base class of what a broker reports about one of its partitions."""

    topic_id: str
    partition: Natural


HAND_OVER_LEVEL: Final = 2
"""The feature level from which on controllers understand `HandOver`."""
HANDED_OVER_MAX = 1_000
"""The most partitions that one `HandOver` may name."""


class PartitionLed(PartitionReported, frozen=True, array_like=True):
    """A partition that a broker leads, with the leader epoch."""

    leader_epoch: Natural


class HandOver(BrokerCommand, frozen=True, tag=True):
    """Command: a broker is about to stop, and asks for other leaders of its partitions; it stays live and in sync.
    Answered by `LeadersElected`. The controller fills in `leaving`, the brokers that are about to stop."""

    partitions: Sequence[PartitionLed]
    leaving: Sequence[Int64] = ()


MOVES_MAX = 1_000
"""The most partitions that one `AlterReassignments` may name."""


class NewReplicas(msgspec.Struct, frozen=True):
    """The target replicas of a partition, the preferred leader first. None cancels its reassignment."""

    topic_id: str
    partition: Int64
    replicas: Sequence[Int64] | None


class UnfitReason(enum.Enum):
    """The reason why a replica is unfit although its broker is live."""

    OFFLINE = "offline"
    """The replica's log accepts no writes any more, or cannot be opened: the disk has failed."""
    DAMAGED = "damaged"
    """The replica is to lead, and cannot find out which records at the damaged end of its log were committed."""
    STALLED = "stalled"
    """The replica leads, and its disk completes no writes, while those of its followers do."""


UNFIT_REASON_LEVELS: Final[Mapping[UnfitReason, int]] = {UnfitReason.STALLED: 2}
"""The feature level from which on controllers understand each reason; reasons that are not listed exist since the first
level."""


class UnfitReplica(PartitionLed, frozen=True, array_like=True):
    """An unfit replica of the reporting broker, in this leader epoch."""

    reason: UnfitReason


class ReportUnfitReplicas(BrokerCommand, frozen=True, tag=True):
    """Command: a broker reports its unfit replicas (Kafka: the offline directories of a heartbeat, KIP-112 and 858).
    Answered by `Done`; repeated with each heartbeat while they are unfit."""

    replicas: Sequence[UnfitReplica]


class LostReplica(PartitionReported, frozen=True, array_like=True):
    """A lost replica of the reporting broker. `since` is the metadata position at which the replica was assigned."""

    since: NaturalOrNone


class ReportLostReplicas(BrokerCommand, frozen=True, tag=True):
    """Command: a broker reports replicas with in-sync replication whose logs are gone although the disk remained; their
    logs are empty now. Answered by `Done`; repeated until the metadata has these replicas begin anew."""

    replicas: Sequence[LostReplica]


class MembersAsked(PartitionAsked, frozen=True):
    """The members in force in a partition's log, with the leader epoch and partition epoch that its leader knew."""

    in_force: MemberSet


class AlterMembers(BrokerCommand, frozen=True, tag=True):
    """Command: the leader of Paxos partitions reports the members of their logs. Answered by `MembersAltered`.

    Only an elected leader whose log has no open change of voters may report: then no other members are in force, or can
    be before it changes them itself.
    """

    partitions: Sequence[MembersAsked]


class TermEnd(enum.Enum):
    """The way on for a partition whose leader cannot continue under its proposal number."""

    RENEW = "renew"
    """The same broker needs a greater number: another node has used one, or the number was used up for a change of
    voters."""
    YIELD = "yield"
    """Another broker has to lead: this leader's disk has failed, or no majority answers it."""


class LostTerm(PartitionLed, frozen=True, array_like=True):
    """A partition that the reporting broker leads in this leader epoch by the metadata, but cannot lead any more."""

    end: TermEnd


class ReportPaxosLeader(BrokerCommand, frozen=True, tag=True):
    """Command: a leader reports Paxos partitions that it cannot lead any more under the present epoch. Each gets the
    next leader epoch, under the same broker or the next, if a majority of its members is live. Answered by `Done`."""

    lost: Sequence[LostTerm]


class LostVote(PartitionReported, frozen=True, array_like=True):
    """An engine id of the reporting broker whose vote in this partition is lost."""

    engine_id: Natural


class ReportLostVotes(BrokerCommand, frozen=True, tag=True):
    """Command: a broker reports Paxos replicas that no longer know their promises, since their journals are damaged or
    gone although the disk remained. Each gets another engine id. Answered by `Done`."""

    votes: Sequence[LostVote]


class AcceptLoss(ClientCommand, frozen=True, tag=True):
    """Command: an operator gives up offset ranges of a partition of which no copy is left, as the broker `via` has
    found by asking the replicas. Answered by `Done`; a range that was given up before keeps its record."""

    topic_id: str
    partition: Int64
    ranges: tuple[GivenUpRange, ...]
    """The offset ranges that are given up, in order of offsets."""
    by: str
    via: Natural
    at_ms: Int64


class RegroupPartition(ClientCommand, frozen=True, tag=True):
    """Command: an operator lets a partition without a leader continue with its remaining replicas, as the broker `via`
    has found by asking them. It is refused if the partition epoch is not `partition_epoch` any more. Answered by
    `Done`."""

    topic_id: str
    partition: Int64
    partition_epoch: Int64
    kept: tuple[Int64, ...]
    """The node ids of the brokers whose replicas remain."""
    end: Int64
    source: Int64
    statements: tuple[LossStatement, ...]
    by: str
    via: Natural
    at_ms: Int64
    position: Int64 = 0
    birth: Int64 = 0


class AlterReassignments(ClientCommand, frozen=True, tag=True):
    """Command: begin or cancel reassignments (KIP-455), all or none. Answered by `Done` when they have begun.

    `moves.planned` plans for a whole cluster; one command takes `MOVES_MAX` partitions.
    """

    partitions: Sequence[NewReplicas]
    throttle: Int64 | None = None
    """Bytes per second for all reassignments of the cluster, running ones included; 0 for no limit, None to leave it as
    it is."""


# -- answers -------------------------------------------------------------------------------------------------------


class AlterCode(enum.StrEnum):
    """Kafka's error codes of AlterPartition."""

    NONE = "none"
    UNKNOWN_PARTITION = "unknown partition"
    FENCED_LEADER_EPOCH = "fenced leader epoch"
    INVALID_REQUEST = "invalid request"
    INVALID_UPDATE_VERSION = "invalid update version"
    INELIGIBLE_REPLICA = "ineligible replica"
    NEW_LEADER_ELECTED = "new leader elected"


class AlterOutcome(enum.StrEnum):
    """A leader's conclusion from the answer to `AlterPartition`."""

    APPLIED = "applied"
    NOT_APPLIED = "not applied"
    """The request was not applied and never will be, nor will any earlier request with the same partition epoch."""
    STALE = "stale"
    """The metadata is newer than the leader knew, and the request may have been applied: the leader waits for the
    metadata, and keeps the change pending."""


class IsrAnswer(msgspec.Struct, frozen=True):
    """The state of a partition after an `AlterPartition`; epochs of -1 and no ISR if the partition does not exist."""

    topic_id: str
    partition: Int64
    code: AlterCode
    leader_epoch: NaturalOrNone = -1
    partition_epoch: NaturalOrNone = -1
    isr: Sequence[Natural] = ()

    @property
    def outcome(self) -> AlterOutcome:
        """Returns the leader's conclusion from the answer's code."""
        if self.code is AlterCode.NONE:
            return AlterOutcome.APPLIED
        # Any other refusal may answer the repetition of a request that was applied: a leader that reverted then would
        # commit without a member that the controller takes for in sync.
        return AlterOutcome.NOT_APPLIED if self.code is AlterCode.INELIGIBLE_REPLICA else AlterOutcome.STALE


class PartitionsAltered(CommandAnswer, frozen=True, tag=True):
    """The answer to `AlterPartition`: an answer for each partition of the request, in that order."""

    partitions: list[IsrAnswer]


class MembersAnswer(msgspec.Struct, frozen=True):
    """The epochs of a partition after an `AlterMembers`; -1 if it does not exist. The leader learns the wanted members
    from the metadata."""

    topic_id: str
    partition: Natural
    code: AlterCode
    leader_epoch: NaturalOrNone = -1
    partition_epoch: NaturalOrNone = -1


class MembersAltered(CommandAnswer, frozen=True, tag=True):
    """The answer to `AlterMembers`: an answer for each partition of the report, in that order."""

    partitions: list[MembersAnswer]


class ElectionCode(enum.StrEnum):
    """Kafka's error codes of ElectLeaders."""

    NONE = "none"
    ELECTION_NOT_NEEDED = "election not needed"
    PREFERRED_LEADER_NOT_AVAILABLE = "preferred leader not available"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = "eligible leaders not available"
    UNKNOWN_PARTITION = "unknown partition"


class ElectionAnswer(msgspec.Struct, frozen=True):
    topic_id: str
    partition: Int64
    code: ElectionCode
    leader: NaturalOrNone = -1


class LeadersElected(CommandAnswer, frozen=True, tag=True):
    """The answer to `ElectLeaders` and `HandOver`: an answer for each partition of the request; for a request about the
    whole cluster, the partitions whose leader has changed."""

    partitions: list[ElectionAnswer]
