"""Stories with messages that no correct broker has sent: they have no effect, whoever sends them; and planted bugs of
belief show in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from tests.series import seeds
from tests.sim.cluster import forged_mutants as mutants
from tests.sim.planting import Mutant
from tidelog.broker.peer_claims import CLAIMS
from tidelog.broker.peer_service import PEER_MESSAGES
from tidelog.controller.command_table import NO_CLAIM
from tidelog.sim.cluster import forging
from tidelog.sim.cluster.families import Family
from tidelog.sim.cluster.forged_strikes import KINDS
from tidelog.sim.cluster.run import run_scenario, run_story
from tidelog.sim.cluster.stories import draw_story

REFUSED = (
    "ForeignSender",
    "ImplausibleNumber",
    "BrokerNotRegistered",
    "unreadable",
    "answer: unreadable",
    "answer: number",
)
HUNTED = 12
"""Stories that a hunt tells at most (docs/testing.md has what it took)."""
SHOWN = {
    mutants.believe_any_name: 1,
    mutants.promise_any_number: 0,
    mutants.believe_a_hello: 10,
    mutants.serve_strangers: 17,
    mutants.believe_any_answer: 5,
}
"""The seed from which each planted bug is hunted, shortly before the first that shows it."""
FORGED = (
    "another sender",
    "another epoch",
    "an impossible number",
    "another's connection",
    "reports of a follower",
    "a huge ballot",
    "as it is, by a stranger",
    "an impossible number, by a stranger",
    "an unheard number in an answer",
    "another kind in an answer",
    "untold bytes in an answer",
)


@pytest.mark.timeout(300)
@seeds(7, 300, first=22)
def test_forged_messages_are_refused_and_have_no_effect(seeds: Sequence[int]) -> None:
    counters: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_story(Family.FORGED, seed)
        assert outcome.violations == (), seed
        counters += outcome.counters
    assert all(counters[f"fault: {kind}"] for kind in KINDS)
    assert all(counters[f"forged: {how}"] for how in FORGED)
    assert all(counters[f"refused: {why}"] for why in REFUSED)


def test_a_story_is_a_function_of_its_seed() -> None:
    assert run_story(Family.FORGED, 13).trace == run_story(Family.FORGED, 13).trace


def test_all_kinds_of_messages_that_name_their_sender_are_forged() -> None:
    """The simulator's own table names the fields; `via` of what administrators ask is no broker's report."""
    names = {message.__name__: CLAIMS[message].node for message in PEER_MESSAGES if CLAIMS[message] is not NO_CLAIM}
    assert {name: field for name, field in names.items() if field != "via"} == {**forging.NAMES_NODE}
    assert {*forging.NAMES_ENGINE, *forging.OF_NEWCOMERS} < {message.__name__ for message in PEER_MESSAGES}


def test_one_number_is_changed_and_nothing_else() -> None:
    message = {"type": "X", "a": 1, "b": [2, {"c": 3}], "d": True, "e": "s"}
    for draw in range(50):
        changed = forging.with_impossible_number(message, Random(draw))
        assert changed is not None and changed != message
        same = [changed["a"] == 1, changed["b"][0] == 2, changed["b"][1]["c"] == 3]
        assert same.count(False) == 1 and changed["d"] is True and changed["e"] == "s"
    assert forging.with_impossible_number({"type": "X"}, Random(0)) is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.__name__) for mutant in mutants.MUTANTS])
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    first = SHOWN[mutant]
    assert any(is_found(mutant, seed) for seed in range(first, first + HUNTED)), mutant.__doc__


def test_all_of_them_are_planted() -> None:
    assert {*SHOWN} == {*mutants.MUTANTS}


def is_found(mutant: Mutant, seed: int) -> bool:
    """True if the mutant breaks a rule in this story, and the shipped code does not."""
    story = draw_story(Family.FORGED, seed, has_holes=False)
    with mutant():
        is_broken = bool(run_scenario(story).violations)
    return is_broken and not run_scenario(story).violations
