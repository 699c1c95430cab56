"""Rolling restarts: the order of the brokers, and the conditions for restarting the next one. Pure.

A broker may be stopped if all replicas are in sync, all voters live, and all brokers have applied the metadata log. A
restart is complete when the broker has registered again and these conditions hold again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from tidelog.admin.results import ClusterDescription, TopicDescription

SHOWN_MAX: Final = 3


class ClusterState(msgspec.Struct, frozen=True):
    """The state of a cluster at one moment. `positions` are the metadata positions that the brokers have applied, None
    for a broker that does not respond. They were read after `cluster.metadata_position`, so a broker below that is
    behind."""

    cluster: ClusterDescription
    topics: Sequence[TopicDescription]
    positions: Mapping[int, int | None]

    def epoch_of(self, node: int) -> int:
        """Returns the epoch of the broker's registration; -1 if it has none."""
        return next((broker.broker_epoch for broker in self.cluster.brokers if broker.broker_id == node), -1)


def restart_order(cluster: ClusterDescription) -> list[int]:
    """Returns all brokers, rack by rack, so that a fault stays within one rack. The controller's rack is the last, and
    the controller the last in it, so that the controller moves once."""
    controllers = {broker.rack for broker in cluster.brokers if broker.is_controller}
    ordered = sorted(
        cluster.brokers,
        key=lambda broker: (broker.rack in controllers, broker.rack or "", broker.is_controller, broker.broker_id),
    )
    return [broker.broker_id for broker in ordered]


def not_whole(state: ClusterState) -> str:
    """Returns the reason why no broker may be stopped now; empty if one may."""
    return (
        _named("not live: broker", [broker.broker_id for broker in state.cluster.brokers if broker.is_fenced])
        or _named("not voting: broker", [voter.broker_id for voter in state.cluster.voters if not voter.is_live])
        or ("there is no active controller" if state.cluster.controller_id < 0 else "")
        or _named("not all replicas in sync: partition", _behind(state.topics))
        or _named(
            "behind in the metadata log: broker",
            [
                node
                for node, position in state.positions.items()
                if position is None or position < state.cluster.metadata_position
            ],
        )
    )


def not_back(state: ClusterState, node: int, epoch_before: int) -> str:
    """Returns the reason why a restarted broker is not back yet, given its registration's epoch before; empty
    if it is."""
    if state.epoch_of(node) <= epoch_before:
        return f"broker {node} has not been started again"
    return not_whole(state)


def _behind(topics: Sequence[TopicDescription]) -> list[str]:
    return [
        f"{topic.topic_name}-{partition.partition_id}"
        for topic in topics
        for partition in topic.partitions
        if partition.leader < 0 or any(node not in partition.isr for node in partition.replicas)
    ]


def _named(what: str, names: Sequence[object]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return f"{what} {', '.join(map(str, islice(names, SHOWN_MAX)))}{more}"
