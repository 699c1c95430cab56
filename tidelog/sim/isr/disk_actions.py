"""Actions that damage disks: batches rot, often where it hurts most; fsyncs fail, and checkpoints are lost."""

from __future__ import annotations

from tidelog.model.cluster import NO_LEADER
from tidelog.sim.isr.crash_actions import checkpoint
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.process import Process
from tidelog.sim.isr.repairing import Repairing as World


def fail_sync(world: World, process: Process, dice: Dice) -> None:
    if process.core is not None and process.disk.kept < len(process.disk.log) and process.truncating is None:
        world.truth.saw("an fsync fails")
        process.disk.fail_sync()


def rot(world: World, dice: Dice) -> None:
    """Damages a batch on some disk, often near the end of the log."""
    disks = [process.disk for process in world.current.values() if len(process.disk.log) > process.disk.start]
    if disks:
        disk = dice.pick(disks)
        end = len(disk.log)
        world.rot(disk, dice.between(max(disk.start, end - 3) if dice.chance(0.7) else disk.start, end - 1))


def rot_and_restart(world: World, dice: Dice) -> None:
    """Damages the end of the leader's log while the leader is down for a moment; it, or another replica, leads then."""
    leader = world.controller.now.leader
    process = None if leader == NO_LEADER else world.registered(leader)
    if process is None or len(process.disk.log) == process.disk.start:
        return
    checkpoint(world, process, dice)
    world.end(process)
    for _ in range(dice.between(1, 2)):
        end = len(process.disk.log)
        world.rot(process.disk, dice.between(max(process.disk.start, end - 3), end - 1))
    if dice.chance(0.6):
        world.register(world.new_process(process.node, process.disk))


def rot_heir(world: World, dice: Dice) -> None:
    """Damages a batch of the next ISR member that it does not know to be committed, and ends the leader's session, so
    that this member may be elected."""
    now = world.controller.now
    heir = next((world.registered(node) for node in now.isr if node != now.leader), None)
    if heir is None or heir.core is None or heir.core.high_watermark >= len(heir.disk.log):
        return
    world.rot(heir.disk, dice.between(heir.core.high_watermark, len(heir.disk.log) - 1))
    world.fence(now.leader)
    world.learn(heir, world.newest)
    is_unheard = dice.chance(0.5)
    for process in world.running():
        if dice.chance(0.1 if is_unheard else 0.5):
            world.learn(process, world.newest)
    if is_unheard:
        world.ask_for_copies(heir, dice)
        world.wire.deliver_newest(dice)
        world.wire.deliver_newest(dice)


def rot_but_for_an_outsider(world: World, dice: Dice) -> None:
    """Fences a follower that knows of a committed batch, so that it leaves ISR and ELR. Then damages that batch on most
    disks, and ends the processes of all members of ISR and ELR. The member that starts first has a high watermark below
    the batch; the others stay down for a while."""
    knowing = [
        follower
        for follower in world.running()
        if follower.following is not None and follower.high_watermark_now > follower.disk.start
    ]
    if not knowing:
        return
    outsider = dice.pick(knowing)
    offset = dice.between(max(outsider.disk.start, outsider.high_watermark_now - 2), outsider.high_watermark_now - 1)
    world.fence(outsider.node)
    now = world.controller.now
    members = [*now.isr, *now.elr]
    if outsider.node in members or not members or offset >= len(world.truth.committed):
        return
    world.rot_alike(offset, spares_one=dice.chance(0.5), dice=dice)
    for node in members:
        process = world.current[node]
        world.end(process)
        process.disk.high_watermark = min(process.disk.high_watermark, offset)
        if dice.chance(0.7):
            world.fence(node)
    first = world.current[dice.pick(members)]
    world.register(world.new_process(first.node, first.disk))


def rot_alike(world: World, dice: Dice) -> None:
    """Damages a committed batch near the end on most disks, or all. Some of these brokers restart with an older high
    watermark; others stay down for a while."""
    committed, start = len(world.truth.committed), max(disk.start for disk in world.disks.values())
    if committed <= start or not world.controller.image.topics:
        return
    offset = dice.between(max(start, committed - 2), committed - 1)
    damaged = world.rot_alike(offset, spares_one=dice.chance(0.5), dice=dice)
    for process in list(world.current.values()):
        if process.disk in damaged and dice.chance(0.7):
            world.end(process)
            if dice.chance(0.6):
                process.disk.high_watermark = min(process.disk.high_watermark, offset)
            if dice.chance(0.7):
                world.register(world.new_process(process.node, process.disk))


def lose_checkpoint(world: World, process: Process, dice: Dice) -> None:
    process.disk.high_watermark = process.disk.start
