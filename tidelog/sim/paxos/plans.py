"""Plans for a group with a fixed set of voters.

There are mainly two styles. *Mixed*: actions of a few kinds at random times, on a network that mostly works.
*Episodes*: again and again other nodes reach each other, one or two are told to become coordinator, clients write,
something fails, and the next episode begins. Old coordinators stay behind with open proposals and answers still under
way to them, which is where Paxos has its corner cases. A few runs have only *rejoins*.
"""

from __future__ import annotations

import random

from tidelog.sim.paxos import actions
from tidelog.sim.paxos.scenario import Swarm

NODES = (1, 2, 3, 3, 3, 3, 3, 4, 5, 5)
WINDOWS = (1, 2, 2, 3, 4, 8)
MOODS = ("none", "none", "all", "some", "some", "torn")
FAULTS = ("truncate", "demote", "crash", "trap", "trap", "power", "wipe", "wipe", "store", "damage", "damage")
CUTS = ("link", "isolate")

BELIEFS_SHARE = 0.5

Plan = list[tuple[int, actions.Action]]


def draw_swarm(rng: random.Random) -> Swarm:
    choose = rng.choice
    low, spread, disk = choose((1, 1, 5)), choose((0, 5, 20)), choose((0, 3, 15, 40))
    round_trip = 2 * (low + spread) + 2 + disk
    return Swarm(
        nodes=choose(NODES),
        window=choose(WINDOWS),
        is_founded=rng.random() < 0.8,
        delay_low=low,
        delay_spread=spread,
        loss=choose((0.0, 0.0, 0.05, 0.2)),
        deafness=choose((0.0, 0.0, 0.5, 1.0)),
        duplicate=choose((0.0, 0.0, 0.1)),
        late=choose((0.0, 0.05, 0.2)),
        late_ticks=round_trip * choose((2, 8)),
        disk_ticks=disk,
        ambition=choose((0.0, 0.2, 0.5, 0.8)),
        patience=choose((5, 5, 20, 80)),
        mood=choose(MOODS),
        catchup_ticks=round_trip * choose((3, 10, 30)),
    )


def draw_mixed(rng: random.Random, swarm: Swarm) -> Plan:
    kinds = [kind for kind in (*FAULTS, *CUTS) if rng.random() < 0.4]
    kinds += ["elect", "append", "append"]
    gap = swarm.round_trip * rng.choice((1, 2, 4)) // 2 + 1
    time = swarm.round_trip * 3
    plan: Plan = [(1, actions.ElectNode(rng.randint(1, swarm.machines)))]
    for _ in range(rng.randint(6, 24)):
        plan += draw_trouble(rng, swarm, rng.choice(kinds), time)
        time += rng.randint(0, 2 * gap)
    return plan


