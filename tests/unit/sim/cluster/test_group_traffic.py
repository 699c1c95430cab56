"""Consumer groups that are drawn have the time that they need on the network that is drawn."""

from __future__ import annotations

import pytest

from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.group_traffic import (
    GroupPlan,
    GroupTraffic,
    MemberPlan,
    revocation_s,
    with_time_to_revoke,
)

SLOW = 0.03, 0.01
"""Seconds of a frame and of a flush, on the network on which members with 400 ms expelled each other for ever."""
QUICK = 0.0005, 0.0005
SEEDS = 50


def timeouts_ms(*drawn_ms: int, delays: tuple[float, float]) -> list[int]:
    """Returns what members get whose drawn timeouts are these."""
    members = tuple(MemberPlan(("t",), rebalance_timeout_ms=each) for each in drawn_ms)
    patient = with_time_to_revoke(GroupTraffic((GroupPlan("g", members),)), *delays)
    return [member.rebalance_timeout_ms for member in patient.groups[0].members]


def test_a_slow_network_gives_members_the_time_that_a_revocation_takes() -> None:
    least_ms, kept_ms = timeouts_ms(400, 3_000, delays=SLOW)
    assert 1_000 < least_ms < 3_000 == kept_ms


def test_on_a_quick_one_they_keep_what_was_drawn() -> None:
    assert timeouts_ms(400, 1_000, delays=QUICK) == [400, 1_000]


@pytest.mark.parametrize("more", [(0.01, 0.0, 0.0), (0.0, 0.01, 0.0), (0.0, 0.0, 0.01)])
def test_whatever_takes_longer_counts(more: tuple[float, float, float]) -> None:
    assert revocation_s(*more) > revocation_s(0.0, 0.0, 0.0)


def test_each_member_that_is_drawn_has_the_time() -> None:
    for seed in range(SEEDS):
        swarm = draw_scenario(seed, groups=True).swarm
        for member in (member for group in swarm.groups.groups for member in group.members):
            least_s = revocation_s(swarm.delay_mean_s, swarm.disk_delay_s, member.handling_s)
            assert member.rebalance_timeout_ms >= 1000 * least_s, seed
