import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.replication.paxos.apply import Verdict, fold
from tidelog.replication.paxos.predecessors import (
    DISTANCE_MAX,
    PREDECESSORS_MAX,
    are_named,
    can_name,
    name,
    named_at,
)
from tidelog.replication.paxos.state import NOP, ORIGIN, Kind, Prefix, Value, given_up

BARRIER = Value(Kind.BARRIER, 5)
A, N, V = Verdict.APPLIED, Verdict.NOTHING, Verdict.VOID


@given(st.integers(0, 2**61), st.sets(st.integers(1, DISTANCE_MAX), max_size=PREDECESSORS_MAX))
def test_the_positions_that_a_value_names_can_be_read_back(base: int, distances: set[int]) -> None:
    position = base + DISTANCE_MAX
    named = sorted(position - distance for distance in distances)
    begin = name(position, named)
    assert 0 <= begin < 2**63 and are_named(begin) is bool(named)
    if named:
        assert sorted(named_at(position, begin)) == named


def test_a_value_names_no_more_and_none_further_away_than_fits() -> None:
    assert can_name(5000, [5000 - DISTANCE_MAX, 4999]) and not can_name(5000, [5000 - DISTANCE_MAX - 1])
    assert can_name(9, [1, 2, 3, 4, 5]) and not can_name(9, [1, 2, 3, 4, 5, 6])


def batch(position: int, *named: int, birth: int = 5) -> Value:
    return Value(Kind.APPEND, birth, position, 1, b"%d" % position, name(position, sorted(named)))


@pytest.mark.parametrize(
    ("values", "verdicts"),
    [
        ((BARRIER, batch(1), batch(2, 1), batch(3, 1, 2)), [A, A, A, A]),
        ((BARRIER, NOP, batch(2), batch(3, 2), batch(4, 1)), [A, N, A, A, V]),
        ((BARRIER, NOP, batch(2, 1), batch(3, 2), batch(4)), [A, N, V, V, A]),
        ((BARRIER, given_up(1), batch(2, 1)), [A, N, A]),
        ((BARRIER, batch(1, birth=4), batch(2, 1)), [A, V, V]),
        ((BARRIER, NOP, Value(Kind.BARRIER, 6), batch(3, 1), batch(4, 3, birth=6)), [A, N, A, V, V]),
    ],
    ids=[
        "all in force",
        "only the batch behind the hole is void",
        "what is void takes along what names it, and nothing else",
        "given up by an operator",
        "a ghost in the place of the named value",
        "an older coordinator's is void anyhow, and lapses",
    ],
)
def test_a_batch_is_void_if_a_position_that_it_names_has_lapsed(
    values: tuple[Value, ...], verdicts: list[Verdict]
) -> None:
    prefix, found = ORIGIN, []
    for value in values:
        prefix, verdict = fold(prefix, value)
        found.append(verdict)
    assert found == verdicts


def test_a_prefix_remembers_lapsed_positions_to_the_next_coordinator_and_as_far_as_they_can_be_named() -> None:
    prefix, _ = fold(Prefix(10, 5, 9), NOP)
    assert prefix.lapsed == (10,)
    assert fold(prefix, batch(11))[0].lapsed == (10,)
    assert fold(prefix, Value(Kind.BARRIER, 6))[0].lapsed == ()
    far = Prefix(10 + DISTANCE_MAX, 5, 9, 0, 11, (10, 11))
    assert fold(far, NOP)[0].lapsed == (11, 10 + DISTANCE_MAX)
