"""The fill of a log whose majority has lost its votes: all that are left have to answer, and what they show between
them is the log. Against the rule as it is written, for whatever they may have."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.replication.paxos.events import VotersFound
from tidelog.replication.paxos.fill import Fill, Settled
from tidelog.replication.paxos.messages import PromiseResponse, Reply
from tidelog.replication.paxos.state import NOP, UNKNOWN, Kind, Slot, Value, given_up
from tidelog.replication.paxos.term import Term
from tidelog.replication.quorum import Unanimous

NUMBER = 100
ERA = 50
"""Births from here on say who votes."""
POSITIONS = 3


def value(number: int) -> Value:
    return Value(Kind.APPEND, number, 0, 1, b"%d" % number)


def voters(birth: int) -> Value:
    return Value(Kind.VOTERS, birth, digest=b"1,2")


def good(number: int, held: Value | None = None) -> Slot:
    return Slot(0, number, value(number) if held is None else held)


def bad(number: int, held: Value | None = None) -> Slot:
    return Slot(0, number, value(number) if held is None else held, faulty=True)


def nameless(number: int) -> Slot:
    return Slot(0, number, UNKNOWN, faulty=True)


def learned(held: Value, *, faulty: bool = False) -> Slot:
    return Slot(0, 0, held, learned=True, faulty=faulty)


def new_fill(members: int, settling: tuple[VotersFound, ...] = ()) -> Fill:
    left = Unanimous(range(members))
    return Fill(NUMBER, Term(0, left, left, settling=settling, voters_since=ERA, is_union=True), 0)


def answer(*slots: Slot | None, learned_end: int = 0) -> PromiseResponse:
    """One slot a position, from 0 on."""
    placed = [Slot(i, s.number, s.value, s.learned, s.faulty) for i, s in enumerate(slots) if s is not None]
    return PromiseResponse(Reply.ACCEPT, NUMBER, learned_end=learned_end, slots=tuple(placed))


def settle(*slots: Slot | None, settling: tuple[VotersFound, ...] = ()) -> list[Settled]:
    """Returns what is settled when each of those who are left has shown one slot, or none."""
    fill = new_fill(len(slots), settling)
    settled: list[Settled] = []
    for node, slot in enumerate(slots):
        assert settled == [], "nobody who is left may be left out"
        settled = fill.promised(node, answer(slot))
    return settled


PROPOSED = (False, True)
LEARNED_WHOLE = (True, True)
LEARNED_BY_NAME = (True, False)

CASES: dict[str, tuple[tuple[Slot | None, ...], tuple[Value, tuple[bool, bool]]]] = {
    "one whole copy is enough": ((good(5), None, None), (value(5), PROPOSED)),
    "the highest number wins": ((good(5), good(7), good(6)), (value(7), PROPOSED)),
    "proposed again, it is the same value": ((good(5), good(7, value(5))), (value(5), PROPOSED)),
    "the highest is damaged, and whole elsewhere": ((bad(7), good(7)), (value(7), PROPOSED)),
    "and whole under a lower number": ((bad(7, value(5)), good(5)), (value(5), PROPOSED)),
    "the highest is damaged: nobody else will bring it": ((bad(7), good(5)), (value(7), LEARNED_BY_NAME)),
    "all copies are damaged": ((bad(7), bad(7), None), (value(7), LEARNED_BY_NAME)),
    "one knows the name, another has lost it": ((nameless(7), bad(7)), (value(7), LEARNED_BY_NAME)),
    "one has it whole, another has lost its name": ((nameless(7), good(7)), (value(7), PROPOSED)),
    "the name is lost, and the number below has a whole copy": ((nameless(7), good(5)), (value(5), PROPOSED)),
    "and a damaged one": ((nameless(7), bad(5)), (value(5), LEARNED_BY_NAME)),
    "several names are lost": ((nameless(9), nameless(7), good(5)), (value(5), PROPOSED)),
    "no name is left": ((nameless(9), nameless(7), None), (NOP, PROPOSED)),
    "what is learned wins over every number": ((learned(value(5)), good(9)), (value(5), LEARNED_WHOLE)),
    "also if it is damaged": ((learned(value(5), faulty=True), good(9)), (value(5), LEARNED_BY_NAME)),
    "and whole where it was accepted": ((learned(value(5), faulty=True), good(5)), (value(5), LEARNED_WHOLE)),
    "a nop is a value": ((good(7, NOP), good(5)), (NOP, PROPOSED)),
    "voters of another era say nothing": ((bad(7, voters(7)), None), (voters(7), LEARNED_BY_NAME)),
    "voters of this era, whole": ((good(70, voters(70)), good(5)), (voters(70), PROPOSED)),
}


@pytest.mark.parametrize("case", CASES)
def test_whose_value_wins(case: str) -> None:
    """In whatever order they answer."""
    shown, (wins, how) = CASES[case]
    for order in permutations(shown):
        assert settle(*order) == [Settled(0, wins, *how)]


def test_nobody_who_is_left_may_be_silent() -> None:
    fill = new_fill(3)
    assert fill.promised(0, answer(good(5))) == fill.promised(1, answer(good(5))) == []
    assert fill.promised(0, answer(good(5))) == [], "the same one twice"
    assert fill.promised(3, answer(good(9))) == [], "one that was given up"
    assert fill.end is None
    assert fill.promised(2, answer(None)) == [Settled(0, value(5), False, True)]


def test_one_that_is_left_alone_decides_alone() -> None:
    assert settle(good(5)) == [Settled(0, value(5), False, True)]
    assert settle(bad(5)) == [Settled(0, value(5), True, False)]
    assert settle(nameless(5)) == [Settled(0, NOP, False, True)]


def test_a_replica_that_begins_anew_shows_nothing_and_hides_nothing() -> None:
    """Its log is wiped, or its journal begins behind a floor: no slot says that nothing was chosen."""
    fill = new_fill(2)
    fill.promised(0, answer())
    assert fill.promised(1, answer(good(5), None, bad(6))) == [
        Settled(0, value(5), False, True),
        Settled(1, given_up(1), False, True),
        Settled(2, value(6), True, False),
    ]
    assert fill.is_complete


def test_below_the_furthest_log_nothing_is_decided() -> None:
    fill = new_fill(2)
    fill.promised(0, answer(good(5), nameless(6), good(7)))
    assert fill.promised(1, answer(learned_end=2)) == [Settled(2, value(7), False, True)]
    assert (fill.learned_end, fill.source, fill.is_complete) == (2, 1, True)


@pytest.mark.parametrize("lower", [None, good(60), nameless(60), good(80)])
def test_voters_of_this_era_that_nobody_can_read_are_waited_for(lower: Slot | None) -> None:
    """They say whom to ask, so nothing else takes their place, unless something above does."""
    expected = [Settled(0, value(80), False, True)] if lower == good(80) else []
    for order in permutations([bad(70, voters(70)), lower]):
        assert settle(*order) == expected
    fill = new_fill(2)
    fill.promised(0, answer(bad(70, voters(70))))
    fill.promised(1, answer(lower))
    if lower != good(80):
        assert fill.promised(0, answer(good(70, voters(70)))) == [Settled(0, voters(70), False, True)], "repaired"


def test_voters_that_are_asked_already_need_not_be_read() -> None:
    found = VotersFound(0, voters(70))
    assert settle(bad(70, voters(70)), None, settling=(found,)) == [Settled(0, voters(70), True, False)]


# -- the rule, by brute force ------------------------------------------------------------------------------------------


def expected_of(position: int, shown: list[Slot]) -> tuple[Value, bool, bool]:
    """Value, is it learned, has somebody its payload."""

    def is_whole(wanted: Value) -> bool:
        return any(slot.value == wanted and not slot.faulty for slot in shown)

    for slot in shown:
        if slot.learned:
            return slot.value, True, is_whole(slot.value)
    named = [slot for slot in shown if slot.value != UNKNOWN]
    if not named:
        return given_up(position), False, True
    wins = max(named, key=lambda slot: slot.number).value
    return wins, not is_whole(wins), is_whole(wins)


SLOTS = st.none() | st.builds(
    lambda make, number: make(number), st.sampled_from((good, good, bad, nameless)), st.integers(1, 5)
)


@given(st.lists(st.lists(SLOTS, min_size=POSITIONS, max_size=POSITIONS), min_size=1, max_size=5))
def test_every_position_is_settled_at_once_by_the_rule(shown: list[list[Slot | None]]) -> None:
    fill = new_fill(len(shown))
    settled: list[Settled] = []
    for node, slots in enumerate(shown):
        settled = fill.promised(node, answer(*slots))
    end = max((i + 1 for slots in shown for i, slot in enumerate(slots) if slot is not None), default=0)
    assert fill.is_complete and fill.end == end
    for position, decision in enumerate(settled):
        there = [slots[position] for slots in shown if slots[position] is not None]
        assert decision == Settled(position, *expected_of(position, [slot for slot in there if slot is not None]))
    assert len(settled) == end


# -- what was chosen ---------------------------------------------------------------------------------------------------


def histories(nodes: int) -> Iterator[tuple[Value | None, tuple[Slot | None, ...]]]:
    """What was chosen, if anything, and what the nodes hold, for every course of two coordinators over them all: the
    first proposes one value, the second asks a majority and proposes what plain Paxos says."""
    majority = nodes // 2 + 1
    for first in product((False, True), repeat=nodes):
        for asked in product((False, True), repeat=nodes):
            for second in product((False, True), repeat=nodes):
                if sum(asked) < majority and any(second):
                    continue
                is_seen = any(f and a for f, a in zip(first, asked, strict=True))
                later = value(1) if is_seen else value(2)
                held = [good(2, later) if s else good(1) if f else None for f, s in zip(first, second, strict=True)]
                chosen = later if sum(second) >= majority else value(1) if sum(first) >= majority else None
                yield chosen, tuple(held)


def rotten(slot: Slot | None) -> list[Slot | None]:
    """What may be left of a slot."""
    return [None] if slot is None else [slot, bad(slot.number, slot.value), nameless(slot.number), None]


@pytest.mark.parametrize("left", [(0,), (0, 1), (0, 1, 2)])
def test_what_was_chosen_stays_if_one_of_those_who_are_left_can_name_it(left: tuple[int, ...]) -> None:
    """The others are gone, and each slot of those who are left is whole, damaged, nameless or lost."""
    tried = 0
    for chosen, held in set(histories(3)):
        for slots in product(*(rotten(held[node]) for node in left)):
            is_named = any(slot is not None and slot.value == chosen for slot in slots)
            if chosen is None or not is_named:
                continue
            tried += 1
            (decision,) = settle(*slots)
            assert decision.value == chosen, (held, slots)
            is_whole = any(slot is not None and slot.value == chosen and not slot.faulty for slot in slots)
            assert decision.has_payload == is_whole
    assert tried > 10
