"""Accepted losses: stories in which the last good copy comes back too late, and planted bugs that they have to show."""

from __future__ import annotations

import pytest

from tests.sim.cluster import loss_mutants as mutants
from tests.sim.planting import Mutant
from tidelog.model.ids import TopicPartition
from tidelog.model.losses import AcceptedLoss, LostRanges
from tidelog.sim.cluster.book import Book
from tidelog.sim.cluster.clients import ClusterHistory
from tidelog.sim.cluster.families import Family
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.run import run_scenario, run_story
from tidelog.sim.cluster.shadows import Held
from tidelog.sim.cluster.stories import draw_story
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.patching import patched

STORIES = 10
"""More: `make sim-stories STORY=late RUNS=200`."""
TOLD = {"isr": 1, "paxos": 5}
"""A story of each protocol, whose good copy comes back."""


@pytest.mark.parametrize("protocol", TOLD)
def test_a_good_copy_that_comes_back_too_late_is_shown_to_nobody(protocol: str) -> None:
    story = draw_story(Family.LATE, TOLD[protocol])
    assert [topic.protocol for topic in story.swarm.traffic.topics] == [protocol]
    outcome = run_scenario(story)
    assert outcome.violations == ()
    assert outcome.counters["loss accepted"] == 1
    assert outcome.counters["good copy comes back too late"] == 1
    assert outcome.counters["loss passed by the reader of a copy"] == 5, "two replicas before, three after"
    with mutants.undo_an_accepted_loss_by_a_late_copy():
        assert any("was given up" in violation for violation in run_scenario(story).violations)


def test_the_history_knows_what_is_given_up() -> None:
    where = TopicPartition("data0", 0)
    book = Book("data0-0", is_volatile=False, batches=[Held(0, 10, 0, 1)])
    book.given_up = LostRanges([AcceptedLoss(5, 7, 0, "tester", 1)])

    async def told() -> list[str]:
        ledger = Ledger()
        history = ClusterHistory(ledger)
        with patched(ledger, "book_of", lambda _: book):
            history.check_passed(where, [(5, 7)])
            for offset in (4, 7):
                history.show(history.recorder.invoke("r", "poll"), where, [(offset, b"")], high_watermark=10, epoch=0)
            assert history.violations == []
            history.check_passed(where, [(4, 7)])
            history.show(history.recorder.invoke("r", "poll"), where, [(6, b"")], high_watermark=10, epoch=0)
        return history.violations

    assert run(told) == [
        "data0-0: offsets 4 to 6 are passed, and nobody has given them up",
        "data0-0: offset 6 was given up, and is shown",
    ]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    with mutant():
        found = next((seed for seed in range(STORIES) if run_story(Family.LATE, seed).violations), None)
    assert found is not None, mutant.__doc__
    assert run_story(Family.LATE, found).violations == (), "and it is the mutant that was found"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_accepted_losses_stay_accepted() -> None:
    outcomes = [run_story(Family.LATE, seed) for seed in range(STORIES)]
    assert [outcome.violations for outcome in outcomes if outcome.violations] == []
    assert sum(outcome.counters["loss accepted"] for outcome in outcomes) > STORIES / 2
