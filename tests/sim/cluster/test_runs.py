"""Whole clusters in simulation: what is written here are histories told by hand, and a few dozen drawn ones."""

from __future__ import annotations

from tidelog.sim.cluster.run import run_scenario
from tidelog.sim.cluster.scenario import Order, Scenario, Strike, Swarm

SETTINGS: dict[str, int | str] = {
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 1_500,
    "metadata.log.snapshot.records": 20,
}


def scenario(*steps: Strike | Order, voters: int = 3, learners: int = 0) -> Scenario:
    swarm = Swarm(
        voters=voters,
        learners=learners,
        chaos_s=2.0,
        delay_min_s=0.0005,
        delay_mean_s=0.001,
        disk_delay_s=0.001,
        clock_drift=0.0,
        settings=SETTINGS,
    )
    return Scenario(1, swarm, steps)


def test_a_broker_joins_that_nobody_knows() -> None:
    """It is no voter, and no heartbeat reaches it before it has registered: it asks the voters where the leader is."""
    for voters in (1, 3):
        outcome = run_scenario(scenario(voters=voters, learners=2))
        assert outcome.violations == ()
        assert outcome.counters["broker unfenced"] >= voters + 2


def test_commands_given_to_any_broker_are_carried_out() -> None:
    orders = [Order(0.3 + node / 10, "create", node, 4, 5.0) for node in (1, 2, 3)]
    outcome = run_scenario(scenario(*orders))
    assert outcome.violations == ()
    assert outcome.counters["command ok"] == 3
    assert outcome.counters["forwarded command"] == 2


def test_a_full_disk_is_waited_for() -> None:
    """What the metadata log has no room for is written when there is, without a restart."""
    orders = [Order(0.3 + number / 10, "create", 2, 4, 5.0) for number in range(8)]
    strikes = [Strike(0.2, "full disk", (node,), 1.0, 0.1) for node in (1, 2, 3)]
    outcome = run_scenario(scenario(*strikes, *orders))
    assert outcome.violations == ()
    assert outcome.counters["command ok"] == 8
    assert outcome.counters["registered again"] == 0


def test_a_broker_whose_metadata_disk_has_failed_ends_and_is_started_again() -> None:
    orders = [Order(0.3 + number / 10, "create", 2, 4, 5.0) for number in range(8)]
    outcome = run_scenario(scenario(Strike(0.2, "sync error", (3,), 3.0, 1.0), *orders))
    assert outcome.violations == ()
    assert outcome.counters["broker gave up"] >= 1
