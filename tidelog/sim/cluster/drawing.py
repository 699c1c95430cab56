"""Draws the scenario of a seed. Numbers are rounded to 4 decimals, so that a scenario printed as JSON is short and
reads back exactly."""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec import structs

from tidelog.sim.cluster.families import ON, Family, draw_families, with_lanes
from tidelog.sim.cluster.group_traffic import (
    draw_group_settings,
    draw_groups,
    draw_mishaps,
    draw_topics,
    has_groups,
    with_time_to_revoke,
)
from tidelog.sim.cluster.journal_rot import JOURNAL_ROT
from tidelog.sim.cluster.orders import with_holes, with_orders
from tidelog.sim.cluster.scenario import Order, Scenario, Step, Strike, Swarm
from tidelog.sim.cluster.traffic import Mix, draw_mix, draw_settings, draw_traffic, mixed
from tidelog.sim.kit.seeds import stream

STRIKES: dict[str, float] = {
    "crash": 3.0,
    "kill": 3.0,
    "die at an operation": 3.0,
    "pause": 3.0,
    "stop": 2.0,
    "isolate": 2.0,
    "split": 2.0,
    "cut one way": 2.0,
    "deafen": 1.0,
    "clog": 1.0,
    "swizzle": 1.0,
    "slow network": 1.0,
    "reset": 2.0,
    "break frames": 1.0,
    "repeat frames": 1.5,
    "sync error": 1.0,
    "write error": 1.0,
    "full disk": 1.0,
    "slow disk": 1.0,
    "rot": 1.5,
    "wipe": 1.5,
    "restore": 0.7,
    "drift": 1.0,
    "jump": 1.0,
    "power cut of all": 1.5,
    "crash loop": 1.0,
    "pauses in turn": 1.5,
    "relay": 1.5,
    "bridge": 1.5,
    "rival majorities": 1.0,
    "flap": 1.5,
    "lose answers": 2.0,
    "full disks": 0.7,
    "stuck disk": 1.0,
    "leader dies": 2.0,
    "leader sleeps": 2.0,
    "leader without followers": 2.0,
    "leader without controller": 2.0,
    "last one leaves": 2.0,
    "lame follower": 2.0,
    "controller dies": 1.5,
    "controller sleeps": 1.5,
    "controller alone": 1.5,
    "rot of a replica": 2.0,
    "rot of all copies": 1.0,
}
"""Names of faults, with their weights."""

ORDERS: dict[str, float] = {"create": 5.0, "delete": 1.5, "grow": 1.0, "configure": 3.0, "allocate": 2.0}
"""Names of administrators' commands about topics of their own, with their weights."""

MOVES: dict[str, float] = {
    "move": 5.0,
    "call off": 1.0,
    "prefer": 1.5,
    "force": 1.0,
    "rebalance": 1.0,
    "leave": 1.0,
    "change durability": 2.0,
}
"""Names of commands about partitions that clients use (reassignments, elections, settings), with their weights."""
MOVES_SHARE = 0.4
"""Share of the seeds with data in which administrators give such commands (`MOVES`)."""

JOURNAL_ROT_SHARE = 0.4
"""Share of the seeds with Paxos topics, and without reassignments, in which journals are damaged."""
DATA_ROT = ("rot of a replica", "rot of all copies")
STORM_STRIKES = {
    kind: STRIKES[kind]
    for kind in (
        *("kill", "crash", "pause", "isolate", "cut one way", "split", "deafen", "slow network", "wipe", "stop"),
        *("leader dies", "leader sleeps", "leader without followers", "leader without controller", "lame follower"),
        *("last one leaves", "controller sleeps", "lose answers", "flap", "power cut of all"),
        *DATA_ROT,
    )
}
STORM: dict[str, int | str] = {
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.heartbeat.ms": 30,
    "controller.lease.ms": 200,
}
"""Settings with short election and lease times: many leaders in a run, and many late messages of earlier ones."""

DRIFTS = (0.0, 0.0, 0.01, 0.04)


def draw_scenario(
    seed: int,
    mix: Mix | None = None,
    groups: bool | None = None,
    families: Sequence[Family] = ON,
    *,
    has_holes: bool = True,
) -> Scenario:
    """Returns the scenario of a seed, the same in every process. The faults and orders do not depend on `mix`; added
    `families` of faults leave the rest as it is.

    With `groups`, the topics of consumer groups are the only ones. Unless `has_holes`, all topics have total order.
    """
    rng = stream(seed, "cluster")
    is_shared = has_groups(seed) if groups is None else groups
    swarm = _with_traffic(seed, _draw_swarm(rng), draw_mix(seed) if mix is None else mix, is_shared=is_shared)
    if has_holes:
        swarm = with_orders(seed, swarm)
    families = with_holes(swarm, families)
    swarm = with_lanes(seed, swarm, families)
    is_storm = "controller.lease.ms" in swarm.settings or (bool(swarm.traffic.topics) and seed % 2 == 0)
    has_moves = bool(swarm.traffic.topics) and rng.random() < MOVES_SHARE
    kinds = STORM_STRIKES if is_storm else STRIKES
    if has_moves:  # whoever moves replicas away may move the last good copy
        kinds = {kind: weight for kind, weight in kinds.items() if kind not in DATA_ROT}
    steps: list[Step] = [*_draw_strikes(rng, swarm, kinds), *_draw_orders(rng, swarm, ORDERS)]
    if not has_moves and any(topic.is_paxos for topic in swarm.traffic.topics):
        steps += _draw_journal_rot(stream(seed, JOURNAL_ROT), swarm)
    if has_moves:
        steps += _draw_orders(rng, swarm, MOVES)
    elif swarm.traffic.topics:
        steps += draw_families(seed, swarm, families)
    if swarm.groups.groups:
        steps += draw_mishaps(seed, swarm.groups, swarm.chaos_s)
    ending = rng.choice(("healed", "core"))
    return Scenario(seed, swarm, tuple(sorted(steps, key=lambda step: step.at_s)), ending)


