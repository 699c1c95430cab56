import pytest

from tidelog.replication.paxos.apply import Verdict, fold, fold_to
from tidelog.replication.paxos.state import NOP, ORIGIN, Kind, Prefix, Slot, Value


def append(birth: int, base: int, count: int = 1) -> Value:
    return Value(Kind.APPEND, birth, base, count, b"x")


def test_a_batch_moves_the_offset_and_its_birth_the_epoch() -> None:
    assert fold(ORIGIN, append(5, 0, 3)) == (Prefix(1, 5, 3), Verdict.APPLIED)


def test_a_barrier_and_a_truncation_move_the_epoch_alone() -> None:
    assert fold(Prefix(4, 5, 9), Value(Kind.BARRIER, 6)) == (Prefix(5, 6, 9), Verdict.APPLIED)
    assert fold(Prefix(4, 5, 9), Value(Kind.TRUNCATE, 6, begin=2)) == (Prefix(5, 6, 9), Verdict.APPLIED)


def test_a_nop_is_neutral() -> None:
    assert fold(Prefix(4, 5, 9), NOP) == (Prefix(5, 5, 9), Verdict.NOTHING)


@pytest.mark.parametrize(
    "value", [append(4, 7), append(4, 20), Value(Kind.BARRIER, 4), Value(Kind.TRUNCATE, 4, begin=1)]
)
def test_what_is_older_than_something_before_it_is_void(value: Value) -> None:
    assert fold(Prefix(4, 5, 9), value) == (Prefix(5, 5, 9), Verdict.VOID)


def test_offsets_may_have_gaps_but_never_overlap() -> None:
    assert fold(Prefix(4, 5, 9), append(5, 12)) == (Prefix(5, 5, 13), Verdict.APPLIED)
    with pytest.raises(AssertionError, match="given out once"):
        fold(Prefix(4, 5, 9), append(5, 8))


def test_a_floor_is_what_the_values_before_it_amount_to() -> None:
    values = [Value(Kind.BARRIER, 5), append(5, 0, 2), NOP, append(3, 2), append(5, 4)]
    slots = {p: Slot(p, 5, value, learned=True) for p, value in enumerate(values)}
    assert fold_to(ORIGIN, slots, 4) == Prefix(4, 5, 2)
    assert fold_to(Prefix(4, 5, 2), slots, 5) == Prefix(5, 5, 5)
