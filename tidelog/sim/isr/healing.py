"""The end of a run: faults stop, all brokers come back, and then everything must become committed, in sync and
equal."""

from __future__ import annotations

from tidelog.controller.partition_commands import ElectionType, ElectLeaders
from tidelog.sim.isr.admin_actions import NAMED
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.repairing import Repairing as World

ROUND_MS = 10


class Healing:
    """Ends the faults of one run and demands that the partition works again."""

    def __init__(self, world: World, dice: Dice) -> None:
        self._world = world
        self._dice = dice

    def run(self) -> None:
        """Demands that all replicas become equal, that one more batch is committed, and that they become equal
        again."""
        self._recover()
        if not self._rest():
            return
        world = self._world
        leader = world.registered(world.controller.now.leader)
        assert leader is not None
        before = len(world.truth.committed)
        world.produce(leader)
        is_at_rest = self._rest()
        world.truth.require("a healed partition commits", is_at_rest and len(world.truth.committed) == before + 1)
        world.truth.judge_end()

    def _recover(self) -> None:
        """Ends earlier processes, reopens disks that failed or are damaged, and starts every broker that is down."""
        world = self._world
        world.wire.cuts.clear()
        for process in world.running():
            if world.current[process.node] is not process or process.disk.is_offline or process.disk.faulty:
                world.end(process)
        for process in list(world.current.values()):
            if not process.is_running:
                world.register(world.new_process(process.node, process.disk))

    def _rest(self) -> bool:
        """Runs rounds until all replicas are in sync and equal; returns True then. Returns False if they cannot become
        so, because no undamaged copy of a batch is left."""
        world = self._world
        for _ in range(80 + 2 * max(len(disk.log) for disk in world.disks.values())):
            self._round()
            if self._is_at_rest():
                return True
        if world.is_anything_gone():
            world.truth.saw("the last copies are lost")
            settling = [process.node for process in world.running() if process.settling is not None]
            world.truth.require("a damaged end is settled", not settling, settling, world.controller.now)
            self._judge_damaged()
            return False
        now, committed = world.controller.now, len(world.truth.committed)
        logs = {storage: disk.log for storage, disk in world.disks.items()}
        world.truth.require("a healed partition comes to rest", False, now, f"{committed} committed", logs)
        return False

    def _judge_damaged(self) -> None:
        """Checks that a lost batch keeps no replica out of sync: every replica with the same log as the leader, damaged
        batches included, is in the ISR."""
        world = self._world
        now = world.controller.now
        leader = world.registered(now.leader)
        if leader is None:
            return
        alike = [
            node for node in now.replicas if (holder := world.registered(node)) and holder.disk.log == leader.disk.log
        ]
        is_in_sync = all(node in now.isr for node in alike)
        logs = {node: world.current[node].disk.log for node in now.replicas}
        faulty = {node: [*world.current[node].disk.faulty] for node in now.replicas}
        world.truth.require("a damaged offset keeps down only itself", is_in_sync, now, logs, faulty)
        world.truth.saw("all that have the rows are in sync, though copies are lost", len(alike) > 1)

    def _round(self) -> None:
        world = self._world
        world.now_ms += ROUND_MS
        for process in world.running():
            if world.registered(process.node) is not process or not world.controller.image.is_live(process.node):
                world.heartbeat(process)
            if world.newest > process.applied_image:
                world.learn(process, world.newest)
            world.sync(process, self._dice, is_all=True)
            world.ask_for_copies(process, self._dice)
            world.fetch(process)
            world.tick(process)
        while world.wire.deliver_oldest(self._dice):
            pass
        for process in world.running():
            world.give_up(process)
        for node in world.current:
            if world.registered(node) is None:
                world.fence(node)
        now = world.controller.now
        if not now.isr and not now.elr:
            world.controller.tell(ElectLeaders(ElectionType.UNCLEAN, [NAMED]))

    def _is_at_rest(self) -> bool:
        world = self._world
        now = world.controller.now
        holders = [world.registered(node) for node in now.replicas]
        if now.adding or now.removing or sorted(now.isr) != sorted(now.replicas) or None in holders:
            return False
        committed = world.truth.committed
        return all(
            holder is not None
            and holder.disk.log[holder.disk.start :] == committed[holder.disk.start :]
            and holder.applied_image == world.newest
            and not holder.disk.faulty
            for holder in holders
        )
