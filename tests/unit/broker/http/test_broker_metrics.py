"""The page of metrics says of repairs whom a partition waits for, and what was given up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tidelog.broker.face.face import BrokerFace
from tidelog.broker.http.broker_metrics import BrokerMetrics
from tidelog.broker.http.cluster_metrics import ClusterMetrics
from tidelog.broker.replicas.data_plane import WaitingPartition
from tidelog.model.cluster import ClusterImage, PartitionInfo, Regrouping, Topic
from tidelog.model.ids import NodeId, TopicId
from tidelog.model.losses import AcceptedLoss


def samples(families: Any, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one family, by the values of their labels."""
    (found,) = (family for family in families if family.name == name)
    return {tuple(sample.labels.values()): sample.value for sample in found.samples}


def test_each_broker_that_a_partition_waits_for_is_named() -> None:
    waiting = {
        ("t", 0): WaitingPartition(1, 1, 5.0, frozenset({3, 2})),
        ("u", 1): WaitingPartition(1, 0, 5.0, frozenset()),
    }
    face = cast("BrokerFace", SimpleNamespace(statistics=SimpleNamespace(waiting=waiting)))
    found = samples(BrokerMetrics(face)._waiting(), "tidelog_partition_waits_for")
    assert found == {("t", "0", "2"): 1, ("t", "0", "3"): 1}


def test_what_was_given_up_is_counted_by_what_it_was() -> None:
    one = NodeId(1)
    losses = (AcceptedLoss(3, 5, 1, "op", 1), AcceptedLoss(7, 8, 1, "op", 1))
    infos = [
        PartitionInfo(0, one, 1, (one,), (one,), losses=losses),
        PartitionInfo(1, one, 1, (one,), (one,), regroupings=(Regrouping(1, 3, 1, "op", 1, 1),)),
    ]
    topics = {name: Topic(name, TopicId(name * 32), {}, (info,)) for name, info in zip("tu", infos, strict=True)}
    face = cast("BrokerFace", SimpleNamespace(cluster=SimpleNamespace(image=ClusterImage("c", topics=topics))))
    found = samples(ClusterMetrics(face)._brokers(), "tidelog_accepted_losses")
    assert found == {("t", "records"): 2, ("u", "votes"): 1}
