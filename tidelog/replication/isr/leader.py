"""The leader of a primary-backup partition: decides which records are committed, and which replicas are in sync.

The leader takes all writes, and followers fetch them. A batch is committed when all members of the ISR have
acknowledged it; f + 1 members survive f failures. The rules, and their purposes:

- The **high watermark** is the least acknowledged end over the maximal in-sync set (`in_sync_set.py`) and over
  followers about to join; it moves only forward, and only while the committed set has the members that the topic
  requires, in as many racks as it requires.
- A follower **joins** when it has acknowledged everything up to the high watermark *and* up to where this leader epoch
  began, has fetched in this epoch with the broker epoch that the metadata knows, does not lag, and has no damaged batch
  that the leader could repair. A member whose log is damaged later stays a member: the damaged batch is marked in its
  index, and other replicas may have a copy; if the leader has lost the batch too, waiting would not bring it back.
- The **low watermark** is the least log start over the maximal in-sync set, under the same condition. A deletion is
  acknowledged when the low watermark has passed it, and a follower that joins begins no earlier than the leader: so
  every later leader has deleted the same records.
- A member **leaves** when it has been behind for `lag_ms_max`, and much earlier if it has *stalled* (`stall.py`): it
  acknowledges nothing, while another member does, and the remaining members are enough. It comes back after a
  probation, and until then the high watermark does not wait for it.
- The leader itself **has stalled** if its own disk completes no write while followers keep up that are enough to go on
  without it. It cannot leave the ISR while it leads, so another replica should be elected.
- A fetch is answered with data only if the follower's last batch is in this log (`lineage.py`); else the fetch does not
  count, and the answer says where the two logs diverge. All logs are made equal to the leader's by leader epochs, never
  by high watermarks.

A partition with one replica is the special case of a set of one. KIP-101, 279, 320, 497, 841, 903, 966.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import overload

from tidelog.replication.isr import events, log_events
from tidelog.replication.isr.in_sync_set import InSyncSet
from tidelog.replication.isr.lineage import Lineage
from tidelog.replication.isr.remote_replica import RemoteReplica
from tidelog.replication.isr.stall import Stall


class IsrLeader:
    """The leader's state machine of one partition in one leader epoch.

    Invariant: high_watermark <= acknowledged end of every member of the maximal in-sync set that has reported in this
    epoch and was a member when the high watermark advanced; log_end_offset <= next_offset.
    """

    def __init__(
        self,
        node_id: int,
        leader_epoch: int,
        log: events.LogState,
        high_watermark: int,
        partition: events.IsrChanged,
        settings: events.IsrSettings,
        now_ms: int,
    ) -> None:
        """Begins the epoch with the high watermark that this replica knew before. `partition` is the partition's state
        in the metadata that made this replica the leader."""
        assert node_id in partition.replicas and high_watermark <= log.log_end_offset
        self.leader_epoch = leader_epoch
        self.leader_epoch_start_offset = log.log_end_offset
        """The offset at which this epoch's batches begin (the leader epoch's start offset)."""
        self._node_id = node_id
        self._log_start_offset = log.log_start_offset
        self._durable_offset = log.durable_offset
        self._log_end_offset = self._next_offset = log.log_end_offset
        self._lineage = Lineage(log.lineage)
        # The own epoch counts as begun before its first batch. Without that, a follower whose tail is of an epoch
        # between the log's last and this one would pass for a later leader's: refused, it would never truncate.
        self._lineage.begin(leader_epoch, log.log_end_offset)
        # A member of the set has acknowledged all below its high watermark. A leader elected unclean may not have: then
        # it calls no more committed than it keeps.
        acknowledged = log.durable_offset if partition.is_fsynced else log.log_end_offset
        self._high_watermark = max(min(high_watermark, acknowledged), log.log_start_offset)
        self._low_watermark = 0
        self._settings = settings
        self._is_fsynced = partition.is_fsynced
        self._is_enough = partition.is_enough
        self._now_ms = now_ms
        self._isr = InSyncSet(partition.isr, partition.partition_epoch, settings.retry_ms)
        self._broker_epochs: Mapping[int, int] = partition.broker_epochs
        self._followers: dict[int, RemoteReplica] = {}
        self._stalls: dict[int, Stall] = {}
        """The `Stall` of each follower. It is kept when the follower leaves the ISR and its `RemoteReplica` is
        replaced, because its probation goes on."""
        self._own_stall = self._new_stall()
        self._is_at_rest = False
        self._assign(partition.replicas)
        self._advance()

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def low_watermark(self) -> int:
        """Returns the offset below which every replica that may lead next has deleted its records; 0 until all members
        have reported."""
        return self._low_watermark

    @property
    def in_sync(self) -> tuple[int, ...]:
        """Returns the ISR in force at the controller, as far as this leader knows."""
        return self._isr.committed

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Returns every replica that may be in the controller's ISR, pending changes included."""
        return self._isr.maximal

    @property
    def partition_epoch(self) -> int:
        """Returns the partition epoch of the ISR in force."""
        return self._isr.partition_epoch

    @property
    def follower_ends(self) -> dict[int, int]:
        """Returns each follower's log end offset, as reported in this epoch; 0 if it has not reported."""
        return {node: max(follower.log_end_offset, 0) for node, follower in self._followers.items()}

    @property
    def is_at_rest(self) -> bool:
        """True if the last event was a tick that found all replicas in sync and everything committed: further ticks
        would change nothing until another event."""
        return self._is_at_rest

    @property
    def has_stalled(self) -> bool:
        """True if commits wait only for this leader's own disk, and its followers could go on without it."""
        if not self._own_stall.is_stalled:
            return False
        # Only members count, for one of them has to lead instead. This leader cannot leave the set that it leads.
        followers = [node for node in self._isr.committed if node in self._stalls]
        return self._is_enough([node for node in followers if self._stalls[node].keeps_up])

    @property
    def is_below_min_isr(self) -> bool:
        """True if there are too few in-sync replicas, or in too few racks: nothing is committed now, and produce
        requests with `acks=all` are to be refused."""
        # The committed set, not the maximal one: a replica that is only asked for cannot be elected yet.
        return not self._is_enough(self._isr.committed)

    # -- events ------------------------------------------------------------------------------------------------------

    @overload
    def step(self, event: log_events.Event) -> list[log_events.Effect]: ...

    @overload
    def step(self, event: events.LeaderEvent) -> list[events.LeaderEffect]: ...

    def step(self, event: log_events.Event | events.LeaderEvent) -> list[log_events.Effect] | list[events.LeaderEffect]:
        """Takes an event of clients, the local log, the metadata or the clock; returns the effects in order. Followers'
        fetches go to `fetched` instead."""
        self._is_at_rest = False
        match event:
            case log_events.Propose() | log_events.Appended() | log_events.AppendRefused() | log_events.Flushed():
                return self._on_log(event)
            case events.FollowerFlushed():
                # The tail is checked as in a fetch: "my disk holds 12" may be said of a log that was truncated since.
                return self._report(event) if self._verdict(event) == events.Serve(event.fetch_offset) else []
            case events.AlterPartitionAnswered():
                # The caller has applied the metadata up to the answer: the set in it meets the minimum and the
                # durability of its own moment.
                self._now_ms = max(self._now_ms, event.now_ms)
                self._isr.answered(event)
                return [*self._advance(), *self._expand()]
            case events.IsrChanged():
                return self._on_metadata(event)
            case events.RecordsDeleted(log_start_offset):
                assert log_start_offset <= self._high_watermark
                self._log_start_offset = max(self._log_start_offset, log_start_offset)
                self._lineage.delete_records(log_start_offset)
                self._raise_low_watermark()
                return []
            case events.Tick(now_ms):
                return self._on_tick(now_ms)

    def _on_log(self, event: log_events.Event) -> list[log_events.Effect]:
        match event:
            case log_events.Propose(offsets):
                base = self._next_offset
                # Offsets are given out before the batch is in the log; `AppendRefused` takes them back.
                self._next_offset = base + offsets
                return [log_events.Append(base, self.leader_epoch)]
            case log_events.AppendRefused(base):
                assert self._log_end_offset <= base <= self._next_offset
                # Batches behind the refused one were refused with it: else this would give their offsets out twice.
                self._next_offset = base
                return []
            case log_events.Appended(end):
                assert end <= self._next_offset
                self._log_end_offset = max(self._log_end_offset, end)
            case log_events.Flushed(end):
                assert end <= self._log_end_offset
                self._durable_offset = max(self._durable_offset, end)
        return self._advance()

    def _on_metadata(self, event: events.IsrChanged) -> list[events.LeaderEffect]:
        # Images may come late, and an older one would bring back a set that the controller has changed since. An equal
        # epoch is news all the same: a broker was registered, fenced or unfenced, which changes `broker_epochs` alone.
        if event.partition_epoch < self._isr.partition_epoch:
            return []
        # Set, minimum and durability are taken over together, before anything is committed: a lower minimum with the
        # set of before would commit what replicas lack that may be elected (KIP-966's ELR).
        self._broker_epochs, self._is_enough = event.broker_epochs, event.is_enough
        self._is_fsynced = event.is_fsynced
        self._assign(event.replicas)
        committed_before = self._isr.committed
        self._isr.adopt(event.isr, event.partition_epoch)
        self._forget(node for node in committed_before if node not in self._isr.committed)
        return [*self._advance(), *self._expand()]

    def _forget(self, nodes: Iterable[int]) -> None:
        """Forgets the log ends reported by members that the controller has removed from the ISR, until they fetch
        again."""
        # A disk may have failed, and what it acknowledged is gone with it: the reports of before must not let it join.
        for node in nodes:
            if node in self._followers:
                self._followers[node] = RemoteReplica(self._log_end_offset, self._now_ms, is_member=False)

    def _assign(self, replicas: tuple[int, ...]) -> None:
        followers, committed = self._followers, self._isr.committed
        self._followers = {
            node: followers.get(node) or RemoteReplica(self._log_end_offset, self._now_ms, is_member=node in committed)
            for node in replicas
            if node != self._node_id
        }
        self._stalls = {node: self._stalls.get(node) or self._new_stall() for node in self._followers}

    def _new_stall(self) -> Stall:
        return Stall(self._settings.stall_ms_max, self._settings.tick_ms, self._now_ms)

    # -- followers ---------------------------------------------------------------------------------------------------

    def fetched(self, fetch: events.FollowerFetched) -> tuple[events.FetchVerdict, list[events.LeaderEffect]]:
        """Takes a follower's fetch; returns its answer, which is to be sent once the effects are carried out, and the
        effects."""
        self._is_at_rest = False
        verdict = self._verdict(fetch)
        return verdict, self._report(fetch) if isinstance(verdict, events.Serve) else []

    def _verdict(self, report: events.FollowerReport) -> events.FetchVerdict:
        follower = self._followers.get(report.replica)
        if follower is None:
            return events.Refused("this broker holds no replica of the partition")
        # A fetch that an earlier process of the broker sent before a crash says nothing about the log that the crash
        # left (KIP-903). Either may tell first that there is a later process: its own fetch, or the metadata.
        if report.broker_epoch < max(follower.broker_epoch, self._broker_epochs.get(report.replica, 0)):
            return events.Refused("a process of this broker has registered since")
        out_of_range = events.OutOfRange(self._log_start_offset, self._log_end_offset)
        if report.last_fetched_epoch is None:
            # An empty log cannot diverge: it may begin anywhere in this one.
            is_within = self._log_start_offset <= report.fetch_offset <= self._log_end_offset
            return events.Serve(report.fetch_offset) if is_within else out_of_range
        # Epochs are not compared then: the batches that could be are deleted here, and no batch of it is needed.
        if report.fetch_offset <= self._log_start_offset:
            return out_of_range
        epoch_end = self._lineage.end_of(report.last_fetched_epoch, self._log_end_offset)
        # Only a later leader can have written that. This one is deposed without knowing it yet: its log is no measure
        # any more, and a truncation to it could take what the later one has committed.
        if epoch_end is None:
            return events.Refused("its log is of a later epoch")
        # Batches of one epoch come from one leader, so a tail of an epoch that this log has, at an offset within that
        # epoch, proves that both logs are equal up to there. Any other tail lies behind the point where they part.
        if epoch_end.epoch < report.last_fetched_epoch or epoch_end.offset < report.fetch_offset:
            return events.Diverging(epoch_end.epoch, epoch_end.offset)
        return events.Serve(report.fetch_offset)

    def _report(self, report: events.FollowerReport) -> list[events.LeaderEffect]:
        self._now_ms = max(self._now_ms, report.now_ms)
        follower = self._followers[report.replica]
        follower.hear(report)
        follower.follow(self._log_end_offset, self._now_ms, is_fsynced=self._is_fsynced)
        # The set is asked for first: the high watermark then waits for the new member from this step on.
        expansion = self._expand()
        return [*self._advance(), *expansion]

    # -- the in-sync set ---------------------------------------------------------------------------------------------

    def _expand(self) -> list[events.AlterPartition]:
        if not self._isr.may_ask(self._now_ms):
            return []
        committed = self._isr.committed
        joining = tuple(node for node in self._followers if node not in committed and self._may_join(node))
        return [self._isr.ask(committed + joining, self._broker_epochs)] if joining else []

    def _may_join(self, node: int) -> bool:
        follower = self._followers[node]
        # A new leader's high watermark is a round trip old; what was committed before its epoch lies below LESO all the
        # same. With either bound missing a follower could join, and be elected, that lacks a committed batch.
        needed_end = max(self._high_watermark, self.leader_epoch_start_offset)
        has_all = follower.acknowledged(is_fsynced=self._is_fsynced) >= needed_end
        # A follower that begins below this log's start has records whose deletion is acknowledged, and would show them
        # again if it led. One that is damaged is repaired first, because from the moment it joins, the leader's disk
        # may be the one that is lost.
        is_whole = has_all and follower.log_start_offset >= self._log_start_offset and not follower.awaits_repair
        # While the set is below its minimum nothing is committed, so a silent follower that was put out has all that
        # is: without this it would be asked for again at once.
        is_steady = not self._is_lagging(node) and not self._stalls[node].is_on_probation
        return self._is_eligible(node) and is_whole and is_steady

    def _is_eligible(self, node: int) -> bool:
        """Returns True if the follower has fetched in this epoch, from the process that the controller would admit to
        the ISR."""
        # `_broker_epochs` has no broker that is fenced or about to stop (KIP-841). And no earlier process of a broker
        # counts: its fetch may be of a log that a crash has made shorter since (KIP-903).
        follower = self._followers[node]
        return follower.has_reported and follower.broker_epoch == self._broker_epochs.get(node)

    def _on_tick(self, now_ms: int) -> list[events.LeaderEffect]:
        self._now_ms = max(self._now_ms, now_ms)
        self._observe_stalls()
        for node in self._isr.committed:
            if node in self._followers:
                self._followers[node].observe(self._log_end_offset, self._now_ms, is_fsynced=self._is_fsynced)
        # A pending change is repeated unchanged. Nothing else may be asked for before its fate is known.
        if (retry := self._isr.retry(self._now_ms)) is not None:
            return [retry]
        # Time alone may move the high watermark: a candidate that has stalled or fallen behind is not waited for.
        effects: list[events.LeaderEffect] = [*self._advance()]
        if self._isr.may_ask(self._now_ms):
            remaining = self._without_stalled(tuple(node for node in self._isr.committed if not self._is_lagging(node)))
            if remaining != self._isr.committed:
                return [*effects, self._isr.ask(remaining, self._broker_epochs)]
        effects += self._expand()
        self._is_at_rest = not effects and self._has_nothing_to_wait_for()
        return effects

    def _has_nothing_to_wait_for(self) -> bool:
        """Returns whether all replicas are in the ISR and have the whole log, everything is committed, and no member is
        on probation."""
        log_end = self._log_end_offset
        own_end = self._durable_offset if self._is_fsynced else log_end
        if self._isr.is_pending or not own_end == self._next_offset == self._high_watermark == log_end:
            return False
        return all(
            node in self._isr.committed
            and follower.acknowledged(is_fsynced=self._is_fsynced) == log_end
            # Probation is served by ticks, so it keeps the leader from resting.
            and not self._stalls[node].is_on_probation
            for node, follower in self._followers.items()
        )

    def _observe_stalls(self) -> None:
        own_end = self._durable_offset if self._is_fsynced else self._log_end_offset
        self._own_stall.observe(own_end, self._log_end_offset, self._now_ms)
        for node, stall in self._stalls.items():
            acknowledged = self._followers[node].acknowledged(is_fsynced=self._is_fsynced)
            stall.observe(acknowledged, self._log_end_offset, self._now_ms)

    def _without_stalled(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the members without those that have stalled, provided that a follower keeps up meanwhile and enough
        members remain."""
        stalled = [node for node in members if node in self._stalls and self._stalls[node].is_stalled]
        # Where all are silent it may be the leader that is cut off. And with too few left, producers would be refused
        # whom another second of waiting would serve.
        has_witness = any(node in self._stalls and self._stalls[node].keeps_up for node in members)
        remaining = tuple(node for node in members if node not in stalled)
        if not stalled or not has_witness or not self._is_enough(remaining):
            return members
        for node in stalled:
            self._stalls[node].put_out()
        return remaining

    def _is_lagging(self, node: int) -> bool:
        if node == self._node_id:
            return False
        lag_ms_max = self._settings.lag_ms_max
        return self._followers[node].is_lagging(
            self._log_end_offset, self._now_ms, lag_ms_max, is_fsynced=self._is_fsynced
        )

    # -- commit ------------------------------------------------------------------------------------------------------

    def _advance(self) -> list[log_events.Effect]:
        # Below the minimum the high watermark stands still: so whoever falls out of the set then lacks nothing that is
        # committed, and may still be elected (KIP-966's ELR).
        if self.is_below_min_isr:
            return []
        self._raise_low_watermark()
        end = self._durable_offset if self._is_fsynced else self._log_end_offset
        # Nothing is committed that the leader itself has not: most events of a batch end here.
        if end <= self._high_watermark:
            return []
        # The maximal set, because the controller may have applied a change whose answer is still under way, and may
        # elect its new member. A member that was not heard yet acknowledges nothing (-1), and holds all up.
        members = self._isr.maximal
        for node, follower in self._followers.items():
            if node in members or self._is_about_to_join(node):
                end = min(end, follower.acknowledged(is_fsynced=self._is_fsynced))
        # A member that restarts acknowledges nothing until it is heard again; what was committed stays so.
        if end <= self._high_watermark:
            return []
        self._high_watermark = end
        return [log_events.AdvanceHighWatermark(end)]

    def _raise_low_watermark(self) -> None:
        """Raises the low watermark to the offset below which all members have deleted their records."""
        # It never passes the leader's own start, so there is nothing to raise unless a deletion is under way. Below the
        # minimum a replica outside the set may be elected, which has not deleted it.
        if self._low_watermark < self._log_start_offset and not self.is_below_min_isr:
            members = [follower for node, follower in self._followers.items() if node in self._isr.maximal]
            starts = [follower.log_start_offset for follower in members]
            self._low_watermark = max(self._low_watermark, min([self._log_start_offset, *starts]))

    def _is_about_to_join(self, node: int) -> bool:
        """Returns True if the follower is so close to the leader that the high watermark waits for it to join
        the ISR."""
        # Without the wait, the high watermark would run ahead of it for ever under steady load, and it would never
        # join. A follower that has stalled is not waited for, as a member would not be.
        close_ms = min(self._settings.lag_ms_max, self._settings.join_ms_max)
        stall = self._stalls[node]
        is_candidate = self._is_eligible(node) and not stall.is_on_probation and not stall.is_stalled
        return is_candidate and self._now_ms - self._followers[node].caught_up_ms <= close_ms
