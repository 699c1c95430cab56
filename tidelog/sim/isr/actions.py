"""What a step can do: each action looks for something to act on, and does nothing if there is nothing."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.controller.commands import AlterTopicConfigs
from tidelog.broker.controller.partition_commands import (
    AlterReassignments,
    ElectionType,
    ElectLeaders,
    NewReplicas,
    PartitionNamed,
)
from tidelog.model.cluster import NO_LEADER
from tidelog.sim.isr.controller import TOPIC, TOPIC_ID
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.process import Process
from tidelog.sim.isr.repairing import Repairing as World
from tidelog.sim.isr.wire import CONTROLLER

Action = Callable[[World, Dice], None]
NAMED = PartitionNamed(TOPIC_ID, 0)
CUTS_MAX = 3


def _any(act: Callable[[World, Process, Dice], None]) -> Action:
    """On some process that runs."""

    def action(world: World, dice: Dice) -> None:
        running = world.running()
        if running:
            act(world, dice.pick(running), dice)

    return action


def _leading(act: Callable[[World, Process, Dice], None]) -> Action:
    """On the leader, or, now and then, on whoever takes itself for one."""

    def action(world: World, dice: Dice) -> None:
        leaders = [process for process in world.running() if process.leading is not None]
        now = world.controller.now.leader_epoch
        of_now = [process for process in leaders if process.core is not None and process.core.leader_epoch == now]
        if leaders:
            act(world, dice.pick(of_now if of_now and dice.chance(0.8) else leaders), dice)

    return action


# -- what goes on always -----------------------------------------------------------------------------------------------


def learn(world: World, process: Process, dice: Dice) -> None:
    """Metadata comes, and a few images may be skipped, or are still to come."""
    if world.newest > process.known:
        world.learn(process, world.newest if dice.chance(0.6) else dice.between(process.known + 1, world.newest))
        if dice.chance(0.5):  # a follower asks at once, and its disk is busy with what came before
            world.fetch(process)
            world.sync(process, dice)


def round_of(world: World, dice: Dice) -> None:
    """For a moment everything works: what is under way arrives, everybody learns, fetches and syncs."""
    for process in world.running():
        if not world.controller.image.is_live(process.node):
            world.heartbeat(process)
        if world.newest > process.known:
            world.learn(process, world.newest)
        world.sync(process, dice)
        world.ask_for_copies(process, dice)
        world.fetch(process)
        world.tick(process)
    for _ in range(len(world.wire.messages)):
        if not world.wire.deliver_oldest(dice):
            break


def start(world: World, dice: Dice) -> None:
    """A node comes back, on the disk that it had."""
    stopped = [process for process in world.current.values() if not process.is_running]
    if stopped:
        process = dice.pick(stopped)
        world.register(world.new_process(process.node, process.disk))


# -- the network -------------------------------------------------------------------------------------------------------


def arrive(world: World, dice: Dice) -> None:
    world.wire.deliver_oldest(dice)


def arrive_late(world: World, dice: Dice) -> None:
    world.truth.saw("a message is overtaken", world.wire.deliver_any(dice))


def lose(world: World, dice: Dice) -> None:
    world.truth.saw("a message is lost", world.wire.lose(dice))


def repeat(world: World, dice: Dice) -> None:
    world.truth.saw("a message comes twice", world.wire.repeat(dice))


def cut(world: World, dice: Dice) -> None:
    """One direction between two, the controller among them."""
    ends = [CONTROLLER, *world.current]
    pair = dice.pick(ends), dice.pick(ends)
    if pair[0] != pair[1] and len(world.wire.cuts) < CUTS_MAX:
        world.wire.cuts.append(pair)
        world.truth.saw("a direction is cut")


def mend(world: World, dice: Dice) -> None:
    if world.wire.cuts:
        world.wire.cuts.pop(dice.below(len(world.wire.cuts)))


# -- crashes -----------------------------------------------------------------------------------------------------------


def kill(world: World, process: Process, dice: Dice) -> None:
    """The process ends; what it has written is there."""
    world.truth.saw("a process is killed")
    world.end(process)


def power(world: World, process: Process, dice: Dice) -> None:
    """Of what was not synced, some is gone."""
    world.truth.saw("unsynced batches are lost", process.disk.kept < len(process.disk.log))
    process.disk.lose_power(dice)
    world.end(process)


def wipe(world: World, dice: Dice) -> None:
    """A broker that does not run gets another disk, if its old one isn't needed."""
    stopped = [process for process in world.current.values() if not process.is_running]
    if stopped and not _is_needed(world, node := dice.pick(stopped).node):
        world.truth.saw("a disk is wiped")
        world.register(world.new_process(node, world.new_disk(node)))


