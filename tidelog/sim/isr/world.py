"""The simulated world of one run: brokers around one partition, their disks, the network, and the shipped controller.

It plays the part of the shipped shells (`Replicas`, which changes roles with the metadata, and `IsrRequests`: the
asyncio code around the pure cores), reduced to what the cores can see. Registration is in `membership.py`, fetching in
`replication.py`. Nothing happens but what a step does, and no time passes but by steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tidelog.broker.isr.isr_inputs import isr_changed
from tidelog.controller.commands import BrokerHeartbeat
from tidelog.controller.partition_commands import (
    AlterOutcome,
    AlterPartition,
    IsrAnswer,
    IsrAsked,
    IsrMember,
    PartitionsAltered,
)
from tidelog.model.cluster import NO_LEADER, ClusterImage
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId
from tidelog.replication.isr import events as isr
from tidelog.replication.isr import log_events
from tidelog.replication.isr.settlement import MembersLost, Settlement
from tidelog.sim.isr.controller import TOPIC_ID, partition_of
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.membership import Membership
from tidelog.sim.isr.parts import Parts
from tidelog.sim.isr.process import Process
from tidelog.sim.isr.scenario import Topic
from tidelog.sim.isr.wire import CONTROLLER

LAG_MS_MAX = 60
JOIN_MS_MAX = 30
STALL_MS_MAX = 15
TICK_MS = 3
RETRY_MS = 5

OUTCOMES = {
    AlterOutcome.APPLIED: isr.Outcome.APPLIED,
    AlterOutcome.NOT_APPLIED: isr.Outcome.PROVEN_NOT_APPLIED,
    AlterOutcome.STALE: isr.Outcome.AMBIGUOUS,
}


class World(Membership, ABC):
    """The simulated partition of one run: its replicas take their roles, and lead."""

    def __init__(self, topic: Topic, parts: Parts) -> None:
        super().__init__(topic, parts)
        self._values = 0
        self.controller.create(topic)
        for process in self.current.values():
            self.learn(process, self.newest)

    def stop(self, process: Process, dice: Dice) -> None:
        """Stops a process cleanly: it asks the controller to shut down, flushes, and writes the clean mark."""
        command = BrokerHeartbeat(process.node, process.broker_epoch, 0, wants_shutdown=True)
        is_in_session = process.broker_epoch >= 0 and (process.node, CONTROLLER) not in self.wire.cuts
        if is_in_session and dice.chance(0.8):
            self.controller.tell(command)
        self._end_role(process)
        disk = process.disk
        disk.high_watermark = process.high_watermark
        if not disk.is_offline and process.broker_epoch >= 0:
            disk.sync(len(disk.log))
            disk.clean_epoch = process.broker_epoch
        self.end(process)

    # -- images ------------------------------------------------------------------------------------------------------

    def learn(self, process: Process, at: int) -> None:
        """Applies the controller's image number `at` in a process, which may give it another role. A process that is
        not the registered one of its node in that image has no role. A replica that was reassigned away is deleted."""
        process.applied_image = at
        image = self.controller.history[at]
        broker = image.brokers.get(NodeId(process.node))
        is_admitted = broker is not None and broker.incarnation == process.incarnation
        info = partition_of(image) if image.topics and is_admitted else None
        if info is None or process.node not in info.replicas:
            self._end_role(process)
            if info is not None:
                process.disk.drop()
                process.high_watermark = 0
            return
        if process.role_epoch != info.leader_epoch:
            self._end_role(process)
            if info.leader == process.node:
                process.role_epoch = info.leader_epoch
                self._take_over(process, image)
            elif info.leader != NO_LEADER:
                process.role_epoch = info.leader_epoch
                high_watermark = min(max(process.high_watermark, process.disk.start), len(process.disk.log))
                state = process.disk.state()._replace(durable_offset=process.disk.acknowledged_end(high_watermark))
                process.core = self.parts.follower(info.leader_epoch, state, process.high_watermark)
        elif process.leading is not None:
            self.execute(process, process.leading.step(self._isr_changed(image)))
        elif process.settling is not None:
            self._settle_without_lost(process, process.settling, image)

    def _end_role(self, process: Process) -> None:
        """Ends a process's role: a truncation under way is completed."""
        self.finish_cut(process)
        process.leave_role()

    def finish_cut(self, process: Process) -> None:
        """Completes the truncation that the disk thread was asked for, and reports it to the follower core."""
        truncating, process.truncating = process.truncating, None
        if truncating is None:
            return
        match truncating:
            case isr.Truncate(to):
                process.disk.truncate(to)
            case isr.StartOver(at):
                committed = self.truth.committed[:at]
                process.disk.start_over(at, [*committed, *[(-1, -1)] * (at - len(committed))])
        if process.following is not None:
            acknowledged = process.disk.acknowledged_end(process.following.high_watermark)
            self.react(process, process.following.step(isr.Truncated(len(process.disk.log), acknowledged)))

    def _isr_changed(self, image: ClusterImage) -> isr.IsrChanged:
        return isr_changed(self.controller.settings(image), partition_of(image), image)

    def _take_over(self, process: Process, image: ClusterImage) -> None:
        """Begins to lead, if the end of the log is intact; else first settles which of its damaged batches were
        committed."""
        info = partition_of(image)
        members = {int(node): image.brokers[node].epoch for node in (*info.isr, *info.elr) if node != process.node}
        high_watermark = min(max(process.high_watermark, process.disk.start), len(process.disk.log))
        damaged = {offset: offset + 1 for offset in process.disk.faulty}
        process.settling = self.parts.settlement(info.leader_epoch, members, high_watermark, damaged)
        process.member_disks = {node: image.brokers[NodeId(node)].storage for node in members}
        self.truth.saw("a leader has to settle first", not process.settling.is_settled)
        self.lead_if_settled(process)

    def _settle_without_lost(self, process: Process, settling: Settlement, image: ClusterImage) -> None:
        """Removes the members whose disks were replaced from those that a new leader asks which batches of its damaged
        log end were committed."""
        disks = {node: image.brokers[NodeId(node)].storage for node in process.member_disks}
        lost = frozenset(node for node, disk in process.member_disks.items() if disks[node] != disk)
        settling.step(MembersLost(lost))
        self.truth.saw("a leader settles without a member that lost its disk", bool(lost) and settling.is_settled)
        self.lead_if_settled(process)

    def lead_if_settled(self, process: Process) -> None:
        """Starts the leader core of a new leader, once it is decided which batches of its damaged log end were
        committed."""
        if process.settling is None or not process.settling.is_settled:
            return
        process.high_watermark = max(process.high_watermark, process.settling.committed_end)
        process.settling = None
        image = self.controller.history[process.applied_image]
        core = self.parts.leader(
            process.node,
            process.role_epoch,
            process.disk.state(),
            min(process.high_watermark, len(process.disk.log)),
            self._isr_changed(image),
            isr.IsrSettings(LAG_MS_MAX, JOIN_MS_MAX, STALL_MS_MAX, TICK_MS, RETRY_MS),
            self.now_ms,
        )
        process.core = core
        self.truth.took_office(process, core)

    # -- leading -----------------------------------------------------------------------------------------------------

    def execute(self, process: Process, effects: Sequence[isr.LeaderEffect]) -> None:
        """Carries out the effects that a leader's core returned."""
        core = process.leading
        assert core is not None
        for effect in effects:
            match effect:
                case log_events.AdvanceHighWatermark(to):
                    assert to <= core.high_watermark
                    self.truth.advanced(process, core, to)
                case isr.AlterPartition():
                    process.attempts.append(effect.attempt)
                    self._alter(process, core.leader_epoch, effect)
        self.truth.deleted(process, core)
        self.truth.judge_maximal(core, self.controller.min_isr(self.controller.image))

    def produce(self, process: Process) -> None:
        """Sends a batch to the leader. It is refused if too few replicas are in sync or the log is offline."""
        core = process.leading
        if core is None:
            return
        self._values += 1
        if core.is_below_min_isr:
            self.truth.saw("a batch is refused")
            self.truth.offered[self._values] = False
            return
        for effect in core.step(log_events.Propose(1)):
            assert isinstance(effect, log_events.Append) and effect.base_offset == len(process.disk.log)
            self.truth.offered[self._values] = not process.disk.is_offline
            if process.disk.is_offline:
                self.execute(process, core.step(log_events.AppendRefused(effect.base_offset)))
                return
            process.disk.log.append((effect.leader_epoch, self._values))
        self.execute(process, core.step(log_events.Appended(len(process.disk.log))))

    def delete_records(self, process: Process, dice: Dice) -> None:
        """Deletes records that are committed and durable at the leader, up to a drawn offset."""
        core, disk = process.leading, process.disk
        if core is not None:
            disk.delete_records(dice.between(disk.start, max(disk.start, min(core.high_watermark, disk.durable))))
            self.execute(process, core.step(isr.RecordsDeleted(disk.start)))

    def tick(self, process: Process) -> None:
        if process.leading is not None:
            self.execute(process, process.leading.step(isr.Tick(self.now_ms)))

    # -- in-sync sets ------------------------------------------------------------------------------------------------

    def _alter(self, process: Process, leader_epoch: int, effect: isr.AlterPartition) -> None:
        members = [IsrMember(node, epoch) for node, epoch in effect.isr]
        change = IsrAsked(TOPIC_ID, 0, leader_epoch, effect.partition_epoch, members)
        command = AlterPartition(process.node, process.broker_epoch, [change])

        def arrive(_: Dice) -> None:
            try:
                answer = self.controller.submit(command)
            except TidelogError:
                return
            assert isinstance(answer, PartitionsAltered)
            result, position = answer.partitions[0], answer.position
            self.truth.saw(f"an in-sync set: {result.code.value}")
            self.wire.send(
                CONTROLLER,
                process.node,
                lambda dice: self._altered(process, leader_epoch, effect.attempt, result, position, dice),
            )

        self.wire.send(process.node, CONTROLLER, arrive)

    def _altered(
        self, process: Process, leader_epoch: int, attempt: int, result: IsrAnswer, position: int, dice: Dice
    ) -> None:
        """Gives the leader the answer to an `AlterPartition` once the metadata before it are applied; if that takes too
        long, the outcome is ambiguous."""
        if process.is_running and self.parts.waits_for_metadata:
            at = next(i for i, image in enumerate(self.controller.history) if image.position >= position)
            if process.applied_image < at and dice.chance(0.3):
                self.learn(process, dice.between(at, self.newest))
            if process.applied_image < at and (dice.chance(0.3) or self._is_min_isr_other(process.applied_image, at)):
                self.answer(process, leader_epoch, attempt, isr.Outcome.AMBIGUOUS)
                return
        self.answer(process, leader_epoch, attempt, OUTCOMES[result.outcome], result.partition_epoch, tuple(result.isr))

    def _is_min_isr_other(self, applied: int, at: int) -> bool:
        """Returns True if `min.insync.replicas` changed between two images, or the process knows none yet. Only then
        the answer to an `AlterPartition` must not reach the leader's core before it has the newer image."""
        images = self.controller.history[applied : at + 1]
        return applied < 0 or any(
            self.controller.min_isr(image) != self.controller.min_isr(images[0]) for image in images
        )

    def answer(
        self,
        process: Process,
        leader_epoch: int,
        attempt: int,
        outcome: isr.Outcome,
        partition_epoch: int = -1,
        members: tuple[int, ...] = (),
    ) -> None:
        """Tells a leader the outcome of an `AlterPartition`."""
        core = process.leading
        if not process.is_running or core is None or core.leader_epoch != leader_epoch:
            return
        if attempt in process.attempts:
            process.attempts.remove(attempt)
        event = isr.AlterPartitionAnswered(attempt, outcome, self.now_ms, partition_epoch, members)
        self.execute(process, core.step(event))

    def give_up(self, process: Process) -> None:
        """Ends the oldest `AlterPartition` of a leader by its deadline: the outcome is ambiguous."""
        if process.attempts and process.leading is not None:
            self.truth.saw("an answer about a set is given up")
            self.answer(process, process.leading.leader_epoch, process.attempts[0], isr.Outcome.AMBIGUOUS)

    @abstractmethod
    def react(self, process: Process, effects: Sequence[isr.FollowerEffect]) -> None:
        """Carries out the effects that a follower's core returned."""
