"""Actions in which processes end and start: killed processes, power cuts, lost disks, and ended sessions."""

from __future__ import annotations

from tidelog.model.cluster import NO_LEADER
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.process import Process
from tidelog.sim.isr.repairing import Repairing as World
from tidelog.sim.isr.wire import CONTROLLER


def kill(world: World, process: Process, dice: Dice) -> None:
    """Kills a process; its writes stay."""
    world.truth.saw("a process is killed")
    world.end(process)


def power(world: World, process: Process, dice: Dice, torn: float = 0.3) -> None:
    """Cuts the power of a process's machine: some of the unsynced batches are gone, and some torn."""
    world.truth.saw("unflushed batches are lost", process.disk.kept < len(process.disk.log))
    process.disk.lose_power(dice, torn)
    world.end(process)


def power_of_one_or_all(world: World, process: Process, dice: Dice) -> None:
    """Cuts the power of one machine, or now and then of all."""
    if dice.chance(0.1):
        power_of_all(world, dice)
    else:
        power(world, process, dice)


def power_of_all(world: World, dice: Dice) -> None:
    """Cuts the power of all machines when a leader has written, some followers have fetched, and no disk has synced the
    batch; then starts all again."""
    leader = next((process for process in world.running() if process.leading is not None), None)
    if leader is not None:
        world.produce(leader)
        for process in world.running():
            if dice.chance(0.6):
                world.fetch(process)
        while world.wire.deliver_oldest(dice):
            pass
    world.truth.saw("all lose their power")
    ended = [process for process in world.current.values() if process.is_running]
    for process in world.running():
        power(world, process, dice, torn=dice.pick((0.0, 0.3, 1.0)))
    for process in ended:
        world.register(world.new_process(process.node, process.disk))


def wipe(world: World, dice: Dice) -> None:
    """Starts a stopped broker on an empty disk, unless its old disk is needed."""
    stopped = [process for process in world.current.values() if not process.is_running]
    if stopped and not _is_needed(world, node := dice.pick(stopped).node):
        world.truth.saw("a disk is wiped")
        world.register(world.new_process(node, world.new_disk(node)))


def replace_disk(world: World, process: Process, dice: Dice) -> None:
    """Starts a second process of the node, on another disk, while the first goes on unaware."""
    if world.current[process.node] is process and not _is_needed(world, process.node):
        world.truth.saw("a process outlives its successor's start")
        world.register(world.new_process(process.node, world.new_disk(process.node)))


def _is_needed(world: World, node: int) -> bool:
    """Returns True if no other member of ISR and ELR is sure to hold what this node does: the loss of its disk may then
    lose committed records."""
    now = world.controller.now
    others = [member for member in (*now.isr, *now.elr) if member != node]
    holders = [world.registered(member) for member in others]
    return not any(holder is not None and not holder.disk.faulty for holder in holders)


def checkpoint(world: World, process: Process, dice: Dice) -> None:
    if process.core is not None:
        process.disk.high_watermark = process.core.high_watermark


def fail_over(world: World, dice: Dice) -> None:
    """Ends the leader's session, mostly with its process, and gives the new image to some of the others."""
    leader = world.controller.now.leader
    if leader == NO_LEADER:
        return
    process = world.registered(leader)
    if process is not None and dice.chance(0.7):
        (power if dice.chance(0.5) else kill)(world, process, dice)
    world.fence(leader)
    for learner in world.running():
        if dice.chance(0.7):
            world.learn(learner, world.newest)


def bounce(world: World, process: Process, dice: Dice) -> None:
    """Restarts a broker at once, so that its new registration comes before the controller notices its end. While a new
    leader asks others what was committed, one of those others is restarted."""
    settling = [candidate for candidate in world.running() if candidate.settling is not None]
    if settling:
        process = dice.pick([candidate for candidate in world.running() if candidate is not settling[0]] or settling)
    if world.current[process.node] is not process:
        return
    (power if dice.chance(0.7) else kill)(world, process, dice)
    fresh = world.new_process(process.node, process.disk)
    for say in (world.register, world.heartbeat):
        say(fresh)
        while world.wire.newest_between(CONTROLLER, fresh.node):
            world.wire.deliver_newest(dice)
        world.learn(fresh, world.newest)