def draw_episodes(rng: random.Random, swarm: Swarm) -> Plan:
    faults = [kind for kind in FAULTS if rng.random() < 0.25]
    chance = rng.choice((0.2, 0.5)) if faults else 0.0
    gap = swarm.round_trip * rng.choice((1, 2, 4))
    time = 1
    plan: Plan = []
    for _ in range(rng.randint(3, 10)):
        plan.append((time, actions.Connect(_draw_links(rng, swarm.machines))))
        plan += [(time, actions.ElectNode(rng.randint(1, swarm.machines))) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        for _ in range(rng.randint(1, 4)):
            time += rng.randint(0, gap)
            kind = rng.choice(faults) if rng.random() < chance else "append"
            plan += draw_trouble(rng, swarm, kind, time)
        time += rng.randint(0, 2 * gap)
    return plan


def draw_rejoins(rng: random.Random, swarm: Swarm) -> Plan:
    """Returns a plan that repeats: a majority writes, one of its nodes loses its disk and rejoins with the help of
    nodes that missed the writes, and the power fails when it is about to vote."""
    machines = range(1, swarm.nodes + 1)
    time = 1
    plan: Plan = []
    for _ in range(rng.randint(1, 3)):
        together = rng.sample(machines, swarm.nodes // 2 + 1)
        plan.append((time, actions.Connect(tuple((a, b) for a in together for b in together if a != b))))
        plan.append((time, actions.ElectNode(together[0])))
        for _ in range(rng.randint(1, 3)):
            time += swarm.round_trip * rng.choice((3, 6))
            plan.append((time, actions.AppendSome(rng.randrange(1000), rng.randint(1, swarm.window), 1)))
        time += swarm.round_trip * rng.choice((1, 3, 6))
        plan.append((time, actions.Connect(tuple((a, b) for a in machines for b in machines if a != b))))
        plan.append((time, actions.WipeNode(rng.choice(together), 1, is_founding=False)))
        plan.append((time, actions.CrashAfter("is about to vote", 1)))
        time += swarm.round_trip * rng.choice((6, 20))
    return plan


def draw_early_loss(rng: random.Random, swarm: Swarm) -> Plan:
    """Returns a plan in which a disk is lost while the group is being founded, perhaps after its first vote, and is
    taken for a new one."""
    node, time = rng.randint(1, swarm.machines), rng.randint(0, 4 * swarm.round_trip)
    return [
        (max(0, time - swarm.round_trip), actions.ElectNode(node)),
        (time, actions.WipeNode(node, 1, is_founding=True)),
    ]


def draw_beliefs(rng: random.Random, swarm: Swarm, plan: Plan) -> Plan:
    """Returns actions, at the times of some actions of the plan, that tell a node that some voters have lost their
    votes."""
    voters = range(1, swarm.machines + 3)
    return [
        (
            time,
            actions.GiveUpVotes(rng.randint(1, swarm.machines), tuple(sorted(rng.sample(voters, rng.randint(0, 2))))),
        )
        for time, _ in plan
        if rng.random() < BELIEFS_SHARE
    ]


def _draw_links(rng: random.Random, nodes: int) -> tuple[tuple[int, int], ...]:
    """Returns the working links: among some of the nodes, around one in the middle, or any."""
    links = [(a, b) for a in range(1, nodes + 1) for b in range(1, nodes + 1) if a != b]
    match rng.randrange(3):
        case 0:
            members = rng.sample(range(1, nodes + 1), rng.randint((nodes + 1) // 2, nodes))
            return tuple((a, b) for a, b in links if a in members and b in members)
        case 1:
            hub = rng.randint(1, nodes)
            return tuple((a, b) for a, b in links if hub in {a, b})
        case _:
            chance = rng.choice((0.5, 0.7, 0.9))
            return tuple(link for link in links if rng.random() < chance)


def draw_trouble(rng: random.Random, swarm: Swarm, kind: str, time: int) -> Plan:
    """Returns an action of the kind. The loss of a disk may come with a crash at the worst moment of the rejoin."""
    plan: Plan = [(time, _draw_action(rng, swarm, kind))]
    if kind == "wipe" and rng.random() < 0.4:
        plan.append((time, actions.CrashAfter("is about to vote", 1)))
    return plan


def _draw_action(rng: random.Random, swarm: Swarm, kind: str) -> actions.Action:
    node = rng.randint(1, swarm.machines)
    ticks = swarm.round_trip * rng.choice((1, 3, 8))
    match kind:
        case "append":
            return actions.AppendSome(rng.randrange(1000), rng.randint(1, swarm.window), rng.randint(1, 3))
        case "elect":
            return actions.ElectNode(node)
        case "truncate":
            return actions.TruncateSome(rng.randrange(1000), rng.random())
        case "demote":
            return actions.DemoteOne(rng.randrange(1000))
        case "damage":
            return actions.DamageSlot(node, rng.randrange(1000))
        case "link":
            return actions.CutLink(node, rng.randint(1, swarm.machines), ticks)
        case "isolate":
            direction = rng.randrange(3)
            return actions.IsolateNode(node, ticks, inbound=direction != 1, outbound=direction != 2)
        case _:
            return _draw_crash(rng, swarm, kind, node, ticks)


def _draw_crash(rng: random.Random, swarm: Swarm, kind: str, node: int, ticks: int) -> actions.Action:
    match kind:
        case "crash":
            return actions.CrashNode(node, ticks)
        case "trap":
            return actions.CrashAfter(rng.choice(tuple(actions.TRIGGERS)), rng.choice((1, ticks)))
        case "power":
            return actions.CrashAll(ticks)
        case "wipe":
            return actions.WipeNode(node, rng.choice((1, 1, ticks)), rng.random() < (0.2 if swarm.is_founded else 0.6))
        case "store":
            return actions.FailStore(node, ticks)
        case _:
            raise AssertionError(kind)
