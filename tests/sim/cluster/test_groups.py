"""Consumer groups in simulated clusters: histories told by hand, and a few drawn ones."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.sim.cluster import group_mutants as mutants
from tests.sim.cluster.stage import scenario
from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.group_traffic import GroupPlan, GroupTraffic, MemberPlan, Mishap
from tidelog.sim.cluster.run import run_scenario, run_seed, shrink
from tidelog.sim.cluster.scenario import Order, Scenario, Strike, decode_scenario, encode_scenario
from tidelog.sim.cluster.traffic import ProducerPlan, TopicPlan, Traffic
from tidelog.sim.kit.history import Kind
from tidelog.sim.kit.outcome import Outcome

SEED = 6
"""With a short run."""
PARTITIONS = 3
SETTINGS: dict[str, int | str] = {
    "offsets.topic.num.partitions": 1,
    "group.min.session.timeout.ms": 300,
    "group.consumer.session.timeout.ms": 1_000,
    "group.consumer.heartbeat.interval.ms": 100,
}


def group(
    *steps: Strike | Order | Mishap,
    traffic: GroupTraffic | None = None,
    instance_id: str | None = None,
    **settings: int,
) -> Scenario:
    """Three brokers and one topic of three partitions, which two members share."""
    topic = TopicPlan("datag0", PARTITIONS, 3, {"segment.bytes": "1024"})
    producers = tuple(ProducerPlan(f"p{p}", Kind.IDEMPOTENT, -1, topic.name, p) for p in range(PARTITIONS))
    members = tuple(MemberPlan((topic.name,), instance_id=instance_id and f"{instance_id}{i}") for i in range(2))
    base = scenario()
    swarm = structs.replace(
        base.swarm,
        settings=base.swarm.settings | SETTINGS | {name.replace("_", "."): value for name, value in settings.items()},
        traffic=Traffic((topic,), producers),
        groups=structs.replace(traffic or GroupTraffic(), groups=(GroupPlan("g", members),)),
    )
    return structs.replace(base, swarm=swarm, steps=steps)


def seen(outcome: Outcome, *names: str) -> bool:
    """It went well, and these happened."""
    assert outcome.violations == ()
    assert outcome.counters["group at rest"] == 1
    return all(outcome.counters[name] > 0 for name in names)


@pytest.mark.slow
def test_everything_is_handed_out_once_when_nothing_happens() -> None:
    outcome = run_scenario(group(Strike(1.0, "jump", (1,), 0.1, 0.5)))
    assert seen(outcome, "group: records handed out")
    assert outcome.counters["group: records handed out again"] == 0
    assert outcome.counters["group: member expelled"] == 0


@pytest.mark.slow
def test_members_fall_silent_are_slow_and_die() -> None:
    mishaps = [
        Mishap(0.8, "crash", 0, 0, 0.3, 0.0),
        Mishap(1.2, "sleep", 0, 1, 0.0, 1.0),
        Mishap(2.2, "dawdle", 0, 0, 1.0, 1.0),
    ]
    outcome = run_scenario(group(*mishaps))
    assert seen(outcome, "group: member expelled", "mishap: crash", "mishap: dawdle")


def test_the_coordinators_broker_is_lost_and_another_takes_over() -> None:
    strikes = [Strike(0.7 + node, "crash", (node,), 0.8, 0.5) for node in (1, 2, 3)]
    assert seen(run_scenario(group(*strikes)), "coordinator failed over with members")


@pytest.mark.slow
def test_a_coordinator_that_has_no_other_broker_is_waited_for() -> None:
    strikes = [Strike(0.7 + node, "kill", (node,), 0.9, 0.5) for node in (1, 2, 3)]
    assert seen(run_scenario(group(*strikes, offsets_topic_replication_factor=1)), "shard loaded with live members")


@pytest.mark.slow
def test_requests_come_late_twice_and_without_answers() -> None:
    traffic = GroupTraffic(late_rate=0.2, twice_rate=0.2, mute_rate=0.2)
    outcome = run_scenario(group(Mishap(1.5, "leave", 0, 0, 0.3, 0.0), traffic=traffic))
    assert seen(outcome, "group: late commit refused by its sequence")


@pytest.mark.slow
def test_offsets_are_copied_forward() -> None:
    traffic = GroupTraffic(copied_from_records=40, copied_at_once=2)
    outcome = run_scenario(group(Strike(1.5, "power cut of all", (1,), 0.3, 0.5), traffic=traffic))
    assert seen(outcome, "committed offsets copied forward", "shard loaded with live members")


@pytest.mark.slow
def test_a_static_member_has_its_partitions_again() -> None:
    outcome = run_scenario(group(Mishap(1.5, "leave", 0, 0, 0.1, 0.0), instance_id="i"))
    assert seen(outcome, "group: static member returned")


@pytest.mark.slow
def test_partitions_that_come_are_given_to_somebody() -> None:
    assert seen(run_scenario(group(Mishap(1.5, "grow", 0, 0, 0.1, 0.0))), "mishap: grow")


@pytest.mark.slow
def test_a_member_that_does_not_mind_its_lease_is_noticed() -> None:
    """More planted bugs: tests/sim/cluster/test_group_mutants.py."""
    asleep = group(Mishap(1.0, "sleep", 0, 1, 0.0, 1.0))
    with mutants.deliver_without_a_lease():
        assert any(violation.startswith("exclusive") for violation in run_scenario(asleep).violations)


@pytest.mark.slow
def test_a_failing_scenario_becomes_smaller() -> None:
    asleep = Mishap(1.0, "sleep", 0, 1, 0.0, 1.0)
    with mutants.deliver_without_a_lease():
        smaller = shrink(group(Mishap(0.8, "grow", 0, 0, 0.1, 0.0), asleep, Strike(2.0, "jump", (1,), 0.1, 0.5)))
    assert smaller.steps == (asleep,)
    assert len(smaller.swarm.groups.groups[0].members) == 2, "it takes two"


def test_no_seed_breaks_a_rule() -> None:
    """More: `tidelog sim --of cluster --groups --runs N`."""
    outcome = run_seed(SEED, groups=True)
    assert outcome.violations == ()
    assert outcome.counters["runs with groups"] == 1


def test_a_scenario_on_paper_is_the_same() -> None:
    drawn = draw_scenario(8, groups=True)
    assert drawn.swarm.groups.groups
    assert any(isinstance(step, Mishap) for step in drawn.steps)
    assert decode_scenario(encode_scenario(drawn)) == drawn


def test_without_groups_a_seed_is_what_it_was() -> None:
    drawn = draw_scenario(9, groups=False)
    assert not drawn.swarm.groups.groups
    assert not any(isinstance(step, Mishap) for step in drawn.steps)
    assert not any(name.startswith(("group", "offsets")) for name in drawn.swarm.settings)
