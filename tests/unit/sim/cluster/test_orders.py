"""Topics without total order in drawn scenarios, and the rules for what their leaders release and show early."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import PaxosCluster
from tests.unit.sim.cluster.test_majorities import NUMBER, PARTITION
from tidelog.model.cluster import TOTAL
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Kind, Slot, Value
from tidelog.replication.quorum import Majority
from tidelog.sim.cluster.book import Book
from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.early_reads import out_of_order
from tidelog.sim.cluster.families import KINDS, Family
from tidelog.sim.cluster.majorities import Majorities
from tidelog.sim.cluster.orders import HOLES
from tidelog.sim.cluster.paxos_log import Actor, PaxosLog
from tidelog.sim.cluster.stories import draw_story
from tidelog.sim.cluster.traffic import Mix
from tidelog.sim.paxos.truth import Violation

SEEDS = 200
BATCH = Value(Kind.APPEND, NUMBER, 5, 2, b"digest")
NOTHING = Value(Kind.NOP, 0)
GIVEN_UP = Value(Kind.NOP, 0, begin=1)
LEADER = Actor(1, 1, 1, "disk 1")


# -- what is drawn ---------------------------------------------------------------------------------------------------


def test_a_seed_is_the_same_but_for_topics_without_total_order() -> None:
    kinds = {kind for family in HOLES for kind in KINDS[family]}
    orders, spans = set[str](), set[str | None]()
    for seed in range(SEEDS):
        drawn, total = (draw_scenario(seed, Mix.PAXOS, groups=False, has_holes=holes) for holes in (True, False))
        free = [topic for topic in drawn.swarm.traffic.topics if topic.order != TOTAL]
        if not free:
            assert drawn == total
            continue
        assert [step for step in drawn.steps if step.kind not in kinds] == [*total.steps]
        assert len(drawn.swarm.traffic.producers) > len(total.swarm.traffic.producers)
        names = [topic.name for topic in free]
        assert all((plan.keys > 0) == (plan.topic in names) for plan in drawn.swarm.traffic.producers)
        orders.update(topic.order for topic in free)
        spans.update(topic.configs.get("commit.hole.span") for topic in free)
    assert orders == {"key", "none"} and len(spans) == 4


def test_stories_about_holes_have_no_topic_in_total_order() -> None:
    for seed in range(SEEDS):
        story = draw_story(Family.HOLES, seed)
        assert all(topic.order != TOTAL for topic in story.swarm.traffic.topics)
        assert story.swarm.settings["paxos.peer.lanes"]


# -- what is released ------------------------------------------------------------------------------------------------


def begun(*, is_volatile: bool = False) -> PaxosLog:
    """Returns the log of a partition of three in which two have the value of position 0 on disk."""
    majorities = Majorities()
    book = Book("t-0", is_volatile, is_paxos=True)
    majorities.created(PARTITION, book, PaxosCluster(3, 3).partition, lambda node: 0)
    log = majorities.logs[PARTITION]
    log.asks(LEADER, NUMBER, Majority((1, 2, 3)), -1)
    for engine_id in (1, 2):
        log.stored(engine_id, Slot(0, NUMBER, BATCH))
    return log


def rule_broken(violation: pytest.ExceptionInfo[Violation]) -> str:
    return str(violation.value).partition(":")[0]


def test_what_is_released_must_be_chosen() -> None:
    log = begun()
    log.releases(LEADER, 0, BATCH, ())
    assert log.is_released(5, 7) and log.is_released(6, 7) and not log.is_released(4, 6)
    with pytest.raises(Violation) as violation:
        log.releases(LEADER, 1, BATCH, ())
    assert rule_broken(violation) == "released was chosen"


def test_what_is_released_must_not_conflict_with_what_is_open_below() -> None:
    with pytest.raises(Violation) as violation:
        begun().releases(LEADER, 0, BATCH, (-1,))
    assert rule_broken(violation) == "released in order"


@pytest.mark.parametrize(
    ("value", "verdict", "is_right"),
    [
        (BATCH, Verdict.APPLIED, True),
        (BATCH, Verdict.VOID, False),
        (NOTHING, Verdict.NOTHING, False),
        (GIVEN_UP, Verdict.NOTHING, True),
    ],
)
def test_what_is_released_is_applied_as_it_is(value: Value, verdict: Verdict, *, is_right: bool) -> None:
    log = begun()
    log.releases(LEADER, 0, BATCH, ())
    log.truth.log.append((value, verdict))
    if is_right:
        log.comes_to_rest()
        return
    with pytest.raises(Violation) as violation:
        log.comes_to_rest()
    assert rule_broken(violation) == "released stays"


def test_what_is_released_must_be_applied_in_the_end_unless_memory_may_forget_it() -> None:
    log = begun()
    log.releases(LEADER, 0, BATCH, ())
    with pytest.raises(Violation, match="released stays"):
        log.comes_to_rest()
    volatile = begun(is_volatile=True)
    volatile.releases(LEADER, 0, BATCH, ())
    volatile.comes_to_rest()


def test_another_value_is_noticed_when_it_is_applied() -> None:
    log = begun()
    log.releases(LEADER, 0, BATCH, ())
    with pytest.raises(Violation, match="released stays"):
        log.applies(LEADER, Applied(0, NOTHING, Verdict.NOTHING))


# -- what is shown early ---------------------------------------------------------------------------------------------


def marks(*offsets: str) -> dict[int, frozenset[int | bytes]]:
    """Returns the marks of the offsets from 0 on: a letter for each."""
    return {offset: frozenset(letter.encode() for letter in letters) for offset, letters in enumerate(offsets)}


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [
        ([0, 1, 2, 3, 4], []),
        ([1, 0, 2, 3, 4], []),
        ([5, 0, 6, 2], []),
        ([2, 0], ["2 is shown without [0], which it follows"]),
        ([0, 2, 3, 4], ["4 is shown without [1], which it follows"]),
        ([0, 0], ["0 is shown twice", "0 is shown without [2], which it follows"]),
    ],
)
def test_records_with_a_mark_in_common_are_shown_in_order(shown: list[int], wrong: list[str]) -> None:
    """Offset 6 is in no final log that the client was told of: it was deleted."""
    assert [*out_of_order(shown, marks("a", "b", "a", "a", "ab", ""))] == wrong
