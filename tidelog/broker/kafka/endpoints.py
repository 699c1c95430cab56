"""The leader that a client should ask instead (KIP-951) stands in the answers to Produce and Fetch, so that who asked
the wrong broker finds the right one without asking for the metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.model.cluster import KAFKA, ClusterImage, Endpoint, PartitionInfo
from tidelog.model.kafka_wire import INT32, NO_TAGS, array, string, tagged


class Hint(NamedTuple):
    """A leader, and where its clients find it."""

    node_id: int
    leader_epoch: int
    endpoint: Endpoint
    rack: str | None


def hint_of(image: ClusterImage, info: PartitionInfo) -> Hint | None:
    """Returns the leader of a partition; None if there is none, or none that listens to Kafka's clients."""
    broker = image.brokers.get(info.leader)
    if broker is None or KAFKA not in broker.listeners:
        return None
    return Hint(broker.node_id, info.leader_epoch, broker.listeners[KAFKA], broker.rack)


def leader_tag(hint: Hint) -> bytes:
    """Returns the value of the field `CurrentLeader`."""
    return INT32.pack(hint.node_id) + INT32.pack(hint.leader_epoch) + NO_TAGS


def nodes_tag(hints: Iterable[Hint]) -> bytes:
    """Returns the tagged fields of an answer with such leaders: `NodeEndpoints`, each once, if there are any."""
    nodes = {hint.node_id: hint for hint in hints}
    if not nodes:
        return NO_TAGS
    out = array(len(nodes), is_flexible=True)
    for hint in nodes.values():
        out += INT32.pack(hint.node_id) + string(hint.endpoint.host, is_flexible=True)
        out += INT32.pack(hint.endpoint.port) + string(hint.rack, is_flexible=True) + NO_TAGS
    return tagged({0: out})
