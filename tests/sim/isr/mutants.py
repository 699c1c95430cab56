"""The protocol with one rule removed. Each loses data, or contradicts itself, in some walk."""

from __future__ import annotations

from typing import Any

from tests.sim.isr.controller import Controller
from tests.sim.isr.world import Rules
from tidelog.replication.isr.events import (
    AlterPartitionAnswered,
    FetchDue,
    FollowerEffect,
    FollowerFetched,
    FollowerSynced,
    IsrChanged,
    LeaderChanged,
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
        self._followers[report.replica].broker_epoch = report.broker_epoch
        epochs, self._broker_epochs = self._broker_epochs, {}
        try:
            return super()._verdict(report)
        finally:
            self._broker_epochs = epochs

    def _is_eligible(self, node: int) -> bool:
        return self._followers[node].has_reported


class AnyBrokerEpochAdmitted(Controller):
    checks_broker_epochs = False


class UncleanUnnoticed(Controller):
    """Keeps a replica in the set that may have lost what it held in memory."""

    detects_unclean = False


class TruncateToHighWatermark(IsrFollower):
    """Cuts down to what it knows to be committed whenever the leader changes, as Kafka did before KIP-101."""

    def step(self, event: Any) -> list[FollowerEffect]:
        is_first = type(event).__name__ == "FetchDue" and not self._is_aligned and self._cutting is None
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

    _since = 0

    def step(self, event: Any) -> list[FollowerEffect]:
        if isinstance(event, LeaderChanged):
            self._since = -1
        elif isinstance(event, FetchDue) and self._since == -1:
            self._since = event.correlation
        return super().step(event)

    def _is_awaited(self, correlation: int) -> bool:
        return correlation >= self._since != -1 and self._cutting is None and not self._is_distrusting


class AnyAnswerThatFits(AnyAnswer):
    """The same, without the other checks that would notice: this is what one connection per leader hides in Kafka."""

    def _on_answer(self, answer: Any) -> list[FollowerEffect]:
        self._is_aligned = False
        return super()._on_answer(answer)

    def _distrust(self, reason: str) -> list[FollowerEffect]:
        return []


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


class IgnoresPartitionEpoch(IsrLeader):
    """Goes back to metadata that is older than what the controller has answered."""

    def _on_metadata(self, event: IsrChanged) -> Any:
        if event.partition_epoch < self._isr.partition_epoch:
            self._isr.committed = event.isr
        return super()._on_metadata(event)


MUTANTS = {
    "committed set instead of maximal": Rules(leader=CommittedNotMaximal),
    "revert on an ambiguous answer": Rules(leader=RevertOnAmbiguous),
    "answers of any partition epoch": Rules(leader=AnyPartitionEpoch),
    "metadata of any partition epoch": Rules(leader=IgnoresPartitionEpoch),
    "no epoch start condition": Rules(leader=NoEpochStart),
    "no high watermark condition": Rules(leader=NoHighWatermarkToJoin),
    "members not heard are ignored": Rules(leader=IgnoresUnheard),
    "no min ISR": Rules(leader=NoMinIsr),
    "memory counts as disk": Rules(leader=CommitsUnsynced),
    "a diverging fetch counts": Rules(leader=DivergingCounts),
    "no broker epochs": Rules(leader=AnyBrokerEpoch, controller=AnyBrokerEpochAdmitted),
    "earlier lives remembered": Rules(leader=RemembersLives),
    "unclean restart not noticed": Rules(controller=UncleanUnnoticed),
    "truncate to the high watermark": Rules(follower=TruncateToHighWatermark),
    "one round of epochs": Rules(follower=OneRoundOnly),
    "answers to any question": Rules(follower=AnyAnswer),
    "answers to any question, if they fit": Rules(follower=AnyAnswerThatFits),
}

HINTS = {
    "earlier lives remembered": 4_500,
    "answers of any partition epoch": 900,
    "answers to any question, if they fit": 2_000,
}
"""Where to begin to look for those that are rarely caught."""
