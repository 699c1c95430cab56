"""Short scenarios about one family of faults: write, be acknowledged, take all brokers down, hit a disk, start the
brokers in some order, read everything.

A random scenario reaches such a sequence rarely. A short one has nothing else, in a small cluster, so that a thousand
of them take minutes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import structs

from tidelog.sim.cluster import forged_strikes, hole_strikes
from tidelog.sim.cluster.classic.story import draw_classic
from tidelog.sim.cluster.families import Family, draw_families, kinds_of, with_lanes
from tidelog.sim.cluster.orders import SHARE, with_holes, with_orders
from tidelog.sim.cluster.scenario import Scenario, Strike, Swarm
from tidelog.sim.cluster.sweep_strikes import PATTERNS
from tidelog.sim.cluster.traffic import ProducerPlan, TopicPlan, Traffic, by_majority
from tidelog.sim.kit.history import Kind
from tidelog.sim.kit.seeds import stream

CLASSIC: Final = "classic"
"""Name of the stories about a classic group, which are of no family of faults."""
Story: TypeAlias = Family | Literal["classic"]
"""Subject of a short scenario: a family of faults, or a classic group."""
STORIES: tuple[Story, ...] = (*Family, CLASSIC)
FACTOR = 3
WRITERS = 4
PATIENCE_S = 1.0
"""Seconds that the Python clients wait before they ask another broker (`tidelog.transport.presence`)."""
HUNG_S = 8.0
FORGED_S = 2.5
ANSWERS_PART = 0.25
"""Share of the scenarios with forged messages in which answers are forged; in the others requests are."""
HOLES_S = 2.5
BESIDE_HOLES = ("leader dies", "leader sleeps", "leader without followers", "isolate", "kill", "power cut of all")
BESIDE_FORGED = ("crash", "kill", "isolate", "pause", "power cut of all")
ALL_BUT_ONE_SHARE = 0.4
"""Share of the scenarios about ends of logs in which a single good copy is left."""


def draw_story(story: Story, seed: int, *, has_holes: bool = True) -> Scenario:
    """Returns the short scenario of a seed about a family of faults, or about a classic group; the same in every
    process. Unless `has_holes`, all topics have total order."""
    if story == CLASSIC:
        return draw_classic(seed)
    drawn = _draw_of_family(Family(story), seed)
    # When a broker hangs, the time without a commit is checked, which other faults would lengthen.
    is_alone = story == Family.HUNG or not has_holes
    return drawn if is_alone else _with_orders(seed, drawn, 1.0 if story == Family.HOLES else SHARE)


def _with_orders(seed: int, scenario: Scenario, share: float) -> Scenario:
    """Returns the scenario with orders for this share of its Paxos topics, and then with faults that make holes."""
    swarm = with_orders(seed, scenario.swarm, share)
    holes = with_holes(swarm, ())
    swarm = with_lanes(seed, swarm, holes)
    steps = (*scenario.steps, *draw_families(seed, swarm, holes))
    return structs.replace(scenario, swarm=swarm, steps=tuple(sorted(steps, key=lambda step: step.at_s)))


def _draw_of_family(family: Family, seed: int) -> Scenario:
    rng = stream(seed, f"story of {family}")
    if family is Family.HUNG:
        return _draw_hung(seed, rng)
    if family is Family.FORGED:
        return _draw_forged(seed, rng)
    if family is Family.HOLES:
        return _draw_holes(seed, rng)
    partitions = 2 if family is Family.SWAPPED else rng.choice((1, 1, 2))
    is_paxos = family in (Family.APART, Family.LANES) or (family is not Family.EMPTIED and rng.random() < 0.5)
    swarm = with_lanes(seed, _draw_swarm(rng, partitions, is_paxos=is_paxos), [family])
    kinds = kinds_of(family, swarm)
    count = 1
    if family is Family.EMPTIED or (family is Family.TAIL and rng.random() < ALL_BUT_ONE_SHARE):
        count = FACTOR - 1
    elif family is Family.METADATA:
        count = rng.choice((1, 1, 2, 3))
    strike = Strike(
        at_s=round(rng.uniform(0.2, swarm.chaos_s), 4),
        kind=rng.choices([*kinds], [*kinds.values()])[0],
        nodes=tuple(rng.sample(swarm.nodes, count)),
        lasts_s=round(rng.uniform(0.1, 1.2), 4),
        amount=round(rng.random(), 4),
    )
    if family is Family.SWEEP:
        strike = structs.replace(strike, nodes=tuple(swarm.nodes), amount=float(seed % PATTERNS))
    return Scenario(seed, swarm, (strike,))


def _draw_hung(seed: int, rng: random.Random) -> Scenario:
    """Draws a scenario in which one of three brokers with shipped settings hangs, under several producers."""
    swarm = _draw_swarm(rng, 1, is_paxos=rng.random() < 0.5)
    topic = structs.replace(swarm.traffic.topics[0])
    topic.configs["min.insync.replicas"] = rng.choice(("1", "2"))
    producers = tuple(ProducerPlan(f"p{number}", Kind.IDEMPOTENT, -1, topic.name, 0) for number in range(WRITERS))
    traffic = structs.replace(swarm.traffic, topics=(topic,), producers=producers)
    swarm = structs.replace(swarm, settings={}, patience_s=PATIENCE_S, traffic=traffic)
    kinds = kinds_of(Family.HUNG, swarm)
    strike = Strike(1.0, rng.choices([*kinds], [*kinds.values()])[0], (1,), HUNG_S, 0.0)
    return Scenario(seed, swarm, (strike,))


def _draw_forged(seed: int, rng: random.Random) -> Scenario:
    """Draws a scenario with forged messages while the cluster works, and while up to three other faults occur."""
    is_paxos = rng.random() < 0.4
    kind = rng.choice([kind for kind in forged_strikes.MESSAGES if not (is_paxos and kind == forged_strikes.FOLLOWER)])
    if stream(seed, "forged answers").random() < ANSWERS_PART:
        kind = forged_strikes.ANSWERS
    swarm = structs.replace(_draw_swarm(rng, 1, is_paxos=is_paxos), chaos_s=FORGED_S)
    nodes = tuple(rng.sample(swarm.nodes, FACTOR))
    forged = Strike(0.1, kind, nodes, FORGED_S, round(rng.random(), 4))
    if kind == forged_strikes.FOLLOWER:
        return Scenario(seed, swarm, (structs.replace(forged, lasts_s=round(rng.uniform(0.1, 1.0), 4)),))
    others = [_draw_beside(rng, swarm, BESIDE_FORGED) for _ in range(rng.choice((0, 1, 2, 3)))]
    return Scenario(seed, swarm, (forged, *sorted(others, key=lambda strike: strike.at_s)))


def _draw_holes(seed: int, rng: random.Random) -> Scenario:
    """Draws a scenario with holes in logs while leaders die, sleep and are cut off."""
    swarm = structs.replace(_draw_swarm(rng, rng.choice((1, 1, 2)), is_paxos=True), chaos_s=HOLES_S)
    holes = [
        Strike(
            at_s=round(rng.uniform(0.2, HOLES_S), 4),
            kind=hole_strikes.LOSE_WRITES,
            nodes=tuple(swarm.nodes),
            lasts_s=round(rng.uniform(0.1, 1.5), 4),
            amount=round(rng.random(), 4),
        )
        for _ in range(rng.choice((1, 2, 3)))
    ]
    others = [_draw_beside(rng, swarm, BESIDE_HOLES) for _ in range(rng.choice((0, 1, 2, 3)))]
    # While there is a hole, or not long after.
    others = [
        structs.replace(other, at_s=round(hole.at_s + rng.uniform(0.0, 1.2) * hole.lasts_s, 4))
        for other in others
        for hole in [rng.choice(holes)]
    ]
    return Scenario(seed, swarm, (*holes, *others))


def _draw_beside(rng: random.Random, swarm: Swarm, kinds: Sequence[str]) -> Strike:
    return Strike(
        at_s=round(rng.uniform(0.2, swarm.chaos_s), 4),
        kind=rng.choice(kinds),
        nodes=tuple(rng.sample(swarm.nodes, 1)),
        lasts_s=round(rng.uniform(0.1, 1.0), 4),
        amount=round(rng.random(), 4),
    )


def _draw_swarm(rng: random.Random, partitions: int, *, is_paxos: bool) -> Swarm:
    topic = TopicPlan(
        "data0",
        partitions=partitions,
        factor=FACTOR,
        configs={
            "segment.bytes": rng.choice(("1024", "1048576")),
            "min.insync.replicas": rng.choice(("1", "2", "2", "3")),
        },
    )
    producers = [
        ProducerPlan(f"p{number}", rng.choice((Kind.IDEMPOTENT, Kind.PLAIN)), -1, topic.name, number % topic.partitions)
        for number in range(topic.partitions)
    ]
    return Swarm(
        voters=3,
        learners=0,
        chaos_s=0.8,
        delay_min_s=0.0,
        delay_mean_s=rng.choice((0.0005, 0.002)),
        disk_delay_s=rng.choice((0.0005, 0.002)),
        clock_drift=0.0,
        restart_s=0.01,
        settings={
            "broker.heartbeat.interval.ms": 100,
            "broker.session.timeout.ms": rng.choice((400, 1_500)),
            "replica.lag.time.max.ms": rng.choice((300, 1_000)),
            "metadata.log.snapshot.records": rng.choice((20, 1_000)),
            "paxos.journal.max.entries": rng.choice((40, 20_000)),
            "log.scrub.period.ms": rng.choice((500, 600_000)),
        },
        traffic=Traffic((by_majority(topic) if is_paxos else topic,), tuple(producers)),
    )
