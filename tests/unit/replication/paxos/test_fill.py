"""What a fill decides, against the rule as it is written, tried over all subsets."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.replication.paxos.events import Send, VotersFound
from tidelog.replication.paxos.fill import Fill, Settled
from tidelog.replication.paxos.messages import PromiseRequest, PromiseResponse, Reply
from tidelog.replication.paxos.state import NOP, Kind, Slot, Value
from tidelog.replication.paxos.term import Term
from tidelog.replication.quorum import Joint, Majority

NUMBER = 100
FOUND = VotersFound(1, Value(Kind.VOTERS, 5, digest=b"1,2,3"))


def value(number: int) -> Value:
    return Value(Kind.APPEND, number, 0, 1, b"%d" % number)


def accept(*slots: Slot, learned_end: int = 0) -> PromiseResponse:
    return PromiseResponse(Reply.ACCEPT, NUMBER, learned_end=learned_end, slots=slots)


def new_fill(members: int = 3, start: int = 0, *, lost: frozenset[int] = frozenset()) -> Fill:
    voters = Majority(range(members))
    return Fill(NUMBER, Term(0, voters, voters, lost=lost), start)


def asked(fill: Fill) -> list[int]:
    requests = fill.requests()
    assert all(isinstance(r, Send) and r.message == PromiseRequest(NUMBER, fill.start) for r in requests)
    return [request.to for request in requests if isinstance(request, Send)]


def test_nothing_is_settled_before_a_quorum_has_promised() -> None:
    fill = new_fill()
    assert asked(fill) == [0, 1, 2]
    assert fill.promised(1, accept(Slot(0, 5, value(5)))) == []
    assert (fill.end, asked(fill)) == (None, [0, 2])


def test_one_round_settles_every_position_at_once() -> None:
    fill = new_fill()
    fill.promised(1, accept(Slot(0, 5, value(5)), Slot(3, 5, value(6))))
    settled = fill.promised(2, accept(Slot(0, 7, value(7))))
    assert settled == [
        Settled(0, value(7), False, True),
        Settled(1, NOP, False, True),
        Settled(2, NOP, False, True),
        Settled(3, value(6), False, True),
    ]
    assert fill.is_complete
    assert asked(fill) == []


def test_an_empty_log_has_nothing_to_fill() -> None:
    fill = new_fill(start=4)
    fill.promised(1, accept(learned_end=4))
    assert fill.promised(2, accept(learned_end=2)) == []
    assert (fill.end, fill.source, fill.is_complete) == (4, None, True)


def test_what_somebody_has_learned_is_copied_and_not_proposed() -> None:
    fill = new_fill(start=2)
    fill.promised(1, accept(learned_end=6))
    settled = fill.promised(2, accept(Slot(2, 5, value(5)), Slot(6, 5, value(5)), learned_end=2))
    assert [item.position for item in settled] == [6]
    assert (fill.learned_end, fill.source) == (6, 1)


def test_a_learned_slot_beyond_the_learned_prefix_is_taken_as_it_is() -> None:
    fill = new_fill()
    fill.promised(1, accept(Slot(1, 0, value(5), learned=True)))
    assert fill.promised(2, accept(Slot(1, 9, value(9))))[1] == Settled(1, value(5), True, True)


def test_a_late_answer_changes_nothing_that_is_settled() -> None:
    fill = new_fill()
    fill.promised(1, accept())
    fill.promised(2, accept())
    assert fill.promised(0, accept(Slot(0, 5, value(5)), learned_end=3)) == []
    assert (fill.end, fill.learned_end, fill.source) == (0, 0, None)


def test_who_does_not_know_yet_whose_quorum_this_is_is_not_counted() -> None:
    voters = Majority(range(3))
    fill = Fill(NUMBER, Term(0, voters, voters, voters_position=4), 6)
    for node in (1, 2):
        assert fill.promised(node, accept(learned_end=4)) == []
    assert fill.end is None
    for node in (1, 2):
        fill.promised(node, accept(learned_end=5))
    assert fill.end == 6


def test_a_stranger_is_not_counted() -> None:
    fill = new_fill()
    fill.promised(1, accept())
    fill.promised(7, accept())
    assert fill.end is None


def test_a_position_waits_for_the_payload_of_what_may_be_chosen() -> None:
    fill = new_fill()
    fill.promised(1, accept(Slot(0, 5, value(5), faulty=True)))
    assert fill.promised(2, accept()) == []
    assert (fill.end, fill.unsettled) == (1, (0,))
    assert asked(fill) == [0, 1, 2], "a slot may have been repaired: everybody is asked again"
    assert fill.promised(0, accept(Slot(0, 4, value(4)))) == [Settled(0, value(4), False, True)], (
        "two have nothing above"
    )


def test_a_repaired_copy_ends_the_waiting() -> None:
    fill = new_fill()
    fill.promised(1, accept(Slot(0, 5, value(5), faulty=True)))
    fill.promised(2, accept())
    assert fill.promised(1, accept(Slot(0, 5, value(5)))) == [Settled(0, value(5), False, True)]


def test_what_is_applied_meanwhile_need_not_wait() -> None:
    fill = new_fill()
    fill.promised(1, accept(Slot(0, 5, value(5), faulty=True)))
    fill.promised(2, accept())
    fill.settled_to(1)
    assert fill.is_complete


def test_a_learned_value_is_taken_even_if_nobody_has_its_payload() -> None:
    fill = new_fill()
    fill.promised(1, accept(Slot(0, 5, value(5), learned=True, faulty=True)))
    assert fill.promised(2, accept()) == [Settled(0, value(5), True, False)]


def test_a_value_that_a_quorum_accepted_is_chosen_even_if_nobody_can_read_it() -> None:
    fill = new_fill()
    fill.promised(1, accept(Slot(0, 5, value(5), faulty=True)))
    assert fill.promised(2, accept(Slot(0, 5, value(5), faulty=True))) == [Settled(0, value(5), True, False)]
    assert fill.is_complete


def test_it_is_chosen_if_one_of_them_knows_its_name() -> None:
    fill = new_fill()
    fill.promised(1, accept(Slot(0, 5, Value(Kind.UNKNOWN), faulty=True)))
    assert fill.promised(2, accept(Slot(0, 5, value(5), faulty=True))) == [Settled(0, value(5), True, False)]


def test_a_minority_or_several_numbers_prove_nothing() -> None:
    for other in (Slot(0, 4, value(4), faulty=True), Slot(0, 6, value(6), faulty=True), None):
        fill = new_fill(5)
        fill.promised(0, accept(Slot(0, 5, value(5), faulty=True)))
        fill.promised(1, accept(Slot(0, 5, value(5), faulty=True)))
        assert fill.promised(2, accept(*([other] if other else []))) == []
        assert fill.unsettled == (0,)


def test_a_value_is_proposed_by_its_name_alone_if_nobody_else_will_ever_answer() -> None:
    faulty = accept(Slot(0, 5, value(5), faulty=True))
    fill = new_fill(5, lost=frozenset({4}))
    fill.promised(0, faulty)
    fill.promised(1, accept())
    assert fill.promised(2, accept()) == [], "the fourth may have a copy, or say that it was never chosen"
    assert fill.promised(3, accept(Slot(0, 4, value(4), faulty=True))) == [Settled(0, value(5), False, False)]
    denied = new_fill(5, lost=frozenset({4}))
    denied.promised(0, faulty)
    for node in (1, 2):
        assert denied.promised(node, accept()) == []
    assert denied.promised(3, accept()) == [Settled(0, NOP, False, True)], "three deny it"


def test_voters_and_what_has_no_name_are_never_proposed_by_name() -> None:
    for held in (FOUND.value, Value(Kind.UNKNOWN)):
        fill = new_fill(lost=frozenset({2}))
        fill.promised(0, accept(Slot(0, 5, held, faulty=True)))
        assert fill.promised(1, accept()) == []
        assert fill.unsettled == (0,)


@pytest.mark.parametrize(("members", "deniers"), [(2, 1), (3, 2), (4, 2), (5, 3), (6, 3)])
def test_as_many_deny_as_leave_no_quorum_to_the_others(members: int, deniers: int) -> None:
    """The rest have promised, and have lost what they accepted; without the last denier it may be chosen."""
    torn = accept(Slot(0, 5, Value(Kind.UNKNOWN), faulty=True))
    fill = new_fill(members)
    for node in range(deniers - 1):
        assert fill.promised(node, accept()) == []
    for node in range(deniers, members):
        assert fill.promised(node, torn) == []
    assert fill.promised(deniers - 1, accept()) == [Settled(0, NOP, False, True)]


def test_what_is_denied_gives_way_to_what_was_accepted_below() -> None:
    fill = new_fill(4)
    fill.promised(0, accept(Slot(0, 7, value(7), faulty=True)))
    fill.promised(1, accept(Slot(0, 5, value(5))))
    assert fill.promised(2, accept()) == [Settled(0, value(5), False, True)]


def test_what_nobody_knows_the_name_of_waits() -> None:
    fill = new_fill()
    for node in range(3):
        assert fill.promised(node, accept(Slot(0, 5, Value(Kind.UNKNOWN), faulty=True))) == []
    assert fill.unsettled == (0,)


def test_voters_that_nobody_can_read_wait_though_they_are_chosen() -> None:
    fill = new_fill()
    for node in range(3):
        assert fill.promised(node, accept(Slot(1, 5, FOUND.value, faulty=True))) in ([], [Settled(0, NOP, False, True)])
    assert fill.unsettled == (1,)


def test_behind_voters_found_open_a_quorum_of_both_is_needed() -> None:
    fill = joined_fill()
    rotten = accept(Slot(1, 5, FOUND.value), Slot(2, 5, value(5), faulty=True))
    fill.promised(0, rotten)
    fill.promised(1, rotten)
    fill.promised(3, accept(Slot(1, 5, FOUND.value)))
    assert fill.unsettled == (2,), "of 1, 2 and 3, only 1 has accepted it"
    assert fill.promised(3, rotten) == [Settled(2, value(5), True, False)]


def joined_fill() -> Fill:
    """Members 0, 1 and 2 are in force; VOTERS that put 3 in the place of 0 are found open at position 1."""
    in_force, others = Majority((0, 1, 2)), Majority((1, 2, 3))
    return Fill(NUMBER, Term(0, Joint([in_force, others]), in_force, settling=(FOUND,)), 0)


def test_up_to_voters_found_open_those_in_force_tell_that_nothing_is_chosen() -> None:
    """Of the others, only one has promised, and has lost what it accepted there."""
    fill = joined_fill()
    fill.promised(0, accept())
    fill.promised(1, accept())
    lost = [Slot(position, 5, Value(Kind.UNKNOWN), faulty=True) for position in (0, 1, 2)]
    assert fill.promised(3, accept(*lost)) == [Settled(0, NOP, False, True), Settled(1, NOP, False, True)]
    assert fill.unsettled == (2,), "the others may decide there"
    assert fill.promised(2, accept()) == [Settled(2, NOP, False, True)]


def test_behind_voters_found_open_no_set_denies_for_another() -> None:
    """Whichever is in force may have had a value chosen without the other."""
    lost = Slot(2, 5, Value(Kind.UNKNOWN), faulty=True)
    for deniers, torn in (((0, 1), (2, 3)), ((2, 3), (0, 1))):
        fill = joined_fill()
        for node in (*torn, *deniers):
            fill.promised(node, accept(lost) if node in torn else accept())
        assert fill.unsettled == (2,), "only one of the other set denies"


def test_what_those_in_force_have_lost_is_waited_for() -> None:
    fill = joined_fill()
    fill.promised(0, accept(Slot(1, 5, FOUND.value, faulty=True)))
    assert fill.promised(1, accept()) == []
    fill.promised(3, accept())
    assert fill.unsettled == (1,)
    assert fill.promised(2, accept())[0] == Settled(1, NOP, False, True), "two of them have nothing there"


def test_any_intact_copy_of_voters_found_will_do() -> None:
    fill = joined_fill()
    fill.promised(0, accept())
    fill.promised(1, accept())
    assert fill.promised(3, accept(Slot(1, 5, FOUND.value)))[1] == Settled(1, FOUND.value, False, True)


def allowed(answers: dict[int, Slot | None], members: int) -> set[Value]:
    """The rule of the specification, by brute force: answers of so many that the others are no majority, the highest
    number of which is none, or one whose value has come intact from anyone; or a majority's, all of that number."""
    slots = [slot for slot in answers.values() if slot is not None]
    found: set[Value] = set()
    quorum = members // 2 + 1
    for size in range(members - quorum + 1, len(answers) + 1 if len(answers) >= quorum else 0):
        for group in combinations(answers.values(), size):
            held = [slot for slot in group if slot is not None]
            best = max(held, key=lambda slot: slot.number, default=None)
            if best is None:
                found.add(NOP)
                continue
            is_intact = any(slot.value == best.value and not slot.faulty for slot in slots)
            if is_intact or (size >= quorum and [slot.number for slot in held] == [best.number] * size):
                found.add(best.value)
    return found


