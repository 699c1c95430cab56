"""The protocol with one rule removed: each loses data, or contradicts itself, in some run, or the walks are too tame.

A mutant of a core is another class; one of the controller, or of the environment, replaces an attribute of what ships
while its runs last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tidelog.broker.controller import decide_partitions, leadership
from tidelog.model.cluster import PartitionInfo
from tidelog.replication.isr.events import (
    AlterPartitionAnswered,
    FetchDue,
    FollowerEffect,
    FollowerFetched,
    FollowerSynced,
    IsrChanged,
    LeaderEffect,
    Outcome,
    Refused,
    Serve,
    Truncate,
)
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.in_sync_set import InSyncSet
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.remote_replica import RemoteReplica
from tidelog.replication.isr.settlement import Answered, Cut, Settlement, SettlementEffect
from tidelog.sim.isr.disk import Disk
from tidelog.sim.isr.world import SHIPPED, Parts

# -- in-sync sets ------------------------------------------------------------------------------------------------------


class WithSet(IsrLeader):
    """A leader with another kind of in-sync set."""

    kind = InSyncSet

    def __init__(self, *arguments: Any) -> None:
        self._made = False
        super().__init__(*arguments)
        self._made = True

    def _assign(self, replicas: tuple[int, ...]) -> None:
        if not self._made:
            self._isr = self.kind(self._isr.committed, self._isr.partition_epoch, self._settings.retry_ms)
        super()._assign(replicas)


class CommittedOnly(InSyncSet):
    @property
    def maximal(self) -> tuple[int, ...]:
        return self.committed


class CommittedNotMaximal(WithSet):
    """Commits what the set in force has, though it has asked for a larger one."""

    kind = CommittedOnly


class Reverting(InSyncSet):
    def answered(self, answer: AlterPartitionAnswered) -> None:
        super().answered(answer)
        if answer.outcome is Outcome.AMBIGUOUS and self._in_flight is None:
            self._wanted = ()


class RevertOnAmbiguous(WithSet):
    """Takes a request that timed out for one that was not applied."""

    kind = Reverting


class Unordered(InSyncSet):
    def adopt(self, isr: Any, partition_epoch: int) -> None:
        self.partition_epoch = min(self.partition_epoch, partition_epoch - 1)
        super().adopt(isr, partition_epoch)


class AnyPartitionEpoch(WithSet):
    """Adopts what an answer says, however old it is."""

    kind = Unordered


class IgnoresPartitionEpoch(IsrLeader):
    """Goes back to metadata that is older than what the controller has answered."""

    def _on_metadata(self, event: IsrChanged) -> Any:
        if event.partition_epoch < self._isr.partition_epoch:
            self._isr.committed = event.isr
        return super()._on_metadata(event)


# -- who joins, and what is committed ----------------------------------------------------------------------------------


class NoEpochStart(IsrLeader):
    """Lets join whoever has reached the high watermark, which may be older than the epoch."""

    def _may_join(self, node: int) -> bool:
        end = self._followers[node].acknowledged(is_fsynced=self._is_fsynced)
        return self._is_eligible(node) and end >= self._high_watermark


class NoHighWatermarkToJoin(IsrLeader):
    """Lets join whoever has reached the start of the epoch."""

    def _may_join(self, node: int) -> bool:
        end = self._followers[node].acknowledged(is_fsynced=self._is_fsynced)
        return self._is_eligible(node) and end >= self.leader_epoch_start_offset


class IgnoresUnheard(IsrLeader):
    """Commits without the members that it has not heard in this epoch."""

    def _advance(self) -> Any:
        followers = self._followers
        self._followers = {node: follower for node, follower in followers.items() if follower.has_reported}
        try:
            return super()._advance()
        finally:
            self._followers = followers


class OldMinIsr(IsrLeader):
    """Goes by the minimum of in-sync replicas that its epoch began with."""

    def _on_metadata(self, event: IsrChanged) -> Any:
        return super()._on_metadata(replace(event, min_isr=self._min_isr))


class MinIsrFirst(IsrLeader):
    """Goes by a new minimum of in-sync replicas before it knows of the set that goes with it."""

    def _on_metadata(self, event: IsrChanged) -> Any:
        self._min_isr = event.min_isr
        return [*self._advance(), *super()._on_metadata(event)]


class NoMinIsr(IsrLeader):
    """Commits with fewer in sync than the topic asks for."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._min_isr = 1


class CommitsUnsynced(IsrLeader):
    """Counts what followers hold in memory, though the topic asks for their disks."""

    def _report(self, report: FollowerFetched | FollowerSynced) -> list[LeaderEffect]:
        self._followers[report.replica].durable_offset = report.fetch_offset
        return super()._report(report)


