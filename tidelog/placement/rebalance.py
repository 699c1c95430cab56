"""Plans reassignments after brokers were added or removed: as few moved replicas as possible, then balanced leaders,
then balanced first followers.

Assignments are never computed anew from the rule for new topics: from five brokers to six it would move 23 of the 45
replicas of 15 partitions, where 7 suffice. Three passes, each even and each with the fewest changes (`balancer`):

1. *Replicas.* Each remaining broker gets the floor or the ceiling of the mean. A partition keeps the number of racks
   that it is spread over, as far as the remaining brokers have as many. This pass alone moves data.
2. *Preferred leaders*, as even as the replicas permit, by reordering replica lists.
3. *First followers.* For each leader, the replicas that would take over from it are spread over as many brokers as
   possible, so that a failed broker's load goes to all others.

The plan is only computed here; `controller.moves` makes commands of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition
from tidelog.placement.balancer import BEST_MERIT, Balancer
from tidelog.placement.striped import UsableBroker, arrange


class Assignment(NamedTuple):
    """The replicas of a partition, the preferred leader first."""

    partition: TopicPartition
    replicas: tuple[int, ...]


class Reassignment(NamedTuple):
    """A partition whose replica list changes. Without `adding` only the order changes, and no data moves."""

    partition: TopicPartition
    old: tuple[int, ...]
    new: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        """Returns the brokers that must copy the partition."""
        return tuple(node for node in self.new if node not in self.old)

    @property
    def removing(self) -> tuple[int, ...]:
        """Returns the brokers that drop their copy once the new ones have theirs."""
        return tuple(node for node in self.old if node not in self.new)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a broker: the number of its replicas, and of the preferred leaders among them."""

    replicas: int
    leaders: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The reassignments of a rebalance, in the order of their partitions, and their cost and effect.

    Carrying it out copies `replica_moves` replicas. `lower_bound` copies would give every broker the floor or ceiling
    of the mean, if each replica could go anywhere; more are needed, or the result is less even, only where racks, or
    replicas that the emptier brokers hold already, restrict the moves.
    """

    reassignments: tuple[Reassignment, ...]
    replica_moves: int
    lower_bound: int
    leader_changes: int
    before: Mapping[int, Load]
    after: Mapping[int, Load]


def plan_rebalance(
    current: Sequence[Assignment], brokers: Sequence[UsableBroker], leaving: Sequence[UsableBroker] = ()
) -> Plan:
    """Returns the plan that spreads `current` over `brokers` (those that stay or join) and moves all replicas off
    `leaving`.

    Raises `InvalidRequest` if a partition has more replicas than brokers remain, if only some brokers have a rack, or
    if a replica is on a broker that neither stays nor leaves.
    """
    _check(current, brokers, leaving)
    # In this order: only the first pass moves data, and the later ones choose among the copies that it leaves.
    even_lists, balancer = _even_replicas(current, brokers, leaving)
    even_leaders = _even_leaders(current, even_lists, brokers)
    new_lists = _even_followers(current, even_leaders, brokers)
    changes = [
        Reassignment(partition, old, replicas)
        for (partition, old), replicas in zip(current, new_lists, strict=True)
        if replicas != old
    ]
    nodes = [broker.node_id for broker in (*brokers, *leaving)]
    return Plan(
        reassignments=tuple(changes),
        replica_moves=balancer.moves,
        lower_bound=balancer.lower_bound,
        leader_changes=sum(change.old[0] != change.new[0] for change in changes),
        before=_loads(nodes, [assignment.replicas for assignment in current]),
        after=_loads(nodes, new_lists),
    )


def _check(current: Sequence[Assignment], brokers: Sequence[UsableBroker], leaving: Sequence[UsableBroker]) -> None:
    # For its check alone: either all brokers have a rack, or none.
    arrange(brokers)
    broker_counts = Counter(broker.node_id for broker in (*brokers, *leaving))
    assert max(broker_counts.values(), default=1) == 1, "a broker stays or leaves, once"
    for partition, replicas in current:
        assert len(set(replicas)) == len(replicas) > 0, "a broker holds a partition once"
        if len(replicas) > len(brokers):
            raise InvalidRequest(
                f"{partition} has {len(replicas)} replicas, but only {len(brokers)} brokers would be left; "
                "keep more brokers, or add others first"
            )
        for node in replicas:
            if node not in broker_counts:
                raise InvalidRequest(f"{partition} has a replica on broker {node}, which neither stays nor leaves")


# -- replicas -----------------------------------------------------------------------------------------------------


class _RackRules:
    """The rules of moves of replicas: a partition stays spread over its present number of racks, or over as many as the
    remaining brokers have. Moves that increase that number, or that do not move the leader, are preferred."""

    def __init__(
        self, current: Sequence[Assignment], brokers: Sequence[UsableBroker], leaving: Sequence[UsableBroker]
    ) -> None:
        self._rack_of = {broker.node_id: broker.rack for broker in (*brokers, *leaving)}
        racks = len({broker.rack for broker in brokers})
        # Of a single replica the leader is all there is to move, so no move is better for sparing it.
        self._leaders = [replicas[0] if len(replicas) > 1 else None for _, replicas in current]
        self._best = [min(len(replicas), racks) for _, replicas in current]
        self._least = [
            min(best, len({self._rack_of[node] for node in replicas}))
            for best, (_, replicas) in zip(self._best, current, strict=True)
        ]

    def merit(self, item: int, holders: Collection[int], source: int, target: int) -> int:
        racks = {self._rack_of[node] for node in holders if node != source}
        # The holders are those before the move: the source's rack counts only if another replica is in it.
        racks.add(self._rack_of[target])
        # A move must not take away racks that the partition has. That it has fewer than it could does not force a move.
        if len(racks) < self._least[item]:
            return -1
        return (len(racks) >= self._best[item]) + (self._leaders[item] != source)

    def is_bound(self, source: int, target: int) -> bool:
        # Within a rack a move leaves the partition's racks as they are, so any other move of it stays allowed.
        return self._rack_of[source] != self._rack_of[target]


def _even_replicas(
    current: Sequence[Assignment], brokers: Sequence[UsableBroker], leaving: Sequence[UsableBroker]
) -> tuple[list[tuple[int, ...]], Balancer]:
    balancer = Balancer(
        [replicas for _, replicas in current],
        [broker.node_id for broker in brokers],
        [broker.node_id for broker in leaving],
        _topics(current),
        _RackRules(current, brokers, leaving),
    )
    balancer.settle()
    return [_replaced(old, holders) for (_, old), holders in zip(current, balancer.holders, strict=True)], balancer


def _replaced(old: tuple[int, ...], holders: Collection[int]) -> tuple[int, ...]:
    """Returns the replica list `old` of a partition, with the new ones of `holders` in the places of the brokers that
    no longer hold the partition. Brokers that stay keep their places."""
    # Brokers that stay keep their slots: the order of preference changes no more than it must.
    new_nodes = iter(sorted(node for node in holders if node not in old))
    return tuple(node if node in holders else next(new_nodes) for node in old)


# -- the order of replica lists -----------------------------------------------------------------------------------


class _ListRules:
    """The rules of choosing the broker for a position of a replica list: it has a copy, and is at no earlier
    position."""

    def __init__(self, candidates: Sequence[tuple[int, ...]]) -> None:
        self._candidates = candidates

    def merit(self, item: int, holders: Collection[int], source: int, target: int) -> int:
        return BEST_MERIT if target in self._candidates[item] else -1

    def is_bound(self, source: int, target: int) -> bool:
        return False


def _even_leaders(
    current: Sequence[Assignment], lists: Sequence[tuple[int, ...]], brokers: Sequence[UsableBroker]
) -> list[tuple[int, ...]]:
    # If all partitions have equally many replicas, leaders come out even to within one: each replica is worth 1/RF of a
    # leader, so a fractional assignment between floor and ceiling exists, hence (network flow) an integral one.
    leaders = _even_choice([replicas[0] for replicas in lists], lists, brokers, _topics(current))
    return [_swapped(replicas, 0, leader) for replicas, leader in zip(lists, leaders, strict=True)]


def _even_followers(
    current: Sequence[Assignment], lists: Sequence[tuple[int, ...]], brokers: Sequence[UsableBroker]
) -> list[tuple[int, ...]]:
    topics = _topics(current)
    new_lists = list(lists)
    for broker in brokers:
        # A list of two leaves no choice of the first follower.
        led_items = [item for item, replicas in enumerate(lists) if replicas[0] == broker.node_id and len(replicas) > 2]
        followers = [lists[item][1:] for item in led_items]
        other_brokers = [candidate for candidate in brokers if candidate != broker]
        first_followers = _even_choice(
            [replicas[0] for replicas in followers], followers, other_brokers, [topics[item] for item in led_items]
        )
        for item, follower in zip(led_items, first_followers, strict=True):
            new_lists[item] = _swapped(lists[item], 1, follower)
    return new_lists


def _even_choice(
    first: Sequence[int], candidates: Sequence[tuple[int, ...]], brokers: Sequence[UsableBroker], groups: Sequence[int]
) -> list[int]:
    """Chooses one of each item's candidates so that brokers are chosen equally often, with the fewest changes from
    `first`."""
    if not first:
        return []
    balancer = Balancer(
        [(node,) for node in first], [broker.node_id for broker in brokers], (), groups, _ListRules(candidates)
    )
    balancer.settle()
    return [next(iter(holders)) for holders in balancer.holders]


def _swapped(replicas: tuple[int, ...], slot: int, node: int) -> tuple[int, ...]:
    """Returns the list in which `node` and the broker at `slot` have changed places."""
    replaced = replicas[slot]
    return tuple({replaced: node, node: replaced}.get(replica, replica) for replica in replicas)


# -- counting -----------------------------------------------------------------------------------------------------


def _topics(current: Sequence[Assignment]) -> list[int]:
    """Returns the number of each partition's topic; topics are numbered in the order of their first appearance."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(partition.topic, len(numbers)) for partition, _ in current]


def _loads(nodes: Iterable[int], lists: Sequence[tuple[int, ...]]) -> dict[int, Load]:
    replicas = Counter(node for replica_list in lists for node in replica_list)
    leaders = Counter(replica_list[0] for replica_list in lists)
    return {node: Load(replicas[node], leaders[node]) for node in sorted(nodes)}
