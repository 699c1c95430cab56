"""Places new partitions: striped over the brokers, shifted at each round, spread over racks.

With n brokers in order of their ids, partition p's preferred replica goes to broker i = (start + p) mod n, and its
replica j to broker (i + 1 + ((k + j - 1) mod (n - 1))) mod n, where k = p div n counts the rounds. That is Kafka's
rule, and the (i + j + k) mod n of its 2012 design as long as j + k < n. The shift k makes the successors of a broker's
partitions differ: when it fails, its load goes to all others.

15 partitions, 5 brokers, 3 replicas:

    replica    b0           b1           b2           b3           b4
    1st        p0 p5 p10    p1 p6 p11    p2 p7 p12    p3 p8 p13    p4 p9 p14
    2nd        p4 p8 p12    p0 p9 p13    p1 p5 p14    p2 p6 p10    p3 p7 p11
    3rd        p3 p7 p11    p4 p8 p12    p0 p9 p13    p1 p5 p14    p2 p6 p10

With racks, the brokers are ordered rack by rack in turn, the shift counts in racks, and a broker is skipped while its
rack has a replica and another rack has none. The rule is for new partitions only: assignments are stored, and never
computed again, because that would move most of the data after a change of brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from tidelog.model.errors import InvalidRequest


class UsableBroker(NamedTuple):
    """A broker that can take replicas. Either all brokers have a rack, or none does."""

    node_id: int
    rack: str | None = None


def assigned_replicas(
    brokers: Sequence[UsableBroker], partitions: range, replication_factor: int, *, start: int = 0
) -> list[list[int]]:
    """Returns the replicas of each partition, preferred leader first. `start` is an index into the brokers as `arrange`
    orders them.

    Raises `InvalidRequest` if there are fewer brokers than replicas, or only some of them have a rack.
    """
    if not 1 <= replication_factor <= len(brokers):
        raise InvalidRequest(
            f"replication factor {replication_factor} needs as many brokers; the cluster has {len(brokers)}"
        )
    ordered = arrange(brokers)
    return [_replicas(ordered, partition, replication_factor, start) for partition in partitions]


def arrange(brokers: Sequence[UsableBroker]) -> list[UsableBroker]:
    """Returns the brokers in the order in which partitions are dealt out: by id; with racks, one of each rack in turn.
    Raises `InvalidRequest` if only some have a rack."""
    by_rack: dict[str | None, list[UsableBroker]] = {}
    for broker in sorted(brokers, key=lambda broker: (broker.rack or "", broker.node_id)):
        by_rack.setdefault(broker.rack, []).append(broker)
    if None in by_rack and len(by_rack) > 1:
        without_rack = ", ".join(str(broker.node_id) for broker in by_rack[None])
        raise InvalidRequest(
            f"some brokers have a rack and some have none ({without_rack}); set broker.rack on all, or on none"
        )
    # One broker of each rack in turn: neighbours, and so the replicas of a partition, are of different racks as far as
    # there are any. Racks that are smaller run out first.
    return [broker for broker in chain.from_iterable(zip_longest(*by_rack.values())) if broker is not None]


def _replicas(ordered: list[UsableBroker], partition: int, replication_factor: int, start: int) -> list[int]:
    broker_count, rack_count = len(ordered), len(dict.fromkeys(broker.rack for broker in ordered))
    first = (start + partition) % broker_count
    # In steps of whole racks, so that the next broker in order is still of the next rack.
    shift = partition // broker_count * rack_count
    # Modulo n - 1, beginning behind the preferred replica: so no shift ever comes back to it. Modulo n (Kafka's
    # design of 2012) puts two replicas on one broker at j + k = n.
    turns = ((shift + step) % (broker_count - 1) for step in range(broker_count - 1))
    chosen, left = [ordered[first]], list[UsableBroker]()
    for candidate in (ordered[(first + 1 + turn) % broker_count] for turn in turns):
        if len(chosen) == replication_factor:
            break
        (chosen if _keeps_spread(candidate, chosen, rack_count) else left).append(candidate)
    # Every rack has its replicas by now, or is too small for more: the rest goes to any brokers that are left.
    return [broker.node_id for broker in (*chosen, *left)][:replication_factor]


def _keeps_spread(candidate: UsableBroker, chosen: list[UsableBroker], rack_count: int) -> bool:
    used_racks = dict.fromkeys(broker.rack for broker in chosen)
    return candidate.rack not in used_racks or len(used_racks) == rack_count


def least_leading(ordered: Sequence[UsableBroker], leaders: Sequence[int]) -> int:
    """Returns the index of the broker that leads the fewest partitions, the first of equals. A new topic's first
    partition goes there."""
    counts = [leaders.count(broker.node_id) for broker in ordered]
    return counts.index(min(counts))