class DivergingCounts(IsrLeader):
    """Takes over how far a follower is, though its log is another."""

    def fetched(self, fetch: FollowerFetched) -> Any:
        verdict, effects = super().fetched(fetch)
        if not isinstance(verdict, Serve | Refused) and fetch.fetch_offset <= self._log_end_offset:
            effects = self._report(fetch)
        return verdict, effects


class AnyBrokerEpoch(IsrLeader):
    """Counts fetches of processes that are no more."""

    def _verdict(self, report: FollowerFetched | FollowerSynced) -> Any:
        if report.replica in self._followers:
            self._followers[report.replica].broker_epoch = report.broker_epoch
        epochs, self._broker_epochs = self._broker_epochs, {}
        try:
            return super()._verdict(report)
        finally:
            self._broker_epochs = epochs

    def _is_eligible(self, node: int) -> bool:
        return self._followers[node].has_reported


class NeverReset(RemoteReplica):
    def hear(self, report: Any) -> None:
        ends = self.log_end_offset, self.durable_offset
        super().hear(report)
        self.log_end_offset = max(self.log_end_offset, ends[0])
        self.durable_offset = max(self.durable_offset, ends[1])


class RemembersLives(IsrLeader):
    """Keeps what an earlier process of the broker has acknowledged."""

    def _assign(self, replicas: tuple[int, ...]) -> None:
        super()._assign(replicas)
        for follower in self._followers.values():
            follower.__class__ = NeverReset


# -- followers ---------------------------------------------------------------------------------------------------------


class TruncateToHighWatermark(IsrFollower):
    """Cuts down to what it knows to be committed whenever the leader changes, as Kafka did before KIP-101."""

    def step(self, event: Any) -> list[FollowerEffect]:
        is_first = isinstance(event, FetchDue) and not self._is_aligned and self._cutting is None
        if is_first and self._high_watermark < self._log_end_offset:
            return self._cut(Truncate(self._high_watermark))
        return super().step(event)


class OneRoundOnly(IsrFollower):
    """Cuts where the leader says, without a look at its own epochs (KIP-101 without KIP-279)."""

    def _on_diverging(self, epoch: int, end_offset: int) -> list[FollowerEffect]:
        if end_offset >= self._log_end_offset:
            return self._distrust("nothing to cut")
        return self._cut(Truncate(max(end_offset, self._log_start_offset)))


class AnyAnswer(IsrFollower):
    """Uses any answer of this epoch."""

    _since = -1

    def step(self, event: Any) -> list[FollowerEffect]:
        if isinstance(event, FetchDue) and self._since == -1:
            self._since = event.correlation
        return super().step(event)

    def _is_awaited(self, correlation: int) -> bool:
        is_free = self._cutting is None and self._appending is None and not self._is_distrusting
        return correlation >= self._since != -1 and is_free


class AnyAnswerThatFits(AnyAnswer):
    """The same, without the other checks that would notice: what one connection for each leader hides in Kafka."""

    def _on_answer(self, answer: Any) -> list[FollowerEffect]:
        self._is_aligned = False
        return super()._on_answer(answer)

    def _distrust(self, reason: str) -> list[FollowerEffect]:
        return []


# -- disks -------------------------------------------------------------------------------------------------------------


class RetriesSync(Disk):
    """Syncs again after a failure. The system, which has dropped what it could not write, says that all is well."""

    _hole: int | None = None

    def fail_sync(self) -> None:
        self._hole = self.kept if self._hole is None else self._hole

    def sync(self, to: int) -> None:
        self.durable = max(self.durable, to)
        self.kept = self.durable if self._hole is None else self._hole

    def open(self) -> None:
        if self._hole is not None:
            del self.log[self._hole :]
        self._hole = None
        super().open()


class CheckpointCuts(Disk):
    """Opens a log at its checkpoint of the high watermark: what lies behind is not known to be committed."""

    def open(self) -> None:
        del self.log[max(self.high_watermark, self.start) :]
        super().open()


class CutsAtDamage(Disk):
    """Opens a log up to its first damaged batch, as if that were a torn tail."""

    def open(self) -> None:
        if self.faulty:
            self.truncate(min(self.faulty))
        super().open()


# -- settling damage ---------------------------------------------------------------------------------------------------


class AnybodyDenies(Settlement):
    """Takes a denial from any replica, member or not."""

    def _is_binding(self, answer: Answered) -> bool:
        is_other_life = self._members.get(answer.node, answer.broker_epoch) != answer.broker_epoch
        return not is_other_life and answer.leader_epoch == self._leader_epoch


