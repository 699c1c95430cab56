"""Moves under rules that forbid most of them: what cannot go directly goes by a chain, or stays."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tidelog.placement.balancer import BEST_MERIT, Balancer


class Only:
    """Rules that allow the moves for which `may` says so; `bound` are the moves that leave a rack."""

    def __init__(
        self, may: Callable[[int, Collection[int], int, int], bool], bound: Collection[tuple[int, int]] = ()
    ) -> None:
        self._may = may
        self._bound = bound

    def merit(self, item: int, holders: Collection[int], source: int, target: int) -> int:
        return BEST_MERIT if self._may(item, holders, source, target) else -1

    def is_bound(self, source: int, target: int) -> bool:
        return (source, target) in self._bound


def test_a_broker_that_leaves_gives_what_it_could_not_when_a_later_move_has_made_room() -> None:
    """The item of broker 4, which leaves, may go to broker 2, but not while broker 1 holds it as well."""

    def may(item: int, holders: Collection[int], source: int, target: int) -> bool:
        return item == 0 and ((source, target) == (1, 3) or ((source, target) == (4, 2) and 1 not in holders))

    balancer = Balancer([{1, 4}, {1}, {1}, {1}], [1, 2, 3], [4], [0, 0, 0, 0], Only(may))
    balancer.settle()
    assert balancer.holders == [{2, 3}, {1}, {1}, {1}]
    assert balancer.moves == 2


CHAIN = {(0, 1, 2), (1, 2, 3), (0, 3, 4)}
"""Item 0 from 1 to 2, item 1 from there to 3, and from there item 0 again."""
HELD = [{1, 3}, {2}, {1}]


def chain_settled(bound: Collection[tuple[int, int]]) -> Balancer:
    rules = Only(lambda item, _, source, target: (item, source, target) in CHAIN, bound)
    balancer = Balancer(HELD, [1, 2, 3, 4], [], [0] * len(HELD), rules)
    balancer.settle()
    return balancer


def test_a_chain_moves_an_item_twice_between_brokers_that_have_no_rule_in_common() -> None:
    assert chain_settled(bound=[(1, 2)]).holders == [{2, 4}, {3}, {1}]


def test_a_chain_does_not_take_an_item_out_of_two_racks_since_each_move_was_allowed_without_the_other() -> None:
    balancer = chain_settled(bound=[(1, 2), (3, 4)])
    assert (balancer.holders, balancer.moves) == (HELD, 0)
