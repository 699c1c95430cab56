"""Planted bugs of partitions that commit by majority: some seed of a cluster has to notice each.

Each is hunted where it may show: by the strikes and orders that it takes, on drawn clusters with short journals. Some
rules of Paxos itself are hunted here too, as they are in brokers; `tests/sim/paxos` has all of them, and finds them
sooner. (Two are found only there, and in none of 279 aimed clusters: that void entries have no effect, and that an
accepted value raises the promise. That a faulty slot is told as faulty takes a story: `test_disk_mutants.py`; that a
batch counts only behind those before it, which none of 400 shows, a history that was kept.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest
from msgspec import structs

from tests.sim.cluster import paxos_mutants as mutants
from tests.sim.cluster.test_kept import DIRECTORY
from tests.sim.paxos import mutants as rules
from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.journal_rot import JOURNAL_ROT
from tidelog.sim.cluster.run import run_scenario
from tidelog.sim.cluster.scenario import Order, Scenario, Strike, decode_scenario
from tidelog.sim.cluster.traffic import Mix
from tidelog.sim.kit.seeds import stream

SEEDS_MAX = 400
JOURNAL_ENTRIES = (8, 40)


class Hunt(NamedTuple):
    """What it takes to see a bug."""

    mutant: Callable[[], AbstractContextManager[None]]
    strikes: tuple[str, ...]
    moves: int = 0
    factor: int | None = None
    start: int = 0
    """A seed shortly before the first that shows it."""


AT_ONCE = (
    Hunt(mutants.serve_before_the_barrier, ("leader dies", "kill")),
    Hunt(mutants.forget_what_is_on_its_way, ("lose answers", "lame follower", "repeat frames")),
)
HUNTS = (
    *AT_ONCE,
    Hunt(mutants.wiped_replica_votes_under_its_old_id, ("wipe", "kill"), start=6),
    Hunt(mutants.lost_journal_votes_on, (JOURNAL_ROT,), start=19),
    Hunt(mutants.serve_before_the_log_is_whole, ("full disk", "leader dies", "slow disk")),
    Hunt(mutants.acknowledge_before_what_lies_below, ("slow network", "leader dies", "break frames"), start=14),
    Hunt(mutants.trim_before_any_log_is_durable, ("power cut of all", "crash"), start=2),
    Hunt(mutants.go_on_at_the_floor_without_copying, ("isolate", "crash", "pause"), start=7),
    Hunt(mutants.apply_around_what_cannot_be_read, (JOURNAL_ROT, "crash"), start=18),
    Hunt(mutants.member_before_it_has_caught_up, ("pause",), moves=6, factor=1, start=26),
    Hunt(rules.as_mutant(rules.no_barrier), ("leader dies", "kill")),
    Hunt(rules.as_mutant(rules.write_answered_before_persisted), ("power cut of all", "crash")),
)


def aimed(hunt: Hunt, seed: int) -> Scenario:
    """The clusters and clients of a seed, and what it takes to see this bug."""
    drawn, rng = draw_scenario(seed, Mix.PAXOS, groups=False, has_holes=False), stream(seed, "aimed")
    swarm = drawn.swarm
    steps: list[Strike | Order] = []
    for _ in range(rng.randint(2, 8)):
        nodes, at_s = rng.sample(swarm.nodes, len(swarm.nodes)), rng.uniform(0.3, swarm.chaos_s)
        lasts_s = rng.choice((0.05, 0.5, 2.0)) * rng.uniform(0.5, 2.0)
        steps.append(Strike(at_s, rng.choice(hunt.strikes), tuple(nodes), lasts_s, rng.random()))
    for _ in range(hunt.moves):
        at_s = rng.uniform(0.3, swarm.chaos_s)
        steps.append(Order(at_s, "move", rng.choice(swarm.nodes), rng.randrange(1_000), 2.0))
    topics = tuple(structs.replace(topic, factor=hunt.factor or topic.factor) for topic in swarm.traffic.topics)
    settings = dict(swarm.settings) | {"paxos.journal.max.entries": rng.choice(JOURNAL_ENTRIES)}
    swarm = structs.replace(swarm, settings=settings, traffic=structs.replace(swarm.traffic, topics=topics))
    return structs.replace(drawn, swarm=swarm, steps=tuple(sorted(steps, key=lambda step: step.at_s)))


def scenarios(hunt: Hunt) -> Iterator[Scenario]:
    drawn = (aimed(hunt, seed) for seed in range(hunt.start, hunt.start + SEEDS_MAX))
    yield from (scenario for scenario in drawn if scenario.swarm.traffic.topics)


def find(hunt: Hunt) -> None:
    with hunt.mutant():
        found = next((scenario for scenario in scenarios(hunt) if run_scenario(scenario).violations), None)
    assert found is not None, hunt.mutant.__doc__
    assert run_scenario(found).violations == (), "and it is the mutant that was found"


@pytest.mark.parametrize("hunt", AT_ONCE, ids=lambda hunt: hunt.mutant.__name__)
def test_an_obvious_bug_is_found_at_once(hunt: Hunt) -> None:
    find(hunt)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("hunt", HUNTS, ids=lambda hunt: hunt.mutant.__name__)
def test_a_planted_bug_is_found(hunt: Hunt) -> None:
    find(hunt)


def test_a_batch_that_counts_behind_a_hole_is_noticed() -> None:
    """Each rule is broken by itself: of what replicas apply, and of what leaders propose."""
    scenario = decode_scenario((DIRECTORY / "batches-behind-a-hole.json").read_text())
    for broken in (rules.batches_count_behind_a_gap, rules.batches_need_nothing_below):
        with rules.mutated(broken):
            assert run_scenario(scenario).violations, broken.__name__


def test_all_of_them_are_hunted() -> None:
    assert [mutant for mutant in mutants.MUTANTS if mutant not in [hunt.mutant for hunt in HUNTS]] == []