def replace_disk(world: World, process: Process, dice: Dice) -> None:
    """A second process of the node, on another disk, while the first goes on: it knows nothing of it."""
    if world.current[process.node] is process and not _is_needed(world, process.node):
        world.truth.saw("a process outlives its successor's start")
        world.register(world.new_process(process.node, world.new_disk(process.node)))


def _is_needed(world: World, node: int) -> bool:
    """Nobody else that the controller counts with is sure to hold what this node does: a loss would be its due."""
    now = world.controller.now
    others = [other for other in (*now.isr, *now.elr) if other != node]
    holders = [world.registered(other) for other in others]
    return not any(holder is not None and not holder.disk.faulty for holder in holders)


def checkpoint(world: World, process: Process, dice: Dice) -> None:
    if process.core is not None:
        process.disk.high_watermark = process.core.high_watermark


def fail_over(world: World, dice: Dice) -> None:
    """The leader dies, its session ends, and the others are told, or some of them."""
    leader = world.controller.now.leader
    if leader == NO_LEADER:
        return
    process = world.registered(leader)
    if process is not None and dice.chance(0.7):
        (power if dice.chance(0.5) else kill)(world, process, dice)
    world.fence(leader)
    for other in world.running():
        if dice.chance(0.7):
            world.learn(other, world.newest)


# -- the controller, and administrators --------------------------------------------------------------------------------


def prefer(world: World, dice: Dice) -> None:
    """Back to the first replica; or the first replica is another now."""
    now = world.controller.now
    if dice.chance(0.5) and not (now.adding or now.removing):
        turned = now.replicas[1:] + now.replicas[:1]
        world.controller.tell(AlterReassignments([NewReplicas(TOPIC_ID, 0, list(turned))]))
    world.controller.tell(ElectLeaders(ElectionType.PREFERRED, [NAMED]))


def move(world: World, dice: Dice) -> None:
    """Replicas go elsewhere, or become fewer or more."""
    nodes = list(world.current)
    target = [nodes.pop(dice.below(len(nodes))) for _ in range(dice.between(1, world.topic.replicas))]
    is_begun = world.controller.tell(AlterReassignments([NewReplicas(TOPIC_ID, 0, target)]))
    world.truth.saw("replicas begin to move", is_begun)


def swap_out_and_in(world: World, dice: Dice) -> None:
    """A replica is taken away and given back, at once; its broker may have deleted the log in between."""
    now = world.controller.now
    out = dice.pick(now.replicas)
    if now.adding or now.removing or len(now.replicas) == 1 or not world.controller.image.is_live(out):
        return
    left = [node for node in now.replicas if node != out]
    if not world.controller.tell(AlterReassignments([NewReplicas(TOPIC_ID, 0, left)])):
        return
    holder = world.registered(out)
    is_done = out not in world.controller.now.replicas
    if is_done and holder is not None and dice.chance(0.7):
        world.learn(holder, world.newest)
    is_back = world.controller.tell(AlterReassignments([NewReplicas(TOPIC_ID, 0, [*left, out])]))
    world.truth.saw("a replica is taken away and given back", is_done and is_back)


def call_off(world: World, dice: Dice) -> None:
    world.controller.tell(AlterReassignments([NewReplicas(TOPIC_ID, 0, None)]))


def change_min_isr(world: World, dice: Dice) -> None:
    changed = AlterTopicConfigs(TOPIC, {"min.insync.replicas": str(dice.between(1, 3))})
    world.truth.saw("the minimum of in-sync replicas changes", world.controller.tell(changed))


def change_durability(world: World, dice: Dice) -> None:
    changed = AlterTopicConfigs(TOPIC, {"ack.durability": "fsynced" if dice.chance(0.5) else "replicated"})
    world.truth.saw("the durability of acknowledgements changes", world.controller.tell(changed))


def change_unclean(world: World, dice: Dice) -> None:
    allowed = str(world.topic.is_unclean_allowed and dice.chance(0.5)).lower()
    world.controller.tell(AlterTopicConfigs(TOPIC, {"unclean.leader.election.enable": allowed}))


