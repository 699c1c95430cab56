"""Actions of a step: each picks a process, disk or message to act on, and does nothing if there is none."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.sim.isr import admin_actions, crash_actions, disk_actions
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.process import Process
from tidelog.sim.isr.repairing import Repairing as World
from tidelog.sim.isr.wire import CONTROLLER

Action = Callable[[World, Dice], object]
CUTS_MAX = 3


def _any(act: Callable[[World, Process, Dice], None]) -> Action:
    """Returns an action that applies `act` to a drawn running process."""

    def action(world: World, dice: Dice) -> None:
        running = world.running()
        if running:
            act(world, dice.pick(running), dice)

    return action


def _leading(act: Callable[[World, Process, Dice], None]) -> Action:
    """Returns an action that applies `act` to the leader, or now and then to a process that wrongly takes itself for
    the leader."""

    def action(world: World, dice: Dice) -> None:
        leaders = [process for process in world.running() if process.leading is not None]
        now = world.controller.now.leader_epoch
        of_now = [process for process in leaders if process.core is not None and process.core.leader_epoch == now]
        if leaders:
            act(world, dice.pick(of_now if of_now and dice.chance(0.8) else leaders), dice)

    return action


# -- what goes on always -----------------------------------------------------------------------------------------------


def learn(world: World, process: Process, dice: Dice) -> None:
    """Gives a process a newer metadata image; some images may be skipped."""
    if world.newest > process.applied_image:
        world.learn(
            process, world.newest if dice.chance(0.6) else dice.between(process.applied_image + 1, world.newest)
        )
        if dice.chance(0.5):  # a follower asks at once, and its disk is busy with what came before
            world.fetch(process)
            world.sync(process, dice)


def round_of(world: World, dice: Dice) -> None:
    """Runs one round without faults: every process learns, fetches and syncs, and the messages under way arrive."""
    for process in world.running():
        if not world.controller.image.is_live(process.node):
            world.heartbeat(process)
        if world.newest > process.applied_image:
            world.learn(process, world.newest)
        world.sync(process, dice)
        world.ask_for_copies(process, dice)
        world.fetch(process)
        world.tick(process)
    for _ in range(len(world.wire.messages)):
        if not world.wire.deliver_oldest(dice):
            break


def start(world: World, dice: Dice) -> None:
    """Starts a process on a node that is down, on the same disk."""
    stopped = [process for process in world.current.values() if not process.is_running]
    if stopped:
        process = dice.pick(stopped)
        world.register(world.new_process(process.node, process.disk))


# -- the network -------------------------------------------------------------------------------------------------------


def cut(world: World, dice: Dice) -> None:
    """Cuts one direction between two brokers, or between a broker and the controller."""
    ends = [CONTROLLER, *world.current]
    pair = dice.pick(ends), dice.pick(ends)
    if pair[0] != pair[1] and len(world.wire.cuts) < CUTS_MAX:
        world.wire.cuts.append(pair)
        world.truth.saw("a direction is cut")


def mend(world: World, dice: Dice) -> None:
    if world.wire.cuts:
        world.wire.cuts.pop(dice.below(len(world.wire.cuts)))


ACTIONS: dict[str, Action] = {
    "produce": _leading(lambda world, process, _: world.produce(process)),
    "fetch": _any(lambda world, process, _: world.fetch(process)),
    "arrive": lambda world, dice: world.wire.deliver_oldest(dice),
    "sync": _any(lambda world, process, dice: world.sync(process, dice)),
    "learn": _any(learn),
    "tick": _leading(lambda world, process, _: world.tick(process)),
    "heartbeat": _any(lambda world, process, _: world.heartbeat(process)),
    "round": round_of,
    "start": start,
    "fence": lambda world, dice: world.fence(dice.pick([*world.current])),
    "arrive_late": lambda world, dice: world.truth.saw("a message is overtaken", world.wire.deliver_any(dice)),
    "lose": lambda world, dice: world.truth.saw("a message is lost", world.wire.lose(dice)),
    "repeat": lambda world, dice: world.truth.saw("a message comes twice", world.wire.repeat(dice)),
    "give_up": _leading(lambda world, process, _: world.give_up(process)),
    "cut": cut,
    "mend": mend,
    "kill": _any(crash_actions.kill),
    "power": _any(crash_actions.power_of_one_or_all),
    "stop": _any(lambda world, process, dice: world.stop(process, dice)),
    "wipe": crash_actions.wipe,
    "replace_disk": _any(crash_actions.replace_disk),
    "checkpoint": _any(crash_actions.checkpoint),
    "fail_over": crash_actions.fail_over,
    "delete_records": _leading(lambda world, process, dice: world.delete_records(process, dice)),
    "prefer": admin_actions.prefer,
    "move": admin_actions.move,
    "swap_out_and_in": admin_actions.swap_out_and_in,
    "call_off": admin_actions.call_off,
    "change_min_isr": admin_actions.change_min_isr,
    "change_durability": admin_actions.change_durability,
    "change_unclean": admin_actions.change_unclean,
    "rescue": admin_actions.rescue,
    "ask_for_copies": _any(lambda world, process, dice: world.ask_for_copies(process, dice)),
    "rot": disk_actions.rot,
    "rot_and_restart": disk_actions.rot_and_restart,
    "rot_heir": disk_actions.rot_heir,
    "rot_alike": disk_actions.rot_alike,
    "rot_but_for_an_outsider": disk_actions.rot_but_for_an_outsider,
    "bounce": _any(crash_actions.bounce),
    "fail_sync": _any(disk_actions.fail_sync),
    "lose_checkpoint": _any(disk_actions.lose_checkpoint),
}
