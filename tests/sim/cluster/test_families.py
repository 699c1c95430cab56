"""Families of faults that are asked for: what they change of a seed, that their stories hit what they name, and the
histories that failed once.

`kept/families/<family>/<what went wrong>.json` holds scenarios that break a rule as long as the family is not mended.
They are skipped until it is turned on (`tidelog.sim.cluster.families.ON`), and must pass from then on. Whoever works on
a family runs one with `python -m tidelog.sim.cluster --trace --scenario "$(cat FILE)"`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec import structs

from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.families import KINDS, ON, Family, families_of
from tidelog.sim.cluster.orders import HOLES
from tidelog.sim.cluster.run import run_scenario
from tidelog.sim.cluster.scenario import Swarm, decode_scenario, encode_scenario
from tidelog.sim.cluster.stories import draw_story

KEPT = Path(__file__).parent / "kept" / "families"
SEEDS = 100
STORIES = 5
FEW_STORIES = 2
"""Where the rest is slow."""
OLD_DIRECTORIES = 20
"""More: `make sim-stories STORY=old RUNS=200`, which counts the same."""
HIT = {
    Family.TAIL: ("last batch damaged", "last entry damaged"),
    Family.MISSING: ("directory robbed",),
    Family.SWAPPED: ("directory robbed",),
    Family.OLD: ("old directory put back",),
    Family.METADATA: ("metadata lost",),
    Family.APART: ("logs and journals hit apart",),
    Family.EMPTIED: ("last batch damaged beside an emptied replica",),
    Family.SWEEP: ("pattern of damage",),
    Family.LATE: ("good copy comes back too late",),
    Family.EIO: ("sectors became unreadable",),
    Family.LANES: ("lane broken", "lane stalled", "fault: late frames"),
    Family.HOLES: ("write lost", "value released past a hole"),
    Family.HUNG: ("somebody hung",),
    Family.FORGED: ("forged: ",),
}
"""How the counts of a story begin that has done what it is about, by family."""
LONG = (
    Family.MISSING,
    Family.METADATA,
    Family.APART,
    Family.OLD,
    Family.LATE,
    Family.SWEEP,
    Family.SWAPPED,
    Family.EIO,
    Family.EMPTIED,
    Family.HUNG,
    Family.FORGED,
)
"""The families with long stories, and one that has a test of its own (`test_forged.py`)."""


def test_names_of_families() -> None:
    assert families_of("missing,tail") == (Family.MISSING, Family.TAIL)
    assert families_of("all") == tuple(Family)
    assert families_of("none") == ()
    with pytest.raises(ValueError, match="tali"):
        families_of("tail,tali")


def test_a_family_adds_strikes_and_changes_nothing_else() -> None:
    kinds = {kind for kinds in KINDS.values() for kind in kinds}
    holes = {kind for family in HOLES for kind in KINDS[family]}
    added = set[str]()
    for seed in range(SEEDS):
        without, all_of_them = (draw_scenario(seed, families=families) for families in ((), tuple(Family)))
        # Topics without total order have lanes and holes in either.
        assert without_lanes(all_of_them.swarm) == without_lanes(without.swarm)
        assert [step for step in all_of_them.steps if step.kind not in kinds] == [
            step for step in without.steps if step.kind not in holes
        ]
        added.update(step.kind for step in all_of_them.steps)
    assert kinds <= added


def without_lanes(swarm: Swarm) -> Swarm:
    return structs.replace(swarm, settings={**swarm.settings, "paxos.peer.lanes": 1})


@pytest.mark.parametrize(
    ("family", "count"),
    [(family, FEW_STORIES) for family in Family if family not in LONG]
    + [pytest.param(family, STORIES, marks=pytest.mark.slow) for family in Family],
)
def test_a_story_hits_what_it_is_about(family: Family, count: int) -> None:
    stories = [draw_story(family, seed) for seed in range(count)]
    assert [decode_scenario(encode_scenario(story)) for story in stories] == stories
    counters = [run_scenario(story).counters for story in stories]
    hits = [hit for counted in counters for name, hit in counted.items() if name.startswith(HIT[family])]
    assert sum(hits) >= count / 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_old_directory_is_recognised_and_nothing_is_lost() -> None:
    """Half of them are copied after a stop, the rest while their broker runs; it may be the first to start, or not."""
    counted = Counter[str]()
    for seed in count():
        outcome = run_scenario(draw_story(Family.OLD, seed))
        assert outcome.violations == (), seed
        counted += outcome.counters
        if counted["old directory put back"] == OLD_DIRECTORIES:
            break
    assert counted["old directory recognised"] == OLD_DIRECTORIES


def kept() -> Iterator[object]:
    """All of them; in a quick run, the first of each family."""
    for directory in sorted(KEPT.iterdir()):
        for number, path in enumerate(sorted(directory.glob("*.json"))):
            yield pytest.param(path, id=f"{directory.name}-{path.stem}", marks=[pytest.mark.slow] if number else [])


@pytest.mark.parametrize("path", [*kept()])
def test_what_failed_once(path: Path) -> None:
    family = Family(path.parent.name)
    if family not in ON:
        pytest.skip(f"the family {family} is not turned on yet")
    scenario = decode_scenario(path.read_text())
    assert {step.kind for step in scenario.steps} & {*KINDS[family]}
    assert run_scenario(scenario).violations == ()
