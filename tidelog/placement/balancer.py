"""Balances the load of brokers with the fewest moves: a minimum-cost flow, found path by path.

Items (partitions) are each held by some brokers (their replicas, or their leader). A move takes an item from one broker
to another that does not hold it. The goals, in this order: nothing remains on brokers that leave; loads are as equal as
the rules permit (the least sum of squares, which is floor and ceiling of the mean wherever that can be reached); the
fewest items end up on brokers that did not hold them before.

First come direct moves, from the fullest broker to the emptiest. Where items cannot be chosen freely, a direct move may
not exist, or may have been a bad one. Then a chain helps: a gives an item to b, and b another one to c. Chains are
shortest paths between brokers in the residual network of the flow. The loads' cost is convex, so the distribution is
optimal when no chain improves it (Ahuja, Magnanti, Orlin, "Network Flows", 1993, theorem 3.8 and section 14.4).

That is exact if the rules are those of a network: at most, or at least, one replica of a partition in each rack.
Another rule ("two of three racks, as now") is kept as well, but then the number of moves may not be the fewest.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

BEST_MERIT = 2


class Rules(Protocol):
    """The rules of moves: which broker may hold which item."""

    def merit(self, item: int, holders: Collection[int], source: int, target: int) -> int:
        """Returns the merit of moving `item` from `source` to `target`: negative if forbidden, `BEST_MERIT` if there is
        no better."""

    def is_bound(self, source: int, target: int) -> bool:
        """Returns True if a move from `source` to `target` changes which other moves of the same item are allowed,
        because the item leaves a rack."""


class _Step(NamedTuple):
    """The last move of a chain, `item` from `source` to `target`; `cost` and `hops` are those of the whole chain."""

    cost: int
    hops: int
    item: int
    source: int
    target: int
    before: _Step | None


class Balancer:
    """Balances items 0 to n - 1, which brokers hold. Each of the `groups` (topics) is spread evenly as well, as far as
    that costs no move."""

    def __init__(
        self,
        held: Sequence[Collection[int]],
        staying: Sequence[int],
        leaving: Sequence[int],
        groups: Sequence[int],
        rules: Rules,
    ) -> None:
        self.holders = [set(brokers) for brokers in held]
        self._first = [frozenset(brokers) for brokers in held]
        self._staying = sorted(staying)
        self._leaving = sorted(leaving)
        self._groups = groups
        self._rules = rules
        nodes = [*self._staying, *self._leaving]
        # Dicts stand in for sets: their order is that of insertion, so that a plan is the same on every run.
        self._items: dict[int, dict[int, dict[int, None]]] = {node: {} for node in nodes}
        """The items of each broker, by group."""
        self._taken: dict[int, dict[int, None]] = {node: {} for node in nodes}
        """The items that each broker holds now and did not hold at first."""
        self._given: dict[int, dict[int, None]] = {node: {} for node in nodes}
        """The items that each broker held at first and does not hold now."""
        self._loads = dict.fromkeys(nodes, 0)
        self._group_loads: Counter[tuple[int, int]] = Counter()
        for item, brokers in enumerate(held):
            for node in sorted(brokers):
                self._put(item, node)
        self.lower_bound = fewest_moves(
            [self._loads[node] for node in self._staying], sum(self._loads[node] for node in self._leaving)
        )

    @property
    def moves(self) -> int:
        """Returns the number of items that are on brokers that did not hold them at first."""
        return sum(len(items) for items in self._taken.values())

    def settle(self) -> None:
        """Moves items until no move or chain of moves improves the distribution."""
        stuck: set[tuple[int, int]] = set()
        while self._move_directly(stuck):
            pass
        # At the bound neither loads nor moves can be better, so the costly search for chains is spared.
        while not self._is_at_bound() and self._improve():
            pass
        assert not any(self._loads[node] for node in self._leaving), "RF <= brokers left, so all can go somewhere"

    def _is_at_bound(self) -> bool:
        loads = [self._loads[node] for node in self._staying]
        is_empty = not any(self._loads[node] for node in self._leaving)
        return is_empty and max(loads) - min(loads) <= 1 and self.moves == self.lower_bound

    # -- direct moves --------------------------------------------------------------------------------------------

    def _move_directly(self, stuck: set[tuple[int, int]]) -> bool:
        """Makes one move from the fullest possible broker to the emptiest possible one. Returns False if there
        is none."""
        # A broker that gives never takes, and the reverse: so no assignment with these loads has fewer moves.
        targets = sorted((node for node in self._staying if not self._given[node]), key=self._loads.__getitem__)
        for source in self._sources():
            if self._taken[source]:
                continue
            for target in targets:
                # Targets come emptiest first, so no later one gives more relief.
                if self._relief(source, target) <= 0:
                    break
                if (source, target) in stuck:
                    continue
                item = self._best_item(source, target)
                if item is not None:
                    self._shift(item, source, target)
                    return True
                # A pair without an item that may move is not tried again. Chains may still find a way between them.
                stuck.add((source, target))
        return False

    def _sources(self) -> Iterator[int]:
        # Leaving brokers first: whatever they hold has to go, also where that makes loads less even.
        yield from (node for node in self._leaving if self._loads[node])
        yield from sorted(self._staying, key=lambda node: (-self._loads[node], node))

    def _relief(self, source: int, target: int) -> int:
        """Returns half of the amount by which the sum of the squared loads falls if `source` gives an item to `target`;
        1 if `source` leaves."""
        if source in self._leaving:
            return 1
        # The sum of squares falls by a^2 + b^2 - (a - 1)^2 - (b + 1)^2 = 2 (a - b - 1).
        return self._loads[source] - self._loads[target] - 1

    def _best_item(self, source: int, target: int) -> int | None:
        """Returns the item with the most merit to move from `source` to `target`, of the topic that is least even
        between them; None if no item may move."""
        by_group = self._items[source]
        groups = sorted(
            by_group, key=lambda group: (self._group_loads[group, target] - self._group_loads[group, source], group)
        )
        for group in groups:
            best, best_merit = None, -1
            for item in by_group[group]:
                if target in self.holders[item]:
                    continue
                merit = self._rules.merit(item, self.holders[item], source, target)
                if merit > best_merit:
                    best, best_merit = item, merit
                if merit == BEST_MERIT:
                    break
            if best is not None:
                return best
        return None

    # -- chains --------------------------------------------------------------------------------------------------

    def _improve(self) -> bool:
        """Makes the moves of the best improving chain that starts at the first broker with one. Returns False if there
        is none."""
        for source in self._sources():
            chains = [step for step in self._chains(source).values() if step.target in self._staying]
            if not chains:
                continue
            best = min(chains, key=lambda step: (self._gain(source, step.target), step.cost, step.hops, step.target))
            # Better loads at any cost; with the same loads only fewer moves.
            if (self._gain(source, best.target), best.cost) < (0, 0):
                for step in _moves(best):
                    self._shift(step.item, step.source, step.target)
                return True
        return False

    def _gain(self, source: int, target: int) -> int:
        """Returns the change of the loads' cost by a chain of moves from `source` to `target`; negative is an
        improvement."""
        if source in self._leaving:
            # Below any other gain, so that leaving brokers are emptied first.
            return self._loads[target] - sum(self._loads.values()) - 1
        return self._loads[target] + 1 - self._loads[source]

    def _chains(self, start: int) -> dict[int, _Step]:
        """Returns the cheapest chain of moves from `start` to each broker, the shortest of equals (Bellman-Ford with a
        queue)."""
        chains: dict[int, _Step] = {}
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            chain = chains.get(node)
            moves = [*_moves(chain)]
            bound_items = {step.item for step in moves if self._rules.is_bound(step.source, step.target)}
            for target in (*self._staying, *self._leaving):
                # Chains visit no broker twice: a cycle of negative cost would otherwise be followed for ever.
                if target == start or any(target == step.target for step in moves):
                    continue
                step = self._step(node, target, chain, chains.get(target), bound_items)
                if step is not None:
                    chains[target] = step
                    if target not in waiting:
                        waiting.append(target)
        return chains

    def _step(
        self, source: int, target: int, chain: _Step | None, known_chain: _Step | None, bound_items: set[int]
    ) -> _Step | None:
        """Returns the cheapest move from `source` to `target` after `chain`, if that makes a better chain than
        `known_chain`."""
        chain_cost, hops = (chain.cost, chain.hops + 1) if chain is not None else (0, 1)
        # To send an item back to where it was first costs -1, to send on one that just came, or from a first holder to
        # another, 0; a new move costs 1. Cheapest first, so the search ends with the first item that may move.
        for cost, items in ((-1, self._given[target]), (0, self._given[target]), (0, self._taken[source]), (1, None)):
            if known_chain is not None and (chain_cost + cost, hops) >= (known_chain.cost, known_chain.hops):
                return None
            for item in self._all_items(source) if items is None else items:
                if self._cost(item, source, target) == cost and self._is_allowed(item, source, target, bound_items):
                    return _Step(chain_cost + cost, hops, item, source, target, chain)
        return None

    def _cost(self, item: int, source: int, target: int) -> int:
        """Returns the change in the number of moved items by a move: -1, 0 or 1."""
        return (target not in self._first[item]) - (source not in self._first[item])

    def _is_allowed(self, item: int, source: int, target: int, bound_items: set[int]) -> bool:
        holders = self.holders[item]
        if source not in holders or target in holders:
            return False
        # A leaving broker may get an item back within a chain, but never another one.
        if target in self._leaving and target not in self._first[item]:
            return False
        # The rules judged this item's earlier move in the chain by the racks of before it, so a second one must not
        # change them as well.
        if item in bound_items and self._rules.is_bound(source, target):
            return False
        return self._rules.merit(item, holders, source, target) >= 0

    def _all_items(self, node: int) -> Iterator[int]:
        for items in self._items[node].values():
            yield from items

    # -- the state -----------------------------------------------------------------------------------------------

    def _shift(self, item: int, source: int, target: int) -> None:
        assert source in self.holders[item] and target not in self.holders[item], "a broker holds an item once"
        self.holders[item].remove(source)
        self.holders[item].add(target)
        group = self._groups[item]
        del self._items[source][group][item]
        if not self._items[source][group]:
            del self._items[source][group]
        self._loads[source] -= 1
        self._group_loads[group, source] -= 1
        self._put(item, target)
        if source in self._first[item]:
            self._given[source][item] = None
        else:
            del self._taken[source][item]
        if target in self._first[item]:
            del self._given[target][item]
        else:
            self._taken[target][item] = None

    def _put(self, item: int, node: int) -> None:
        group = self._groups[item]
        self._items[node].setdefault(group, {})[item] = None
        self._loads[node] += 1
        self._group_loads[group, node] += 1


def _moves(chain: _Step | None) -> Iterator[_Step]:
    """Yields the moves of a chain, from the last to the first."""
    # They do not disturb each other: each was found possible with the holders as they are before any of them.
    while chain is not None:
        yield chain
        chain = chain.before


def fewest_moves(loads: Sequence[int], leaving: int) -> int:
    """Returns the fewest moves that bring loads to floor and ceiling of their mean, if every item could go everywhere.
    `leaving` is the number of items on brokers that leave."""
    low, remainder = divmod(sum(loads) + leaving, len(loads))
    high = low + (remainder > 0)
    # Each item above the ceiling has to go, and each one missing to the floor has to come; a move may do both.
    return max(leaving + sum(max(0, load - high) for load in loads), sum(max(0, low - load) for load in loads))