slots = st.none() | st.builds(lambda n, f: Slot(0, n, value(n), faulty=f), st.integers(1, 4), st.booleans())


@given(
    st.sampled_from((2, 3, 4, 5)).flatmap(
        lambda n: st.tuples(st.just(n), st.permutations(range(n)), st.lists(slots, min_size=n, max_size=n))
    )
)
def test_every_decision_is_one_that_the_rule_allows_and_comes_as_soon_as_there_is_one(
    case: tuple[int, list[int], list[Slot | None]],
) -> None:
    members, order, held = case
    fill = new_fill(members)
    answers: dict[int, Slot | None] = {}
    for node in order:
        slot = held[node]
        answers[node] = slot
        settled = fill.promised(node, accept(*([slot] if slot is not None else [])))
        choices = allowed(answers, members)
        if settled:
            assert settled[0].value in choices
            return
        is_open = any(answers.values())
        assert not choices or (choices == {NOP} and not is_open)
        if fill.is_complete:
            return


@given(
    st.integers(3, 5).flatmap(
        lambda n: st.tuples(st.lists(slots, min_size=n, max_size=n), st.sets(st.integers(0, n - 1), min_size=1))
    )
)
def test_without_those_who_lost_their_votes_what_was_accepted_last_is_proposed(
    case: tuple[list[Slot | None], set[int]],
) -> None:
    """Only the value under the highest number that a quorum reports may be proposed by name, whoever is left out; and
    if a quorum is left, nothing waits for anybody else."""
    held, lost = case
    fill, settled = new_fill(len(held), lost=frozenset(lost)), list[Settled]()
    left = [node for node in range(len(held)) if node not in lost]
    for node in left:
        slot = held[node]
        settled += fill.promised(node, accept(*([slot] if slot is not None else [])))
    reported = [slot for slot in (held[node] for node in left) if slot is not None]
    if len(left) <= len(held) // 2:
        assert fill.end is None
    else:
        assert fill.is_complete
        newest = max((slot.number for slot in reported), default=0)
        assert all(one.value == value(newest) for one in settled if not (one.is_learned or one.has_payload))
