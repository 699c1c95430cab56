"""Runs of an election world: a time of faults, two sieges of a leader that has a lease, then one clear task.

A run answers with what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.election.world import World
from tidelog.replication.election import Election
from tidelog.replication.election_events import StepAside
from tidelog.replication.election_settings import ElectionSettings
from tidelog.sim.kit.seeds import stream

RATE_WITHIN = 1 / (1 - ElectionSettings().drift)
RATE_BEYOND = 2.0
HEALED_S = 8.0
"""A leader must be there this long after the last fault: two rounds that fail, and one that does not."""
FAILOVER_S = 0.7
"""The lease, one or two heartbeats, and a few round trips."""

HANDOVER_S = 0.25
"""Two rounds of asking, a campaign, and the first heartbeats: the lease alone takes longer."""


def run_seed(seed: int, make: Callable[..., Election] = Election, *, rate_max: float = RATE_WITHIN) -> list[str]:
    world = World(stream(seed, "election"), 3 if seed % 3 else 5, make, rate_max=rate_max)
    task = (deaf_leader, killed_leader, isolated_follower, leader_that_steps_aside)[seed % 4]
    for part in (storm, siege, siege, task):
        part(world)
        world.heal()
        if world.settle(HEALED_S) is None:
            world.violations.append(f"no leader {HEALED_S} s after healing")
        if world.violations:
            break
    return world.violations


def storm(world: World) -> None:
    """Twelve seconds in which anything may fail at any time."""
    rng = world.rng
    world.run(rng.uniform(0, 3))
    for _ in range(40):
        node = rng.choice(world.quorum.members)
        rng.choice((cut, stop, disturb))(world, node)
        if rng.random() < 0.4:  # a crash and a quick restart of one that follows is what a lease fears
            world.crash(node)
            world.run(rng.uniform(0.001, 0.02))
            world.restart(node)
        world.run(rng.uniform(0.01, 0.6))


def cut(world: World, node: int) -> None:
    match world.rng.randrange(4):
        case 0:
            world.isolate(node)
        case 1:
            world.isolate(node, out_of=False)
        case 2:
            world.isolate(node, into=False)
        case _:
            world.accuse(world.leader() or node)


def stop(world: World, node: int) -> None:
    match world.rng.randrange(3):
        case 0:
            world.crash(node)
        case 1:
            world.restart(node)
        case _:
            world.pause(node, world.rng.choice((0.05, 0.3, 0.5, 2.0)))


def disturb(world: World, node: int) -> None:
    match world.rng.randrange(3):
        case 0:
            world.delay_s_max = world.rng.choice((0.003, 0.05, 0.7))
        case 1:
            world.loss = world.rng.choice((0.0, 0.05, 0.3))
        case _:
            world.heal()


def siege(world: World) -> None:
    """A leader keeps a bare quorum; the others only wait for one of it to desert, and then one does."""
    leader, rng = world.leader(), world.rng
    assert leader is not None
    followers = [node for node in world.quorum.members if node != leader]
    besiegers = rng.sample(followers, len(followers) + 1 - world.quorum.size)
    for node in besiegers:
        world.cuts |= {(leader, node), (node, leader)}
        world.report(world.voters[node], leader)
    world.delay_s_max = rng.choice((0.003, 0.15))
    world.run(rng.uniform(0.4, 0.9))
    world.delay_s_max = 0.003
    if rng.random() < 0.5:
        deserter = rng.choice([node for node in followers if node not in besiegers])
        world.crash(deserter)
        world.restart(deserter)
    else:
        world.accuse(leader)
        world.delay_s_max = rng.choice((0.003, 0.03))
        world.run(rng.uniform(0.4, 0.6))  # about when they elect another, those that were loyal hear the old one again
        world.cuts = {(a, b) for a, b in world.cuts if a in besiegers or b in besiegers}
    world.run(1.0)


def deaf_leader(world: World) -> None:
    """Is heard by all, and hears nobody."""
    leader = world.leader()
    assert leader is not None
    world.isolate(leader, out_of=False)
    world.run(3.0)
    if world.settle(HEALED_S) in {None, leader} or world.leader() == leader:
        world.violations.append("a leader that hears nobody was not replaced")


def killed_leader(world: World) -> None:
    """The others notice that its process is gone."""
    leader = world.leader()
    assert leader is not None
    world.crash(leader)
    took_s = world.settle(FAILOVER_S)
    if took_s is None:
        world.violations.append(f"a killed leader was not replaced within {FAILOVER_S} s")


def isolated_follower(world: World) -> None:
    """Comes back after a while; nobody else need notice."""
    leader, number = world.leader(), world.winners[-1][1]
    node = world.rng.choice([node for node in world.quorum.members if node != leader])
    world.isolate(node)
    world.run(world.rng.uniform(4, 8))
    world.heal()
    world.run(4.0)
    if (world.leader(), world.winners[-1][1]) != (leader, number):
        world.violations.append("a node that came back deposed a healthy leader")


def leader_that_steps_aside(world: World) -> None:
    """Whom it names leads next, and nobody waits for a lease."""
    leader = world.leader()
    assert leader is not None
    successor = world.rng.choice([node for node in world.quorum.members if node != leader])
    world.step(world.voters[leader], StepAside(successor))
    world.run(HANDOVER_S)
    if world.leader() != successor:
        world.violations.append(f"the leader that stepped aside was not followed within {HANDOVER_S} s")
