import pytest

from tidelog.replication.paxos.apply import Verdict, fold, fold_to
from tidelog.replication.paxos.state import NOP, ORIGIN, Kind, Prefix, Slot, Value, given_up


def append(birth: int, base: int, count: int = 1, begin: int = 0) -> Value:
    return Value(Kind.APPEND, birth, base, count, b"x", begin)


def log_of(*values: Value) -> tuple[Prefix, list[Verdict]]:
    """Returns what a log amounts to, and what becomes of each value."""
    prefix, verdicts = ORIGIN, []
    for value in values:
        prefix, verdict = fold(prefix, value)
        verdicts.append(verdict)
    return prefix, verdicts


def test_a_batch_moves_the_offset_and_its_birth_the_epoch() -> None:
    assert fold(ORIGIN, append(5, 0, 3)) == (Prefix(1, 5, 3), Verdict.APPLIED)


def test_a_barrier_and_a_truncation_move_the_epoch_alone() -> None:
    assert fold(Prefix(4, 5, 9), Value(Kind.BARRIER, 6)) == (Prefix(5, 6, 9, 0, 4), Verdict.APPLIED)
    assert fold(Prefix(4, 5, 9), Value(Kind.TRUNCATE, 6, begin=2)) == (Prefix(5, 6, 9, 0, 4), Verdict.APPLIED)


def test_a_nop_is_neutral_and_a_gap() -> None:
    assert fold(Prefix(4, 5, 9), NOP) == (Prefix(5, 5, 9, 0, 5, (4,)), Verdict.NOTHING)
    assert fold(Prefix(4, 5, 9), given_up(4)) == (Prefix(5, 5, 9), Verdict.NOTHING)


BARRIER = Value(Kind.BARRIER, 5)
A, N, V = Verdict.APPLIED, Verdict.NOTHING, Verdict.VOID


@pytest.mark.parametrize(
    ("values", "verdicts"),
    [
        ((BARRIER, append(5, 0, 1, 1), append(5, 1, 1, 1)), [A, A, A]),
        ((BARRIER, append(5, 0, 1, 1), NOP, append(5, 2, 1, 1), append(5, 3, 1, 1)), [A, A, N, V, V]),
        ((BARRIER, NOP, append(5, 1, 1, 2), append(5, 2, 1, 2)), [A, N, A, A]),
        ((BARRIER, NOP, append(5, 1), append(5, 2)), [A, N, A, A]),
        ((BARRIER, append(5, 0, 1, 1), given_up(2), append(5, 2, 1, 1)), [A, A, N, A]),
        ((BARRIER, append(5, 0, 1, 1), append(4, 1, 1, 1), append(5, 2, 1, 1)), [A, A, V, V]),
        ((BARRIER, append(5, 0, 1, 1), NOP, Value(Kind.DELETE, 5, 1), append(5, 2, 1, 1)), [A, A, N, A, V]),
        ((BARRIER, NOP, append(5, 1, 1, 1), Value(Kind.BARRIER, 6), append(6, 0, 1, 4)), [A, N, V, A, A]),
        ((BARRIER, append(5, 0, 1, 1), NOP, Value(Kind.TRUNCATE, 5, begin=1)), [A, A, N, A]),
    ],
    ids=[
        "whole",
        "a hole, and all behind it",
        "a hole below what is needed",
        "what needs nothing",
        "given up",
        "an older ghost is a gap as well",
        "what needs nothing closes no gap",
        "the next coordinator begins anew",
        "the beginning of a truncation is another matter",
    ],
)
def test_a_batch_counts_if_the_log_is_unbroken_from_where_it_needs_it(
    values: tuple[Value, ...], verdicts: list[Verdict]
) -> None:
    assert log_of(*values)[1] == verdicts


def test_what_is_void_behind_a_gap_takes_no_offsets() -> None:
    prefix, _ = log_of(BARRIER, append(5, 0, 2, 1), NOP, append(5, 4, 2, 1))
    assert (prefix.next_offset, prefix.unbroken_from) == (2, 4)


def test_a_log_that_begins_later_judges_alike() -> None:
    values = [BARRIER, append(5, 0, 1, 1), NOP, append(5, 2, 1, 1), append(5, 3, 1, 1)]
    slots = {p: Slot(p, 5, value, learned=True) for p, value in enumerate(values)}
    for position in range(len(values)):
        floor = fold_to(ORIGIN, slots, position)
        assert fold_to(floor, slots, len(values)) == log_of(*values)[0]


@pytest.mark.parametrize(
    "value", [append(4, 7), append(4, 20), Value(Kind.BARRIER, 4), Value(Kind.TRUNCATE, 4, begin=1)]
)
def test_what_is_older_than_something_before_it_is_void(value: Value) -> None:
    assert fold(Prefix(4, 5, 9), value) == (Prefix(5, 5, 9, 0, 5, (4,)), Verdict.VOID)


def test_offsets_may_have_gaps_but_never_overlap() -> None:
    assert fold(Prefix(4, 5, 9), append(5, 12)) == (Prefix(5, 5, 13), Verdict.APPLIED)
    with pytest.raises(AssertionError, match="given out once"):
        fold(Prefix(4, 5, 9), append(5, 8))


def test_a_floor_is_what_the_values_before_it_amount_to() -> None:
    values = [Value(Kind.BARRIER, 5), append(5, 0, 2), NOP, append(3, 2), append(5, 4)]
    slots = {p: Slot(p, 5, value, learned=True) for p, value in enumerate(values)}
    assert fold_to(ORIGIN, slots, 4) == Prefix(4, 5, 2, 0, 4, (2, 3))
    assert fold_to(Prefix(4, 5, 2, 0, 4, (2, 3)), slots, 5) == Prefix(5, 5, 5, 0, 4, (2, 3))
