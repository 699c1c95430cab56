import pytest

from tidelog.replication.paxos.numbers import NO_NUMBER, NODE_MAX, make_number, next_number, owner_of, round_of


def test_a_number_is_a_round_and_its_owner() -> None:
    number = make_number(7, 3)
    assert number == 7 << 16 | 3
    assert (round_of(number), owner_of(number)) == (7, 3)
    assert make_number(1, 0) > NO_NUMBER


def test_rounds_come_before_owners() -> None:
    assert make_number(1, NODE_MAX) < make_number(2, 0)


@pytest.mark.parametrize("above", [0, make_number(1, 2), make_number(1, 3), make_number(1, 4), make_number(9, 65535)])
def test_the_next_number_is_ones_own_and_the_smallest_above(above: int) -> None:
    number = next_number(above, 3)
    assert number > above
    assert owner_of(number) == 3
    assert round_of(number) == 1 or number - (1 << 16) <= above


@pytest.mark.parametrize(("round_", "node"), [(0, 1), (1, -1), (1, NODE_MAX + 1)])
def test_what_does_not_fit_is_refused(round_: int, node: int) -> None:
    with pytest.raises(AssertionError):
        make_number(round_, node)
