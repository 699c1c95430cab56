"""The current leader in answers to Produce and Fetch (KIP-951), by which a client that asked the wrong broker finds the
right one without a Metadata request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.model.cluster import KAFKA, ClusterImage, Endpoint, PartitionInfo
from tidelog.model.kafka_wire import INT32, NO_TAGS, array, string, tagged


class Hint(NamedTuple):
    """The leader of a partition and its address for Kafka clients."""

    node_id: int
    leader_epoch: int
    endpoint: Endpoint
    rack: str | None


def hint_of(image: ClusterImage, info: PartitionInfo) -> Hint | None:
    """Returns the leader of a partition; None if there is none, or it has no Kafka listener."""
    broker = image.brokers.get(info.leader)
    if broker is None or KAFKA not in broker.listeners:
        return None
    return Hint(broker.node_id, info.leader_epoch, broker.listeners[KAFKA], broker.rack)


def leader_tag(hint: Hint) -> bytes:
    """Returns the encoded field `CurrentLeader`."""
    return INT32.pack(hint.node_id) + INT32.pack(hint.leader_epoch) + NO_TAGS


def nodes_tag(hints: Iterable[Hint]) -> bytes:
    """Returns the encoded tagged fields of an answer: `NodeEndpoints` with each leader once, or none if there are no
    leaders."""
    nodes = {hint.node_id: hint for hint in hints}
    if not nodes:
        return NO_TAGS
    out = array(len(nodes), is_flexible=True)
    for hint in nodes.values():
        out += INT32.pack(hint.node_id) + string(hint.endpoint.host, is_flexible=True)
        out += INT32.pack(hint.endpoint.port) + string(hint.rack, is_flexible=True) + NO_TAGS
    return tagged({0: out})
