"""Commands about single partitions: other ISRs, other leaders, other replicas. See `commands`."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidelog.controller.commands import ClientCommand, Command, CommandAnswer
from tidelog.controller.member_steps import MemberSet
from tidelog.controller.records import GivenUpRange
from tidelog.model.losses import LossStatement
from tidelog.model.wire_numbers import Int64, Natural, NaturalOrNone

ANY_LIFE = -1
"""For a broker epoch: whichever the member is in the ISR with already."""


class IsrMember(msgspec.Struct, frozen=True, array_like=True):
    """A broker in the life in which it is in sync (KIP-903): what an earlier life had says nothing of this one."""

    node_id: Natural
    broker_epoch: NaturalOrNone


class IsrAsked(msgspec.Struct, frozen=True):
    """The ISR that a leader wants, and what it knew of the partition when it did."""

    topic_id: str
    partition: Natural
    leader_epoch: Natural
    partition_epoch: Natural
    isr: Sequence[IsrMember]


class AlterPartition(Command, frozen=True, tag=True):
    """The leader of partitions asks for other ISRs (KIP-497). Answered by `PartitionsAltered`."""

    node_id: Natural
    broker_epoch: NaturalOrNone
    partitions: Sequence[IsrAsked]


class PartitionNamed(msgspec.Struct, frozen=True, array_like=True):
    """A partition by its topic's id, so that a repetition cannot hit another topic of the same name."""

    topic_id: str
    partition: Int64


class ElectionType(enum.StrEnum):
    """The two kinds of leader election, as in Kafka."""

    PREFERRED = "preferred"
    """The first of the replicas leads if it is in sync."""
    UNCLEAN = "unclean"
    """Any live replica leads where nobody does: records may be lost."""


class ElectLeaders(ClientCommand, frozen=True, tag=True):
    """Answered by `LeadersElected`. Without `partitions`, all of the cluster. Who asks, through which broker and when,
    is kept of an unclean election."""

    election: ElectionType
    partitions: Sequence[PartitionNamed] | None = None
    by: str = ""
    via: NaturalOrNone = -1
    at_ms: Int64 = 0


HAND_OVER_LEVEL: Final = 2
"""Since which feature level a controller knows what it is to hand over."""
HANDED_OVER_MAX = 1_000
"""Partitions that one command may give other leaders."""


class PartitionLed(msgspec.Struct, frozen=True, array_like=True):
    """A partition that a broker leads in this epoch."""

    topic_id: str
    partition: Natural
    leader_epoch: Natural


class HandOver(Command, frozen=True, tag=True):
    """A broker is about to stop, and asks for other leaders of what it leads; it stays live, and in sync. Answered by
    `LeadersElected`. The controller adds who else is about to stop."""

    node_id: Natural
    broker_epoch: NaturalOrNone
    partitions: Sequence[PartitionLed]
    leaving: Sequence[Int64] = ()


MOVES_MAX = 1_000
"""Partitions that one command may move."""


class NewReplicas(msgspec.Struct, frozen=True):
    """The replicas that a partition shall have, the preferred leader first. None calls off the move under way."""

    topic_id: str
    partition: Int64
    replicas: Sequence[Int64] | None


class UnfitReason(enum.Enum):
    """The reason why a replica is unfit though its broker lives."""

    OFFLINE = "offline"
    """The replica's log takes nothing any more, or cannot be opened: the disk has failed."""
    DAMAGED = "damaged"
    """It is to lead, and cannot find out what of the damaged end of its log was committed."""
    STALLED = "stalled"
    """It leads, and its disk takes nothing, while those of its followers do."""


UNFIT_REASON_LEVELS: Final[Mapping[UnfitReason, int]] = {UnfitReason.STALLED: 2}
"""Since which feature level a controller knows a reason; those that are not here, since the first."""


class UnfitReplica(msgspec.Struct, frozen=True, array_like=True):
    """A replica of the reporting broker, in this leader epoch."""

    topic_id: str
    partition: Natural
    leader_epoch: Natural
    reason: UnfitReason


class ReportUnfitReplicas(Command, frozen=True, tag=True):
    """A broker's replicas that should not be counted on (Kafka: the offline directories of a heartbeat, KIP-112 and
    858). Answered by `Done`; said again with each heartbeat for as long as it is so."""

    node_id: Natural
    broker_epoch: NaturalOrNone
    replicas: Sequence[UnfitReplica]


class LostReplica(msgspec.Struct, frozen=True, array_like=True):
    """Names a replica of the reporting broker, which began it at the position `since`."""

    topic_id: str
    partition: Natural
    since: NaturalOrNone


class ReportLostReplicas(Command, frozen=True, tag=True):
    """Replicas of the reporting broker that copy their leader, and whose logs are gone though the disk is there: what
    stands in their place is empty. Answered by `Done`; said again until the metadata has these replicas begin anew."""

    node_id: Natural
    broker_epoch: NaturalOrNone
    replicas: Sequence[LostReplica]


class MembersAsked(msgspec.Struct, frozen=True):
    """The members in force in a partition's log, and what its leader knew of the partition when it said so."""

    topic_id: str
    partition: Natural
    leader_epoch: Natural
    partition_epoch: Natural
    in_force: MemberSet


