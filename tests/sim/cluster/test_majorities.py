"""Topics that commit by majority, in simulated clusters: histories told by hand, and a few drawn ones."""

from __future__ import annotations

import pytest

from tests.sim.cluster.stage import scenario
from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.run import run_scenario
from tidelog.sim.cluster.scenario import Order, Scenario, Strike
from tidelog.sim.cluster.traffic import Mix

SEEDS = 1


def majorities(*steps: Strike | Order, learners: int = 0, durability: str = "fsynced") -> Scenario:
    return scenario(*steps, learners=learners, commit_protocol="paxos", ack_durability=durability)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["crash", "isolate"])
def test_each_broker_in_turn_is_lost_and_comes_back(kind: str) -> None:
    strikes = [Strike(0.5 + node, kind, (node,), 0.9, 0.5) for node in (1, 2, 3)]
    outcome = run_scenario(majorities(*strikes))
    assert outcome.violations == ()
    assert outcome.counters["leader of a majority replaced"] >= 1


def test_a_power_cut_of_all_loses_nothing() -> None:
    outcome = run_scenario(majorities(Strike(1.5, "power cut of all", (1,), 0.3, 0.5)))
    assert outcome.violations == ()
    assert outcome.counters["majority serves"] >= 2
    assert outcome.counters["records acknowledged"] > 20


def test_a_wiped_replica_is_another_member() -> None:
    outcome = run_scenario(majorities(Strike(1.0, "wipe", (2,), 0.3, 0.5)))
    assert outcome.violations == ()
    assert (outcome.counters["disk wiped"], outcome.counters["voters of a partition changed"] > 0) == (1, True)


@pytest.mark.slow
def test_who_answered_from_memory_and_was_killed_is_another_member() -> None:
    strikes = [Strike(0.8 + 1.5 * number, "crash", (node,), 0.3, 0.5) for number, node in enumerate((2, 3))]
    outcome = run_scenario(majorities(*strikes, durability="replicated"))
    assert outcome.violations == ()
    assert outcome.counters["voters of a partition changed"] > 0
    assert outcome.counters["records acknowledged"] > 20
    outcome = run_scenario(majorities(Strike(1.5, "power cut of all", (1,), 0.3, 0.5), durability="replicated"))
    assert (outcome.violations, outcome.counters["majority forgot what memory held"] > 0) == ((), True)


def test_replicas_move_while_clients_write() -> None:
    orders = [Order(1.0 + number / 2, "move", 2, 0, 2.0) for number in range(4)]
    outcome = run_scenario(majorities(*orders, Strike(1.7, "leader dies", (1,), 0.5, 0.0), learners=1))
    assert outcome.violations == ()
    assert outcome.counters["voters of a partition changed"] > 0


@pytest.mark.parametrize("mix", [Mix.PAXOS, Mix.MIXED])
def test_no_seed_breaks_a_rule(mix: Mix) -> None:
    """More: `tidelog sim --of cluster --protocol mixed --runs N`."""
    drawn = (draw_scenario(seed, mix, groups=False) for seed in range(100))
    chosen = [one for one in drawn if one.swarm.traffic.topics and one.swarm.chaos_s < 3][:SEEDS]
    assert [violation for one in chosen for violation in run_scenario(one).violations] == []
