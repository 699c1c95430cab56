"""A few patterns of the sweep over real brokers; `make sweep-brokers` runs thousands."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.e2e.clusters import ISR, PAXOS, only, skipped_without_disks
from tests.e2e.sweep.cases import (
    DAMAGES,
    NODES,
    PATTERNS,
    PLAIN_DAMAGES,
    REPLICAS,
    WHERES,
    Case,
    Series,
    draw_cases,
    draw_patterns,
)
from tests.e2e.sweep.reading import Result
from tests.e2e.sweep.rounds import Round
from tidelog.sim.sweep.cases import ENTRIES, Damage, Stop, Variant, Where
from tidelog.sim.sweep.verdicts import Verdict

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

CASES = 12
SEED = 4


HELD = {
    ISR: (Stop.ACKNOWLEDGED, [*PLAIN_DAMAGES], [Where.LOG]),
    PAXOS: (Stop.ACKNOWLEDGED, [*PLAIN_DAMAGES], [*WHERES]),
}
"""The number of patterns drawn for each protocol."""


@only(ISR, PAXOS)
@pytest.mark.parametrize("series", [*Series])
def test_what_has_a_good_copy_comes_back_and_the_rest_is_told(tmp_path: Path, protocol: str, series: Series) -> None:
    rng = random.Random(SEED)
    stop, damages, wheres = HELD[protocol]
    patterns = [*draw_patterns(series, CASES, rng)]
    cases = draw_cases(patterns, rng, damages=damages, wheres=wheres, variant=Variant.PLAIN)
    told: list[Result] = []
    one = Round(cases, SEED, tmp_path, protocol=protocol, stop=stop, series=series, variant=Variant.PLAIN)
    one.play(told.append)
    assert sorted(result.case for result in told) == sorted(cases)
    assert [result for result in told if result.verdict is not Verdict.RECOVERED] == []
    assert all(result.answered_damaged == result.lost_entries for result in told)
    assert any(result.lost_entries for result in told) == (series is Series.SWEEP)


@only(ISR, PAXOS)
@pytest.mark.parametrize(("stop", "damage"), [(Stop.POWER, Damage.FLIP), (Stop.ACKNOWLEDGED, Damage.EIO)])
def test_the_same_on_disks_that_lose_power_or_sectors(
    tmp_path: Path, protocol: str, stop: Stop, damage: Damage
) -> None:
    rng = random.Random(SEED)
    patterns = [*draw_patterns(Series.SWEEP, CASES, rng)]
    cases = draw_cases(patterns, rng, damages=[damage], wheres=HELD[protocol][2], variant=Variant.PLAIN)
    told: list[Result] = []
    one = Round(cases, SEED, tmp_path, protocol=protocol, stop=stop, series=Series.SWEEP, variant=Variant.PLAIN)
    with skipped_without_disks():
        one.play(told.append)
    assert sorted(result.case for result in told) == sorted(cases)
    assert [result for result in told if result.verdict is not Verdict.RECOVERED] == []


def test_a_lost_log_is_not_waited_for_where_all_others_are_damaged(tmp_path: Path) -> None:
    """The last record has no good copy: one broker's log is gone, and those of the others are damaged there."""
    damaged = {node: [other for other in NODES if other != node] for node in NODES}
    patterns = [sum(1 << (ENTRIES - 1) * REPLICAS + other - 1 for other in damaged[node]) for node in NODES]
    cases = [
        Case(partition, patterns[partition % REPLICAS], Damage.ZERO, Where.LOG, NODES[partition % REPLICAS])
        for partition in range(CASES)
    ]
    told: list[Result] = []
    one = Round(
        cases,
        SEED,
        tmp_path,
        protocol=ISR,
        stop=Stop.ACKNOWLEDGED,
        series=Series.SWEEP,
        variant=Variant.DIRECTORY,
    )
    one.play(told.append)
    assert [result for result in told if result.verdict is not Verdict.RECOVERED] == []
    assert [result.answered_damaged for result in told] == [1] * CASES


def test_all_patterns_are_drawn_once_before_any_comes_again() -> None:
    drawn = [*draw_patterns(Series.SWEEP, PATTERNS, random.Random(SEED))]
    assert sorted(drawn) == [*range(PATTERNS)]
    cases = draw_cases(drawn, random.Random(SEED), damages=[*DAMAGES], wheres=[Where.LOG], variant=Variant.PLAIN)
    whole = [
        case for case in cases if all(any(not case.hits(entry, node) for node in (1, 2, 3)) for entry in range(ENTRIES))
    ]
    assert len(whole) == 2_401
