"""Fetching in a simulated run: followers send requests, leaders answer at once or later, and disks sync.

It plays the part of the shipped shells (`Follower`, `Fetcher`, `ReplicationService`: the asyncio code around the pure
cores), reduced to what the cores can see. A shell has one request under way at a time; here there are as many as the
steps make, which the cores must tolerate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.model.cluster import NO_LEADER
from tidelog.model.ids import NodeId
from tidelog.replication.isr import events as isr
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.log_events import Appended, Flushed
from tidelog.sim.isr.controller import partition_of
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.disk import Entry, lineage_of
from tidelog.sim.isr.parts import Parts
from tidelog.sim.isr.process import Process
from tidelog.sim.isr.scenario import Topic
from tidelog.sim.isr.truth import Violation
from tidelog.sim.isr.world import World

ANSWERED_MAX = 3
"""Largest number of batches in an answer."""
PARKED = 0.25
"""Chance that a fetch request waits at the leader."""

Answer = tuple[Any, list[Entry]]


class Replication(World):
    """A simulated partition whose followers fetch from the leader."""

    def __init__(self, topic: Topic, parts: Parts) -> None:
        self._correlations = 0
        super().__init__(topic, parts)

    # -- asking ------------------------------------------------------------------------------------------------------

    def fetch(self, process: Process) -> None:
        """Sends a fetch request to the leader that the process knows."""
        core = process.following
        if core is not None and process.truncating is None and not process.disk.is_offline:
            self._correlations += 1
            self.react(process, core.step(isr.FetchDue(self._correlations)))

    def react(self, process: Process, effects: Sequence[isr.FollowerEffect]) -> None:
        """Carries out the effects that a follower's core returned."""
        core, disk = process.following, process.disk
        assert core is not None
        for effect in effects:
            match effect:
                case isr.Fetch():
                    self._ask(process, core, effect)
                case isr.ReportFlushed():
                    self._report(process, core, effect)
                case isr.FollowHighWatermark(to):
                    self.truth.followed(process, core, to)
                case isr.DeleteRecords(to):
                    assert to <= disk.durable
                    disk.delete_records(to)
                case isr.Truncate(to):
                    self.truth.judge_cut(process, core.leader_epoch, to)
                    process.truncating = effect
                case isr.StartOver():
                    self.truth.saw("a log is started over")
                    process.truncating = effect
                case isr.Distrust(reason):
                    raise Violation(f"leaders are to be trusted: {reason}")
                case isr.AppendFetched():
                    raise AssertionError("handled where the batches are")

    def _leader_of(self, process: Process) -> Process | None:
        """Returns the process that leads by the image that this process has applied."""
        image = self.controller.history[process.applied_image]
        leader = partition_of(image).leader
        return None if leader == NO_LEADER else self.processes.get(image.brokers[NodeId(leader)].incarnation)

    def _ask(self, process: Process, core: IsrFollower, fetch: isr.Fetch) -> None:
        leader, leader_epoch, event_at = self._leader_of(process), core.leader_epoch, self._event_of(process, fetch)
        if leader is None:
            return

        def arrive(dice: Dice) -> None:
            leading = _leading(leader, leader_epoch)
            if leading is None:
                self.truth.saw("a fetch of another epoch is refused")
                return
            verdict, effects = leading.fetched(isr.FollowerFetched(*event_at(leader)))
            self.execute(leader, effects)
            if dice.chance(PARKED):
                self.wire.send(
                    leader.node,
                    leader.node,
                    lambda dice: self._serve(process, fetch, verdict, leader, leader_epoch, dice),
                )
            else:
                self._serve(process, fetch, verdict, leader, leader_epoch, dice)

        self.wire.send(process.node, leader.node, arrive)

    # -- answering ---------------------------------------------------------------------------------------------------

    def _serve(
        self,
        asker: Process,
        fetch: isr.Fetch,
        verdict: isr.FetchVerdict,
        leader: Process,
        leader_epoch: int,
        dice: Dice,
    ) -> None:
        core = _leading(leader, leader_epoch)
        if core is None:
            return
        answer = self._answer_to(fetch.correlation, verdict, leader, core, dice)
        if answer is not None:
            self.wire.send(leader.node, asker.node, lambda _: self._take(asker, *answer))

    def _answer_to(
        self, correlation: int, verdict: isr.FetchVerdict, leader: Process, core: IsrLeader, dice: Dice
    ) -> Answer | None:
        log, start = leader.disk.log, leader.disk.start
        match verdict:
            case isr.Serve(at) if at < start:
                return isr.FetchOutOfRange(correlation, start, len(log)), []
            case isr.Serve(at):
                self.truth.saw("a damaged batch is asked for", at in leader.disk.faulty)
                sent = log[at : min(at + dice.between(0, ANSWERED_MAX), leader.disk.readable(at))]
                epochs = lineage_of(log[: at + len(sent)], at)
                return isr.Fetched(correlation, at, at + len(sent), epochs, core.high_watermark, start), sent
            case isr.Diverging(epoch, end_offset):
                self.truth.saw("logs diverge")
                return isr.DivergingAt(correlation, epoch, end_offset), []
            case isr.OutOfRange(first, end):
                return isr.FetchOutOfRange(correlation, first, end), []
            case isr.Refused():
                self.truth.saw("a fetch of an earlier life is refused")
                return None

    def _take(self, process: Process, answer: Any, sent: list[Entry]) -> None:
        core = process.following
        if not process.is_running or core is None or process.truncating is not None:
            return
        effects = core.step(answer)
        if effects == [isr.AppendFetched(len(process.disk.log) + len(sent))]:
            process.disk.log.extend(sent)
            self.truth.judge_matching(process.disk)
            effects = core.step(Appended(len(process.disk.log)))
        self.react(process, effects)
        if process.truncating is None:
            self.truth.judge_lineage(process.disk, core._lineage.rows)

    # -- disks -------------------------------------------------------------------------------------------------------

    def sync(self, process: Process, dice: Dice, *, is_all: bool = False) -> None:
        """Makes a drawn part of a process's unsynced writes durable, or all if `is_all`; a pending truncation comes
        first."""
        disk = process.disk
        if disk.is_offline or process.core is None:
            return
        if process.truncating is not None:
            self.finish_cut(process)
            return
        disk.sync(len(disk.log) if is_all else dice.between(disk.durable, len(disk.log)))
        if process.leading is not None:
            self.execute(process, process.leading.step(Flushed(disk.durable)))
        elif process.following is not None:
            acknowledged = disk.acknowledged_end(process.following.high_watermark)
            self.react(process, process.following.step(Flushed(acknowledged)))

    def _report(self, process: Process, core: IsrFollower, effect: isr.ReportFlushed) -> None:
        leader, leader_epoch, event_at = self._leader_of(process), core.leader_epoch, self._event_of(process, effect)
        if leader is None:
            return

        def arrive(_: Dice) -> None:
            leading = _leading(leader, leader_epoch)
            if leading is not None:
                self.execute(leader, leading.step(isr.FollowerFlushed(*event_at(leader))))

        self.wire.send(process.node, leader.node, arrive)

    def _event_of(
        self, process: Process, report: isr.Fetch | isr.ReportFlushed
    ) -> Callable[[Process], tuple[Any, ...]]:
        """Returns a function that, given the leader's process when the request arrives, returns the fields of the event
        for the leader's core: the follower's log ends as of now, the arrival time, and whether the leader's log can
        repair a batch that is damaged at the follower."""
        damaged, start = [*process.disk.faulty], process.disk.start
        ends = process.node, process.broker_epoch, report.fetch_offset, report.durable_offset, report.last_fetched_epoch
        return lambda leader: (*ends, self.now_ms, leader.disk.may_repair(damaged), start)


def _leading(process: Process, leader_epoch: int) -> IsrLeader | None:
    """Returns the leader core of a process, if it leads in that epoch; else None."""
    core = process.leading
    return core if process.is_running and core is not None and core.leader_epoch == leader_epoch else None