def rescue(world: World, dice: Dice) -> None:
    """An operator elects somebody, if all that had everything are gone for good."""
    now = world.controller.now
    if not now.isr and not now.elr:
        world.controller.tell(ElectLeaders(ElectionType.UNCLEAN, [NAMED]))


# -- disks -------------------------------------------------------------------------------------------------------------


def fail_sync(world: World, process: Process, dice: Dice) -> None:
    if process.core is not None and process.disk.kept < len(process.disk.log) and process.cutting is None:
        world.truth.saw("an fsync fails")
        process.disk.fail_sync()


def rot(world: World, dice: Dice) -> None:
    """A batch of some disk, one near the end more often than others."""
    disks = [process.disk for process in world.current.values() if len(process.disk.log) > process.disk.start]
    if disks:
        disk = dice.pick(disks)
        end = len(disk.log)
        world.rot(disk, dice.between(max(disk.start, end - 3) if dice.chance(0.7) else disk.start, end - 1))


def rot_and_restart(world: World, dice: Dice) -> None:
    """The leader's end rots while it is down for a moment; it may lead again, or another."""
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
    """The leader's session ends, and of who comes next a batch has rotted that it does not know to be committed."""
    now = world.controller.now
    heir = next((world.registered(node) for node in now.isr if node != now.leader), None)
    if heir is None or heir.core is None or heir.core.high_watermark >= len(heir.disk.log):
        return
    world.rot(heir.disk, dice.between(heir.core.high_watermark, len(heir.disk.log) - 1))
    world.fence(now.leader)
    world.learn(heir, world.newest)
    is_unheard = dice.chance(0.5)
    for other in world.running():
        if dice.chance(0.1 if is_unheard else 0.5):
            world.learn(other, world.newest)
    if is_unheard:
        world.ask_for_copies(heir, dice)
        world.wire.deliver_newest(dice)
        world.wire.deliver_newest(dice)


def bounce(world: World, process: Process, dice: Dice) -> None:
    """A broker restarts at once: nobody has noticed its end when its new life is registered. Where a new leader asks
    others what was committed, one of those."""
    settling = [other for other in world.running() if other.settling is not None]
    if settling:
        process = dice.pick([other for other in world.running() if other is not settling[0]] or settling)
    if world.current[process.node] is not process:
        return
    (power if dice.chance(0.7) else kill)(world, process, dice)
    fresh = world.new_process(process.node, process.disk)
    for say in (world.register, world.heartbeat):
        say(fresh)
        while world.wire.newest_between(CONTROLLER, fresh.node):
            world.wire.deliver_newest(dice)
        world.learn(fresh, world.newest)


def lose_checkpoint(world: World, process: Process, dice: Dice) -> None:
    process.disk.high_watermark = process.disk.start


ACTIONS: dict[str, Action] = {
    "produce": _leading(lambda world, process, _: world.produce(process)),
    "fetch": _any(lambda world, process, _: world.fetch(process)),
    "arrive": arrive,
    "sync": _any(lambda world, process, dice: world.sync(process, dice)),
    "learn": _any(learn),
    "tick": _leading(lambda world, process, _: world.tick(process)),
    "heartbeat": _any(lambda world, process, _: world.heartbeat(process)),
    "round": round_of,
    "start": start,
    "fence": lambda world, dice: world.fence(dice.pick([*world.current])),
    "arrive_late": arrive_late,
    "lose": lose,
    "repeat": repeat,
    "give_up": _leading(lambda world, process, _: world.give_up(process)),
    "cut": cut,
    "mend": mend,
    "kill": _any(kill),
    "power": _any(power),
    "stop": _any(lambda world, process, dice: world.stop(process, dice)),
    "wipe": wipe,
    "replace_disk": _any(replace_disk),
    "checkpoint": _any(checkpoint),
    "fail_over": fail_over,
    "delete_prefix": _leading(lambda world, process, dice: world.delete_prefix(process, dice)),
    "prefer": prefer,
    "move": move,
    "swap_out_and_in": swap_out_and_in,
    "call_off": call_off,
    "change_min_isr": change_min_isr,
    "change_durability": change_durability,
    "change_unclean": change_unclean,
    "rescue": rescue,
    "ask_for_copies": _any(lambda world, process, dice: world.ask_for_copies(process, dice)),
    "rot": rot,
    "rot_and_restart": rot_and_restart,
    "rot_heir": rot_heir,
    "bounce": _any(bounce),
    "fail_sync": _any(fail_sync),
    "lose_checkpoint": _any(lose_checkpoint),
}