def _draw_swarm(rng: random.Random) -> Swarm:
    voters = rng.choices((1, 3, 5), (2, 6, 2))[0]
    storm = rng.random() < 0.3
    delay_min_s = rng.choice((0.0, 0.0005) if storm else (0.0, 0.0005, 0.005))
    return Swarm(
        voters=voters,
        learners=rng.choices((0, 1, 2), (4, 4, 2))[0],
        chaos_s=round(rng.uniform(1.5, 7.0), 4),
        delay_min_s=delay_min_s,
        delay_mean_s=delay_min_s + rng.choice((0.002, 0.005) if storm else (0.0005, 0.002, 0.01, 0.03)),
        disk_delay_s=rng.choice((0.0005, 0.002) if storm else (0.0005, 0.002, 0.01)),
        clock_drift=rng.choice(DRIFTS),
        restart_s=rng.choice((0.01, 0.1, 0.3)),
        is_calm_at_first=rng.random() < 0.75,
        settings=_draw_settings(rng) | (STORM if storm else {}),
    )


def _with_traffic(seed: int, swarm: Swarm, mix: Mix, *, is_shared: bool) -> Swarm:
    drawn = draw_topics(seed, len(swarm.nodes)) if is_shared else draw_traffic(seed, len(swarm.nodes))
    traffic = mixed(seed, drawn, mix)
    swarm = structs.replace(swarm, traffic=traffic, settings=swarm.settings | draw_settings(seed))
    if not is_shared:
        return swarm
    groups = with_time_to_revoke(draw_groups(seed, traffic.topics), swarm.delay_mean_s, swarm.disk_delay_s)
    return structs.replace(swarm, groups=groups, settings=swarm.settings | draw_group_settings(seed))


def _draw_settings(rng: random.Random) -> dict[str, int | str]:
    """Draws broker settings that change how often rare events happen."""
    return {
        "metadata.log.snapshot.records": rng.choice((8, 20, 1_000)),
        "broker.heartbeat.interval.ms": rng.choice((200, 500)),
        "broker.session.timeout.ms": rng.choice((1_500, 3_000)),
        "controller.voter.replace.ms": rng.choice((1_500, 600_000)),
        "num.partitions": rng.choice((1, 2, 4)),
        "log.segment.bytes": rng.choice((1_024, 1 << 20)),
    }


def _draw_strikes(rng: random.Random, swarm: Swarm, weight_of: dict[str, float]) -> list[Strike]:
    kinds = rng.sample(sorted(weight_of), rng.choice((0, 1, 2, 3, 4, 6)))
    if not kinds:
        return []
    weights = [weight_of[kind] for kind in kinds]
    is_storm = len(weight_of) <= len(STORM_STRIKES)
    count = rng.randint(1, 2 + int(swarm.chaos_s * (4.0 if is_storm else 1.5)))
    return [_draw_strike(rng, swarm, rng.choices(kinds, weights)[0]) for _ in range(count)]


def _draw_strike(rng: random.Random, swarm: Swarm, kind: str) -> Strike:
    nodes = rng.sample(swarm.nodes, len(swarm.nodes))
    return Strike(
        at_s=round(rng.uniform(0.0, swarm.chaos_s), 4),
        kind=kind,
        nodes=tuple(nodes[: rng.randint(1, len(nodes))]),
        lasts_s=round(rng.choice((0.05, 0.5, 2.0)) * rng.uniform(0.5, 2.0), 4),
        amount=round(rng.random(), 4),
    )


def _draw_journal_rot(rng: random.Random, swarm: Swarm) -> list[Strike]:
    """Draws the faults that damage journals, from a random stream of their own, so that the other faults of the seed
    stay the same."""
    if rng.random() >= JOURNAL_ROT_SHARE:
        return []
    return [_draw_strike(rng, swarm, JOURNAL_ROT) for _ in range(rng.randint(1, 3))]


def _draw_orders(rng: random.Random, swarm: Swarm, weight_of: dict[str, float]) -> list[Order]:
    kinds, weights = zip(*sorted(weight_of.items()), strict=True)
    rate = rng.choice((0.5, 2.0, 5.0))
    return [
        Order(
            at_s=round(rng.uniform(0.0, swarm.chaos_s), 4),
            kind=rng.choices(kinds, weights)[0],
            via=rng.choice(swarm.nodes),
            target=rng.randrange(1_000_000),
            timeout_s=rng.choice((0.3, 2.0, 10.0)),
        )
        for _ in range(1 + int(rate * swarm.chaos_s))
    ]
