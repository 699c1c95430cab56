"""Plans in which the set of voters changes.

Two styles. *Changes*: a plan as for a fixed group, with changes of voters in between. *Lineages*: some nodes reach each
other and change the voters, once or several times, while others stay behind with outdated state; then these come back,
perhaps without the first ones. Candidates that are several changes behind are where the corner cases are.
"""

from __future__ import annotations

import random

from tidelog.sim.paxos import actions
from tidelog.sim.paxos.plans import FAULTS, Plan, draw_trouble
from tidelog.sim.paxos.scenario import Swarm

KINDS = ("add", "add", "remove", "replace")


def draw_changes(rng: random.Random, swarm: Swarm, plan: Plan) -> Plan:
    """Returns the plan with changes of voters at the times of some of its actions."""
    weight, names = rng.choice((0.2, 0.4, 0.6)), rng.choice((0.0, 0.0, 0.1))
    changes: Plan = []
    for time, _ in plan:
        if rng.random() < weight:
            changes += _draw_change(rng, swarm, time)
        if rng.random() < names:
            changes.append((time, _draw_loss_of_name(rng, swarm)))
        if rng.random() < 0.3:
            changes.append((time, actions.ElectNode(rng.randint(1, swarm.machines))))
    return [*plan, *changes]


def draw_lineage(rng: random.Random, swarm: Swarm) -> Plan:
    """Returns a plan in which again and again some of the machines change the voters and leave the other machines
    behind."""
    faults = [kind for kind in FAULTS if rng.random() < 0.25]
    names, trouble = rng.choice((0.0, 0.0, 0.1)), rng.choice((0.0, 0.1, 0.3)) if faults else 0.0
    machines = range(1, swarm.machines + 1)
    left_behind = rng.randint(1, swarm.nodes)
    time, plan = 1, Plan()
    for _ in range(rng.randint(2, 6)):
        others = [machine for machine in machines if machine != left_behind] if rng.random() < 0.7 else list(machines)
        together = rng.sample(others, rng.randint(min(len(others), swarm.nodes // 2 + 1), len(others)))
        if rng.random() < 0.3:
            plan.append((time, actions.ElectNode(left_behind)))
        plan.append((time, actions.Connect(tuple((a, b) for a in together for b in together if a != b))))
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            plan.append((time, actions.ElectNode(rng.choice(together))))
            time += swarm.round_trip * rng.choice((1, 3, 5))
            plan.append(
                (time, actions.AppendSome(rng.randrange(1000), rng.randint(1, swarm.window), rng.randint(1, 3)))
            )
            if rng.random() < 0.8:
                plan += _draw_change(rng, swarm, time + rng.randint(0, swarm.round_trip))
            if rng.random() < trouble:
                plan += draw_trouble(rng, swarm, rng.choice(faults), time + rng.randint(0, 4 * swarm.round_trip))
            if rng.random() < names:
                plan.append((time, _draw_loss_of_name(rng, swarm)))
            time += swarm.round_trip * rng.choice((2, 6, 10))
    return plan


def _draw_change(rng: random.Random, swarm: Swarm, time: int) -> Plan:
    """Returns a change of voters, and perhaps a crash of a node at one of its steps."""
    plan: Plan = [(time, actions.ChangeVoters(rng.randrange(1000), rng.choice(KINDS), rng.randrange(1000)))]
    if rng.random() < 0.3:
        ticks = rng.choice((1, swarm.round_trip * 8))
        plan.append((time, actions.CrashAfter(rng.choice(tuple(actions.VOTER_TRIGGERS)), ticks)))
    if rng.random() < 0.15:  # a voter forgets who votes
        node, later = rng.randint(1, swarm.machines), time + swarm.round_trip * rng.choice((2, 4, 8))
        plan += [
            (later, actions.DamageSlot(node, rng.randrange(1000))),
            (later, actions.CrashNode(node, swarm.round_trip)),
        ]
    return plan


def _draw_loss_of_name(rng: random.Random, swarm: Swarm) -> actions.LoseName:
    return actions.LoseName(rng.randint(1, swarm.machines), rng.randrange(1000), swarm.round_trip)
