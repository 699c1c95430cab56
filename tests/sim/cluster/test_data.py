"""Clusters with data: histories told by hand, a few drawn ones, and planted bugs of replication.

Histories keep the traffic small; what must be true of it is for the ledger and the checkers to say.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.sim.broker.mutants import serve_above_the_high_watermark
from tests.sim.cluster import replica_mutants as mutants
from tests.sim.cluster.stage import scenario
from tests.sim.planting import Mutant
from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.run import run_scenario, run_seed
from tidelog.sim.cluster.scenario import Order, Strike
from tidelog.sim.cluster.traffic import Mix

SEEDS_MAX = 500
FIRST_SEED = 1_000
OBVIOUS: tuple[Mutant, ...] = (mutants.acknowledge_before_replication, serve_above_the_high_watermark)
ALSO_OBVIOUS: tuple[Mutant, ...] = (mutants.memory_counts_as_disk, mutants.commit_with_the_wanted_set)


def test_replicas_are_equal_when_nothing_happens() -> None:
    outcome = run_scenario(scenario(Strike(2.0, "jump", (1,), 0.1, 0.5)))
    assert outcome.violations == ()
    assert outcome.counters["replicas compared"] == 1
    assert outcome.counters["records acknowledged"] > 20


@pytest.mark.parametrize(
    ("durability", "kind"),
    [
        ("fsynced", "isolate"),
        ("replicated", "crash"),
        pytest.param("fsynced", "crash", marks=pytest.mark.slow),
        pytest.param("replicated", "isolate", marks=pytest.mark.slow),
    ],
)
def test_each_broker_in_turn_is_lost_and_comes_back(kind: str, durability: str) -> None:
    strikes = [Strike(0.5 + node, kind, (node,), 0.9, 0.5) for node in (1, 2, 3)]
    outcome = run_scenario(scenario(*strikes, ack_durability=durability))
    assert outcome.violations == ()
    assert outcome.counters["failover"] >= 1
    assert outcome.counters["ISR expands"] >= 1
    assert outcome.counters["excused loss of what memory held"] == 0


def test_a_replaced_disk_is_filled_again() -> None:
    outcome = run_scenario(scenario(Strike(1.0, "wipe", (2,), 0.3, 0.5)))
    assert outcome.violations == ()
    assert outcome.counters["disk wiped"] == 1


def test_a_power_cut_of_all_loses_nothing_that_was_on_disks() -> None:
    outcome = run_scenario(scenario(Strike(1.5, "power cut of all", (1,), 0.3, 0.5)))
    assert outcome.violations == ()


@pytest.mark.slow
def test_too_few_in_sync_commit_nothing() -> None:
    strikes = [Strike(1.0, "kill", (node,), 1.5, 0.5) for node in (1, 2)]
    outcome = run_scenario(scenario(*strikes))
    assert outcome.violations == ()
    assert outcome.counters["ISR shrinks below the minimum"] >= 1
    with mutants.commit_with_too_few():
        assert run_scenario(scenario(*strikes)).violations


def test_replicas_move_while_clients_write() -> None:
    orders = [
        Order(0.5 + number / 2, kind, 2, 0, 2.0) for number, kind in enumerate(("move", "move", "prefer", "move"))
    ]
    outcome = run_scenario(scenario(*orders, Strike(1.2, "leader dies", (1,), 0.5, 0.0)))
    assert outcome.violations == ()
    assert outcome.counters["order: move"] == 3


def test_what_an_unclean_election_loses_is_excused_and_nothing_else() -> None:
    strikes = [Strike(0.5 + number, "last one leaves", (1,), 0.5, 0.0) for number in range(3)]
    outcome = run_scenario(scenario(*strikes, minimum=1, unclean_leader_election_enable="true"))
    assert outcome.violations == ()
    assert outcome.counters["unclean election"] >= 1


@pytest.mark.parametrize("kind", ["rot of a replica", pytest.param("rot of all copies", marks=pytest.mark.slow)])
def test_damaged_batches_are_repaired(kind: str) -> None:
    outcome = run_scenario(scenario(Strike(2.5, kind, (3,), 0.4, 0.9)))
    assert outcome.violations == ()
    assert outcome.counters["batch rotted"] >= 3
    assert outcome.counters["batch repaired from a peer"] >= 2


@pytest.mark.parametrize(
    "mutant",
    [*OBVIOUS, *(pytest.param(mutant, marks=pytest.mark.slow) for mutant in ALSO_OBVIOUS)],
    ids=lambda mutant: mutant.__name__,
)
def test_an_obvious_bug_is_found_at_once(mutant: Mutant) -> None:
    with mutant():
        assert run_scenario(scenario(Strike(1.0, "pause", (1,), 1.5, 0.5))).violations


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    drawn = range(FIRST_SEED, FIRST_SEED + SEEDS_MAX)
    seeds = (seed for seed in drawn if draw_scenario(seed, groups=False).swarm.traffic.topics)
    play = partial(run_seed, mix=Mix.ISR, groups=False, families=())  # a seed stays the same with another family
    with mutant():
        found = next((seed for seed in seeds if play(seed).violations), None)
    assert found is not None, mutant.__doc__
    assert play(found).violations == (), "and it is the mutant that was found"