class AnyLifeDenies(Settlement):
    """Takes a denial from a member that lives again, and may have lost what it had."""

    def _is_binding(self, answer: Answered) -> bool:
        return answer.node in self._members and answer.leader_epoch == self._leader_epoch


class AnyEpochDenies(Settlement):
    """Takes a denial from a member that may still acknowledge to an earlier leader."""

    def _is_binding(self, answer: Answered) -> bool:
        return self._members.get(answer.node) == answer.broker_epoch


class SettlesNothing(Settlement):
    """Cuts what is damaged at or above the high watermark, and asks nobody."""

    def _on_answer(self, answer: Answered) -> list[SettlementEffect]:
        return [Cut(answer.offset)] if answer.offset in self._open else []


# -- the controller ----------------------------------------------------------------------------------------------------

Patch = tuple[object, str, Any]


def _disk_only(lost: leadership.Lost, _: object) -> bool:
    return lost.loss is leadership.Loss.DISK


def _forgetting_what_was(lost: leadership.Lost, _: object) -> leadership.Lost:
    return lost


def _in_any_life(image: Any, _: PartitionInfo, member: Any) -> bool:
    return bool(image.is_live(member.node_id))


def _not_for_removals(was: PartitionInfo, now: PartitionInfo) -> PartitionInfo:
    if now == was:
        return was
    is_new_reign = now.leader != was.leader
    return replace(now, leader_epoch=was.leader_epoch + is_new_reign, partition_epoch=was.partition_epoch + 1)


@dataclass(frozen=True)
class Mutant:
    """What is replaced."""

    parts: Parts = SHIPPED
    patches: tuple[Patch, ...] = ()


MUTANTS: Mapping[str, Mutant] = {
    "committed set instead of maximal": Mutant(Parts(leader=CommittedNotMaximal)),
    "revert on an ambiguous answer": Mutant(Parts(leader=RevertOnAmbiguous)),
    "answers of any partition epoch": Mutant(Parts(leader=AnyPartitionEpoch)),
    "metadata of any partition epoch": Mutant(Parts(leader=IgnoresPartitionEpoch)),
    "no epoch start condition": Mutant(Parts(leader=NoEpochStart)),
    "no high watermark condition": Mutant(Parts(leader=NoHighWatermarkToJoin)),
    "members not heard are ignored": Mutant(Parts(leader=IgnoresUnheard)),
    "no min ISR": Mutant(Parts(leader=NoMinIsr)),
    "memory counts as disk": Mutant(Parts(leader=CommitsUnsynced)),
    "a diverging fetch counts": Mutant(Parts(leader=DivergingCounts)),
    "no broker epochs": Mutant(Parts(leader=AnyBrokerEpoch), ((decide_partitions, "_is_eligible", _in_any_life),)),
    "earlier lives remembered": Mutant(Parts(leader=RemembersLives)),
    "truncate to the high watermark": Mutant(Parts(follower=TruncateToHighWatermark)),
    "one round of epochs": Mutant(Parts(follower=OneRoundOnly)),
    "answers to any question": Mutant(Parts(follower=AnyAnswer)),
    "answers to any question, if they fit": Mutant(Parts(follower=AnyAnswerThatFits)),
    "unclean restart not noticed": Mutant(patches=((leadership.Lost, "takes_acknowledged", _disk_only),)),
    "durability as of now, not of the life": Mutant(patches=((leadership.Lost, "of", _forgetting_what_was),)),
    "no new reign when a replica goes": Mutant(patches=((leadership, "_numbered", _not_for_removals),)),
    "a new min ISR before the set": Mutant(Parts(leader=MinIsrFirst)),
    "leaders not told of another min ISR": Mutant(Parts(leader=OldMinIsr)),
    "answers before their metadata": Mutant(Parts(waits_for_metadata=False)),
    "failed fsyncs are repeated": Mutant(Parts(disk=RetriesSync)),
    "logs cut at their first damaged batch": Mutant(Parts(disk=CutsAtDamage)),
    "denials of any replica": Mutant(Parts(settlement=AnybodyDenies)),
    "denials of any life": Mutant(Parts(settlement=AnyLifeDenies)),
    "denials of any epoch": Mutant(Parts(settlement=AnyEpochDenies)),
    "damaged ends are cut unasked": Mutant(Parts(settlement=SettlesNothing)),
    "logs cut at their checkpoint": Mutant(Parts(disk=CheckpointCuts)),
}


@contextmanager
def planted(mutant: Mutant) -> Iterator[Parts]:
    """The parts to run with, while the patches are in force."""
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in mutant.patches]
    for owner, name, other in mutant.patches:
        setattr(owner, name, other)
    try:
        yield mutant.parts
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)