class AlterMembers(Command, frozen=True, tag=True):
    """The leader of partitions that commit by majority tells who votes in their logs. Answered by `MembersAltered`.

    Only an elected leader whose log has no change of voters open may say so: then nothing else is in force, or can be
    before it changes them itself.
    """

    node_id: Natural
    broker_epoch: NaturalOrNone
    partitions: Sequence[MembersAsked]


class TermEnd(enum.Enum):
    """The need of a partition whose leader cannot go on under its number."""

    RENEW = "renew"
    """A greater number: it was overtaken by one, or has used its own up for a change of voters."""
    YIELD = "yield"
    """Another leader: this one's disk has failed, or it finds no majority that answers."""


class LostTerm(msgspec.Struct, frozen=True, array_like=True):
    """A partition that the reporting broker leads in this epoch, by the metadata."""

    topic_id: str
    partition: Natural
    leader_epoch: Natural
    end: TermEnd


class ReportPaxosLeader(Command, frozen=True, tag=True):
    """Terms that are over. Each gets the next leader epoch, if a majority of its members is live: of the same broker
    or of the next. Answered by `Done`."""

    node_id: Natural
    broker_epoch: NaturalOrNone
    lost: Sequence[LostTerm]


class LostVote(msgspec.Struct, frozen=True, array_like=True):
    """An engine id of the reporting broker, which has lost its vote in this partition."""

    topic_id: str
    partition: Natural
    engine_id: Natural


class ReportLostVotes(Command, frozen=True, tag=True):
    """Replicas that are to vote, or did, and no longer know what they have promised: their journals are damaged, or
    gone, though the disk is there. Each is wanted under another engine id. Answered by `Done`."""

    node_id: Natural
    broker_epoch: NaturalOrNone
    votes: Sequence[LostVote]


class AcceptLoss(ClientCommand, frozen=True, tag=True):
    """An operator gives up ranges of a partition of which no copy is left, as the broker `via` has found by asking the
    replicas. Answered by `Done`; what was given up before keeps its record."""

    topic_id: str
    partition: Int64
    ranges: tuple[GivenUpRange, ...]
    """In order of offsets."""
    by: str
    via: Natural
    at_ms: Int64


class RegroupPartition(ClientCommand, frozen=True, tag=True):
    """An operator has a partition go on from what is left of it, as the broker `via` has found by asking the replicas:
    it led nobody, and what it knew at `partition_epoch` is still so. Answered by `Done`."""

    topic_id: str
    partition: Int64
    partition_epoch: Int64
    kept: tuple[Int64, ...]
    """The brokers whose replicas are what is left."""
    end: Int64
    source: Int64
    statements: tuple[LossStatement, ...]
    by: str
    via: Natural
    at_ms: Int64
    position: Int64 = 0
    birth: Int64 = 0


class AlterReassignments(ClientCommand, frozen=True, tag=True):
    """Begins to move replicas, or calls it off (KIP-455). All of it is done, or nothing. Answered by `Done`: begun.

    `moves.planned` makes plans for a whole cluster; `MOVES_MAX` partitions go into one command.
    """

    partitions: Sequence[NewReplicas]
    throttle: Int64 | None = None
    """Bytes per second for all moves that are under way, those that were begun before included; 0: as fast as they can;
    None: as it was."""


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
    """The conclusion that a leader may draw from an answer."""

    APPLIED = "applied"
    NOT_APPLIED = "not applied"
    """And it never will be: whatever was sent before with the same partition epoch has lost, too."""
    STALE = "stale"
    """The metadata is ahead of the leader, and may hold what it asked for: it waits for that, and reverts nothing."""


class IsrAnswer(msgspec.Struct, frozen=True):
    """The partition as it is now; -1 and nothing if there is no such one."""

    topic_id: str
    partition: Int64
    code: AlterCode
    leader_epoch: NaturalOrNone = -1
    partition_epoch: NaturalOrNone = -1
    isr: Sequence[Natural] = ()

    @property
    def outcome(self) -> AlterOutcome:
        """Returns what the code means for the leader."""
        if self.code is AlterCode.NONE:
            return AlterOutcome.APPLIED
        # Any other refusal may answer the repetition of a request that was applied: a leader that reverted then would
        # commit without a member that the controller takes for in sync.
        return AlterOutcome.NOT_APPLIED if self.code is AlterCode.INELIGIBLE_REPLICA else AlterOutcome.STALE


class PartitionsAltered(CommandAnswer, frozen=True, tag=True):
    """Answers `AlterPartition`: one for each partition that was asked for, in that order."""

    partitions: list[IsrAnswer]


class MembersAnswer(msgspec.Struct, frozen=True):
    """The partition's epochs now; -1 if there is no such one. Who is wanted, the metadata says."""

    topic_id: str
    partition: Natural
    code: AlterCode
    leader_epoch: NaturalOrNone = -1
    partition_epoch: NaturalOrNone = -1


class MembersAltered(CommandAnswer, frozen=True, tag=True):
    """Answers `AlterMembers`: one for each partition that was told of, in that order."""

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
    """Answers `ElectLeaders` and `HandOver`: one for each partition that was asked for; of the whole cluster, those
    that have another leader now."""

    partitions: list[ElectionAnswer]
