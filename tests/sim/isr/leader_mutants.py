"""Leaders with one rule removed: of whom they wait for, whom they let join, and whom they believe."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tidelog.replication.isr.events import (
    AlterPartitionAnswered,
    FollowerFetched,
    FollowerReport,
    IsrChanged,
    LeaderEffect,
    Outcome,
    Refused,
    Serve,
)
from tidelog.replication.isr.in_sync_set import InSyncSet
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.remote_replica import RemoteReplica

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
            self._proposed = ()


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


class DurabilityBeforeTheSet(IsrLeader):
    """Counts members of the set of before by the durability that is in force now."""

    def _on_metadata(self, event: IsrChanged) -> Any:
        if event.partition_epoch < self._isr.partition_epoch:
            return []
        self._is_fsynced = event.is_fsynced
        return [*self._advance(), *super()._on_metadata(event)]


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


class DeletesAlone(IsrLeader):
    """Calls deleted for good what it has deleted itself."""

    def _raise_low_watermark(self) -> None:
        self._low_watermark = self._log_start_offset


class DeletesWithTooFew(IsrLeader):
    """Calls records deleted for good though another may be elected than a member."""

    def _raise_low_watermark(self) -> None:
        is_enough, self._is_enough = self._is_enough, lambda members: True
        super()._raise_low_watermark()
        self._is_enough = is_enough

    def _advance(self) -> Any:
        self._raise_low_watermark()
        return super()._advance()


class NoLogStartToJoin(IsrLeader):
    """Lets join whoever has what was deleted."""

    def _may_join(self, node: int) -> bool:
        start, self._log_start_offset = self._log_start_offset, 0
        try:
            return super()._may_join(node)
        finally:
            self._log_start_offset = start


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

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        (self._first,) = (part for part in arguments if isinstance(part, IsrChanged))

    def _on_metadata(self, event: IsrChanged) -> Any:
        return super()._on_metadata(replace(event, min_isr=self._first.min_isr))


class MinIsrFirst(IsrLeader):
    """Goes by a new minimum of in-sync replicas before it knows of the set that goes with it."""

    def _on_metadata(self, event: IsrChanged) -> Any:
        self._is_enough = event.is_enough
        return [*self._advance(), *super()._on_metadata(event)]


class NoMinIsr(IsrLeader):
    """Commits with fewer in sync than the topic asks for."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._is_enough = lambda members: len(members) > 0


class CommitsUnflushed(IsrLeader):
    """Counts what followers hold in memory, though the topic asks for their disks."""

    def _report(self, report: FollowerReport) -> list[LeaderEffect]:
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

    def _verdict(self, report: FollowerReport) -> Any:
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
