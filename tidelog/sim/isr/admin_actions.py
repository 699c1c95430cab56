"""Actions of administrators: reassignments, changes of settings, and leader elections."""

from __future__ import annotations

from tidelog.controller.commands import AlterTopicConfigs
from tidelog.controller.partition_commands import (
    AlterReassignments,
    ElectionType,
    ElectLeaders,
    NewReplicas,
    PartitionNamed,
)
from tidelog.sim.isr.controller import TOPIC, TOPIC_ID
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.repairing import Repairing as World

NAMED = PartitionNamed(TOPIC_ID, 0)


def prefer(world: World, dice: Dice) -> None:
    """Asks for a preferred leader election, sometimes after another replica was made the preferred one."""
    now = world.controller.now
    if dice.chance(0.5) and not (now.adding or now.removing):
        turned = now.replicas[1:] + now.replicas[:1]
        world.controller.tell(AlterReassignments([NewReplicas(TOPIC_ID, 0, list(turned))]))
    world.controller.tell(ElectLeaders(ElectionType.PREFERRED, [NAMED]))


def move(world: World, dice: Dice) -> None:
    """Begins a reassignment to drawn nodes."""
    nodes = list(world.current)
    target = [nodes.pop(dice.below(len(nodes))) for _ in range(dice.between(1, world.topic.replicas))]
    is_begun = world.controller.tell(AlterReassignments([NewReplicas(TOPIC_ID, 0, target)]))
    world.truth.saw("replicas begin to move", is_begun)


def swap_out_and_in(world: World, dice: Dice) -> None:
    """Removes a replica by a reassignment and adds it again at once; its broker may have deleted the log in between."""
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
    """Asks for an unclean election, if no replica is left in ISR and ELR."""
    now = world.controller.now
    if not now.isr and not now.elr:
        world.controller.tell(ElectLeaders(ElectionType.UNCLEAN, [NAMED]))
