"""The leader of a primary-backup partition: what is committed, and who has to hold it.

The leader takes all writes and followers fetch them. A batch is committed when all of the in-sync set have acknowledged
it; f + 1 members outlive f failures. The rules, and what each is for:

- The **high watermark** is the least acknowledged end over the maximal in-sync set (`in_sync_set.py`) and over
  followers about to join; it moves only forward, and only while the committed set has the members that the topic asks
  for, in as many racks.
- A follower **joins** when it has acknowledged everything up to the high watermark *and* up to where this epoch began
  (LESO): a new leader's high watermark may be older than what was committed before it, and LESO is not. It must have
  been heard in this epoch, and by the broker epoch that the metadata knows, or an earlier life's log would be counted.
  And it must not lag, or a silent one would come back as soon as it was put out: below the least number of members
  nothing is committed, so it has all that is. What is damaged in its log must be repaired first, as far as the leader
  has it whole: from the moment it joins, the leader's disk may be the one that is lost. A member stays, for its row
  says what it needs, and others may have that; and what the leader has lost, too, no waiting brings back.
- The **low watermark** is the least log start over the maximal in-sync set, under the same condition. A deletion is
  acknowledged when it has passed, and a follower that joins begins no earlier than the leader: so whoever leads next
  has deleted the same.
- A member **leaves** when it has been behind for `lag_ms_max`. It leaves much earlier if it has *stalled* (`stall.py`):
  it acknowledges nothing, while another follower that is a member does, and the rest is still the least number of
  members and of racks. Where all are silent, or there is no other, it may be the leader that is cut off. Who has
  stalled comes back after a probation, and until then the high watermark does not wait for it.
- The leader itself **has stalled** if its own disk takes nothing while followers keep up: enough of them to go on
  without it. It cannot leave the set that it leads, so another one had better lead.
- A fetch is answered with data only if the follower's tail lies in this log (`lineage.py`); else it counts for nothing
  and is told where the two part. All logs are made equal to the leader's, by epochs, never by high watermarks.

One replica is the special case of a set of one. KIP-101, 279, 320, 497, 841, 903, 966.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import overload

from tidelog.replication.isr.events import (
    AlterPartition,
    AlterPartitionAnswered,
    Diverging,
    FetchVerdict,
    FollowerFetched,
    FollowerFlushed,
    IsrChanged,
    IsrSettings,
    LeaderEffect,
    LeaderEvent,
    LogState,
    OutOfRange,
    RecordsDeleted,
    Refused,
    Serve,
    Tick,
)
from tidelog.replication.isr.in_sync_set import InSyncSet
from tidelog.replication.isr.lineage import Lineage
from tidelog.replication.isr.log_events import (
    AdvanceHighWatermark,
    Append,
    Appended,
    AppendRefused,
    Effect,
    Event,
    Flushed,
    Propose,
)
from tidelog.replication.isr.remote_replica import RemoteReplica
from tidelog.replication.isr.stall import Stall


class IsrLeader:
    """The leader of one partition in one leader epoch.

    Invariant: high_watermark <= acknowledged end of every member of the maximal in-sync set that has reported in this
    epoch and was a member when it advanced; log_end_offset <= next_offset.
    """

    def __init__(
        self,
        node_id: int,
        leader_epoch: int,
        log: LogState,
        high_watermark: int,
        partition: IsrChanged,
        settings: IsrSettings,
        now_ms: int,
    ) -> None:
        """`high_watermark` is what this replica knew before; `partition` as the metadata has it that made it leader.

        A member of the set has acknowledged all below it. One that is elected unclean may not have: then it calls no
        more committed than it keeps.
        """
        assert node_id in partition.replicas and high_watermark <= log.log_end_offset
        self.leader_epoch = leader_epoch
        self.leader_epoch_start_offset = log.log_end_offset
        """The offset at which this epoch's batches begin (the leader epoch's start offset)."""
        self._node_id = node_id
        self._log_start_offset = log.log_start_offset
        self._durable_offset = log.durable_offset
        self._log_end_offset = self._next_offset = log.log_end_offset
        self._lineage = Lineage(log.lineage)
        self._lineage.begin(leader_epoch, log.log_end_offset)
        kept = log.durable_offset if partition.is_fsynced else log.log_end_offset
        self._high_watermark = max(min(high_watermark, kept), log.log_start_offset)
        self._low_watermark = 0
        self._settings = settings
        self._is_fsynced = partition.is_fsynced
        self._is_enough = partition.is_enough
        self._now_ms = now_ms
        self._isr = InSyncSet(partition.isr, partition.partition_epoch, settings.retry_ms)
        self._broker_epochs: Mapping[int, int] = partition.broker_epochs
        self._followers: dict[int, RemoteReplica] = {}
        self._stalls: dict[int, Stall] = {}
        """The stalls of each follower. They outlive what is known of its log, or nobody would be on probation."""
        self._own_stall = self._new_stall()
        self._is_at_rest = False
        self._assign(partition.replicas)
        self._advance()

    # -- what it knows -----------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def low_watermark(self) -> int:
        """Returns where whoever may lead after this leader begins, or before; 0 until all members were heard."""
        return self._low_watermark

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The committed set, as the controller was last heard to have it."""
        return self._isr.committed

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Everybody who may be in the controller's set."""
        return self._isr.maximal

    @property
    def partition_epoch(self) -> int:
        """Returns the partition epoch of the committed in-sync set."""
        return self._isr.partition_epoch

    @property
    def follower_ends(self) -> dict[int, int]:
        """How far the log of each other replica goes, as far as it was heard in this epoch; 0 if it was not."""
        return {node: max(follower.log_end_offset, 0) for node, follower in self._followers.items()}

    @property
    def is_at_rest(self) -> bool:
        """True from a tick that found all in sync, and nothing that anybody waits for, until something else happens:
        until then, ticks say nothing new."""
        return self._is_at_rest

    @property
    def has_stalled(self) -> bool:
        """True if commits wait for this leader's own disk alone, and its followers could go on without it."""
        if not self._own_stall.is_stalled:
            return False
        followers = [node for node in self._isr.committed if node in self._stalls]
        return self._is_enough([node for node in followers if self._stalls[node].keeps_up])

    @property
    def is_below_min_isr(self) -> bool:
        """True if too few are in sync, or in too few racks: nothing is committed now; `acks=all` is to be refused."""
        return not self._is_enough(self._isr.committed)

    # -- events ------------------------------------------------------------------------------------------------------

    @overload
    def step(self, event: Event) -> list[Effect]: ...

    @overload
    def step(self, event: LeaderEvent) -> list[LeaderEffect]: ...

    def step(self, event: Event | LeaderEvent) -> list[Effect] | list[LeaderEffect]:
        """Takes an event of clients, the local log, the metadata or the clock; returns the effects, in order. Fetches
        come to `fetched` instead."""
        self._is_at_rest = False
        match event:
            case Propose() | Appended() | AppendRefused() | Flushed():
                return self._on_log(event)
            case FollowerFlushed():
                return self._report(event) if self._verdict(event) == Serve(event.fetch_offset) else []
            case AlterPartitionAnswered():
                self._now_ms = max(self._now_ms, event.now_ms)
                self._isr.answered(event)
                return [*self._advance(), *self._expand()]
            case IsrChanged():
                return self._on_metadata(event)
            case RecordsDeleted(log_start_offset):
                assert log_start_offset <= self._high_watermark
                self._log_start_offset = max(self._log_start_offset, log_start_offset)
                self._lineage.delete_records(log_start_offset)
                self._raise_low_watermark()
                return []
            case Tick(now_ms):
                return self._on_tick(now_ms)

    def _on_log(self, event: Event) -> list[Effect]:
        match event:
            case Propose(offsets):
                base = self._next_offset
                self._next_offset = base + offsets
                return [Append(base, self.leader_epoch)]
            case AppendRefused(base):
                assert self._log_end_offset <= base <= self._next_offset
                self._next_offset = base
                return []
            case Appended(end):
                assert end <= self._next_offset
                self._log_end_offset = max(self._log_end_offset, end)
            case Flushed(end):
                assert end <= self._log_end_offset
                self._durable_offset = max(self._durable_offset, end)
        return self._advance()

    def _on_metadata(self, event: IsrChanged) -> list[LeaderEffect]:
        if event.partition_epoch < self._isr.partition_epoch:
            return []
        self._broker_epochs, self._is_enough = event.broker_epochs, event.is_enough
        self._is_fsynced = event.is_fsynced
        self._assign(event.replicas)
        before = self._isr.committed
        self._isr.adopt(event.isr, event.partition_epoch)
        self._forget(node for node in before if node not in self._isr.committed)
        return [*self._advance(), *self._expand()]

    def _forget(self, nodes: Iterable[int]) -> None:
        """The controller has put them out: perhaps their disks have failed. They count when they are heard again."""
        for node in nodes:
            if node in self._followers:
                self._followers[node] = RemoteReplica(self._log_end_offset, self._now_ms, is_member=False)

    def _assign(self, replicas: tuple[int, ...]) -> None:
        known, committed = self._followers, self._isr.committed
        self._followers = {
            node: known.get(node) or RemoteReplica(self._log_end_offset, self._now_ms, is_member=node in committed)
            for node in replicas
            if node != self._node_id
        }
        self._stalls = {node: self._stalls.get(node) or self._new_stall() for node in self._followers}

    def _new_stall(self) -> Stall:
        return Stall(self._settings.stall_ms_max, self._settings.tick_ms, self._now_ms)

    # -- followers ---------------------------------------------------------------------------------------------------

    def fetched(self, fetch: FollowerFetched) -> tuple[FetchVerdict, list[LeaderEffect]]:
        """Takes a follower's fetch; returns the verdict, to be answered once the effects are carried out."""
        self._is_at_rest = False
        verdict = self._verdict(fetch)
        return verdict, self._report(fetch) if isinstance(verdict, Serve) else []

    def _verdict(self, report: FollowerFetched | FollowerFlushed) -> FetchVerdict:
        follower = self._followers.get(report.replica)
        if follower is None:
            return Refused("this broker holds no replica of the partition")
        if report.broker_epoch < max(follower.broker_epoch, self._broker_epochs.get(report.replica, 0)):
            return Refused("a process of this broker has registered since")
        out_of_range = OutOfRange(self._log_start_offset, self._log_end_offset)
        if report.last_fetched_epoch is None:
            is_within = self._log_start_offset <= report.fetch_offset <= self._log_end_offset
            return Serve(report.fetch_offset) if is_within else out_of_range
        if report.fetch_offset <= self._log_start_offset:  # its tail cannot be compared, nor is any of it needed
            return out_of_range
        common = self._lineage.end_of(report.last_fetched_epoch, self._log_end_offset)
        if common is None:
            return Refused("its log is of a later epoch")
        if common.epoch < report.last_fetched_epoch or common.offset < report.fetch_offset:
            return Diverging(common.epoch, common.offset)
        return Serve(report.fetch_offset)

    def _report(self, report: FollowerFetched | FollowerFlushed) -> list[LeaderEffect]:
        self._now_ms = max(self._now_ms, report.now_ms)
        follower = self._followers[report.replica]
        follower.hear(report)
        follower.follow(self._log_end_offset, self._now_ms, is_fsynced=self._is_fsynced)
        expansion = self._expand()
        return [*self._advance(), *expansion]

    # -- the in-sync set ---------------------------------------------------------------------------------------------

    def _expand(self) -> list[AlterPartition]:
        if not self._isr.may_ask(self._now_ms):
            return []
        committed = self._isr.committed
        joining = tuple(node for node in self._followers if node not in committed and self._may_join(node))
        return [self._isr.ask(committed + joining, self._broker_epochs)] if joining else []

    def _may_join(self, node: int) -> bool:
        follower = self._followers[node]
        needed = max(self._high_watermark, self.leader_epoch_start_offset)
        has_all = follower.acknowledged(is_fsynced=self._is_fsynced) >= needed
        is_whole = has_all and follower.log_start_offset >= self._log_start_offset and not follower.awaits_repair
        is_steady = not self._is_lagging(node) and not self._stalls[node].is_on_probation
        return self._is_eligible(node) and is_whole and is_steady

    def _is_eligible(self, node: int) -> bool:
        """Heard in this epoch, by the process that the controller would admit."""
        follower = self._followers[node]
        return follower.has_reported and follower.broker_epoch == self._broker_epochs.get(node)

    def _on_tick(self, now_ms: int) -> list[LeaderEffect]:
        self._now_ms = max(self._now_ms, now_ms)
        self._observe_stalls()
        for node in self._isr.committed:
            if node in self._followers:
                self._followers[node].observe(self._log_end_offset, self._now_ms, is_fsynced=self._is_fsynced)
        if (again := self._isr.retry(self._now_ms)) is not None:
            return [again]
        effects: list[LeaderEffect] = [*self._advance()]
        if self._isr.may_ask(self._now_ms):
            kept = self._without_stalled(tuple(node for node in self._isr.committed if not self._is_lagging(node)))
            if kept != self._isr.committed:
                return [*effects, self._isr.ask(kept, self._broker_epochs)]
        effects += self._expand()
        self._is_at_rest = not effects and self._has_nothing_to_wait_for()
        return effects

    def _has_nothing_to_wait_for(self) -> bool:
        """Returns whether all replicas are members and have all that there is, all of it is committed, and no member is
        on probation."""
        end = self._log_end_offset
        own = self._durable_offset if self._is_fsynced else end
        if self._isr.is_pending or not own == self._next_offset == self._high_watermark == end:
            return False
        return all(
            node in self._isr.committed
            and follower.acknowledged(is_fsynced=self._is_fsynced) == end
            and not self._stalls[node].is_on_probation
            for node, follower in self._followers.items()
        )

    def _observe_stalls(self) -> None:
        own = self._durable_offset if self._is_fsynced else self._log_end_offset
        self._own_stall.observe(own, self._log_end_offset, self._now_ms)
        for node, stall in self._stalls.items():
            acknowledged = self._followers[node].acknowledged(is_fsynced=self._is_fsynced)
            stall.observe(acknowledged, self._log_end_offset, self._now_ms)

    def _without_stalled(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the members less those that have stalled, if a follower bears witness and enough stay."""
        stalled = [node for node in members if node in self._stalls and self._stalls[node].is_stalled]
        has_witness = any(node in self._stalls and self._stalls[node].keeps_up for node in members)
        kept = tuple(node for node in members if node not in stalled)
        if not stalled or not has_witness or not self._is_enough(kept):
            return members
        for node in stalled:
            self._stalls[node].put_out()
        return kept

    def _is_lagging(self, node: int) -> bool:
        if node == self._node_id:
            return False
        lag_ms_max = self._settings.lag_ms_max
        return self._followers[node].is_lagging(
            self._log_end_offset, self._now_ms, lag_ms_max, is_fsynced=self._is_fsynced
        )

    # -- commit ------------------------------------------------------------------------------------------------------

    def _advance(self) -> list[Effect]:
        if self.is_below_min_isr:
            return []
        self._raise_low_watermark()
        end = self._durable_offset if self._is_fsynced else self._log_end_offset
        for node, follower in self._followers.items():
            if node in self._isr.maximal or self._is_about_to_join(node):
                end = min(end, follower.acknowledged(is_fsynced=self._is_fsynced))
        if end <= self._high_watermark:
            return []
        self._high_watermark = end
        return [AdvanceHighWatermark(end)]

    def _raise_low_watermark(self) -> None:
        """Counts what all members have deleted as deleted for good, unless they are too few: then another may be
        elected than one of them."""
        if not self.is_below_min_isr:
            members = [follower for node, follower in self._followers.items() if node in self._isr.maximal]
            starts = [follower.log_start_offset for follower in members]
            self._low_watermark = max(self._low_watermark, min([self._log_start_offset, *starts]))

    def _is_about_to_join(self, node: int) -> bool:
        """Close behind, and waited for: else the high watermark would run ahead of it for ever. A follower that has
        stalled is not waited for, as a member would not be."""
        close_ms = min(self._settings.lag_ms_max, self._settings.join_ms_max)
        stall = self._stalls[node]
        is_candidate = self._is_eligible(node) and not stall.is_on_probation and not stall.is_stalled
        return is_candidate and self._now_ms - self._followers[node].caught_up_ms <= close_ms
