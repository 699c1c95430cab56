"""The sweep: a small share of its patterns; each combination of what is drawn, slow; and the planted bug that it has
to find."""

from __future__ import annotations

import pytest

from tests.sim.storage.test_log_mutants import truncate_a_bad_tail
from tidelog.sim.sweep import partitions
from tidelog.sim.sweep.__main__ import again, parse, series_of
from tidelog.sim.sweep.cases import ENTRIES, Case, Damage, Plan, Protocol, Stop, Variant
from tidelog.sim.sweep.rounds import Played, Series, play_all
from tidelog.sim.sweep.tally import Tally
from tidelog.sim.sweep.verdicts import Result

SOME = 12
SAMPLES = {Protocol.ISR: 16, Protocol.PAXOS: 16, Protocol.METADATA: 4}
"""Patterns of each combination."""
PARTITIONS = (Protocol.ISR, Protocol.PAXOS)
STORIES = (
    (Stop.CLEAN, Damage.EIO, Variant.PLAIN),
    (Stop.IDLE, Damage.ZERO, Variant.DIRECTORY),
    (Stop.ACKNOWLEDGED, Damage.FLIP, Variant.DISK),
    (Stop.POWER, Damage.CUT, Variant.BEHIND),
)


def _play(
    protocol: Protocol, stop: Stop, damage: Damage, variant: Variant, patterns: int, *, seed: int = 1
) -> list[Played]:
    series = Series(Plan(protocol, stop, variant, seed), damage, patterns=patterns, size=patterns)
    return [*play_all([series], jobs=1)]


def _failures(played: list[Played]) -> list[str]:
    tally = Tally()
    for one in played:
        tally.add(one)
    return tally.failures


def test_most_patterns_leave_a_good_copy_of_each_entry() -> None:
    nodes = range(1, 4)
    good = [
        pattern
        for pattern in range(Variant.PLAIN.patterns)
        if not any(all(Case(pattern, Damage.FLIP).hits(entry, node, 3) for node in nodes) for entry in range(ENTRIES))
    ]
    assert (Variant.PLAIN.patterns, len(good)) == (4_096, 2_401)


@pytest.mark.parametrize(
    ("stop", "damage", "variant", "protocol"),
    [
        pytest.param(*story, protocol, marks=[] if number % 2 == other else pytest.mark.slow)
        for number, story in enumerate(STORIES)
        for other, protocol in enumerate(PARTITIONS)
    ],
)
def test_entries_with_a_good_copy_are_read_and_others_are_told(
    protocol: Protocol, stop: Stop, damage: Damage, variant: Variant
) -> None:
    played = _play(protocol, stop, damage, variant, SOME)
    assert _failures(played) == []
    results = [result for one in played for result in one.results]
    assert len(results) == SOME
    assert any(not result.lost for result in results), "no pattern leaves a good copy of each entry"
    lost = [result for result in results if result.lost]
    assert lost, "no pattern takes all copies of an entry"
    assert all(result.answered == result.lost for result in lost)


@pytest.mark.parametrize("stop", [Stop.IDLE, Stop.ACKNOWLEDGED])
def test_the_metadata_log_has_all_entries_or_waits_and_says_what_to_do(stop: Stop) -> None:
    played = _play(Protocol.METADATA, stop, Damage.FLIP, Variant.PLAIN, SOME)
    assert _failures(played) == []
    results = [result for one in played for result in one.results]
    assert {bool(result.lost) for result in results} == {False, True}
    assert all(result.answered == result.lost for result in results)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stop", "damage", "variant", "patterns", "seed"),
    [
        pytest.param(Stop.POWER, Damage.FLIP, Variant.BEHIND, 32, 13, id="a row made again ended every start"),
        pytest.param(Stop.POWER, Damage.FLIP, Variant.DIRECTORY, 32, 0, id="an election waited for a lost vote"),
        pytest.param(Stop.POWER, Damage.ZERO, Variant.DISK, 32, 13, id="a follower waited for a lost disk"),
        pytest.param(Stop.CLEAN, Damage.FLIP, Variant.DIRECTORY, 16, 2, id="a copier gave up what had come"),
    ],
)
def test_rounds_of_paxos_that_failed_once(
    stop: Stop, damage: Damage, variant: Variant, patterns: int, seed: int
) -> None:
    assert _failures(_play(Protocol.PAXOS, stop, damage, variant, patterns, seed=seed)) == []


def test_a_round_is_the_same_again() -> None:
    first, second = (_play(Protocol.PAXOS, Stop.POWER, Damage.ZERO, Variant.PLAIN, 4) for _ in range(2))
    assert first == second


def test_a_bad_tail_that_is_truncated_is_found() -> None:
    with truncate_a_bad_tail():
        failures = _failures(_play(Protocol.ISR, Stop.ACKNOWLEDGED, Damage.FLIP, Variant.PLAIN, SOME))
    assert any(failure.startswith(("lost:", "silent:", "wrong:")) for failure in failures), failures


def test_a_round_that_breaks_is_told_and_the_others_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(written: partitions.Written, cases: list[Case], seed: str) -> list[Result]:
        if seed.endswith("/0"):
            raise LookupError("a story that breaks")
        return await whole(written, cases, seed)

    whole = partitions.play
    monkeypatch.setattr(partitions, "play", play)
    series = Series(Plan(Protocol.ISR, Stop.CLEAN, Variant.PLAIN, seed=1), Damage.FLIP, patterns=4, size=2)
    first, second = play_all([series], jobs=1)
    assert (first.results, first.errors) == ([], ["the round broke: LookupError: a story that breaks"])
    assert (len(second.results), second.errors) == (2, [])


def test_a_failure_names_the_command_that_plays_its_round_again() -> None:
    series = Series(Plan(Protocol.PAXOS, Stop.POWER, Variant.FIVE, seed=3), Damage.CUT, patterns=130)
    options = parse(again(series, 2).split()[3:])
    assert (series_of(options), options.round) == ([series], 2)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("variant", Variant)
@pytest.mark.parametrize("protocol", Protocol)
def test_each_stop_with_each_damage(protocol: Protocol, variant: Variant) -> None:
    size = SAMPLES[protocol]
    plans = [Plan(protocol, stop, variant, seed=2) for stop in Stop]
    many = [Series(plan, damage, patterns=size, size=size) for plan in plans for damage in Damage]
    assert _failures([*play_all(many, jobs=1)]) == []
