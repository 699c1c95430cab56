"""What brokers did for fear of each other, as they count it: in-sync sets, leaders, controllers, fenced brokers."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.admin import AdminClient
from tidelog.bench.target import read_counters
from tidelog.model.cluster import PROTOCOLS
from tidelog.testing import LocalCluster

FENCED = "a broker is not heard of; it is fenced"
"""What the controller's log says when it does that."""


class Counts(NamedTuple):
    """The sums over all brokers since they began."""

    shrinks: int
    """Replicas that left in-sync sets."""
    expands: int
    leaders: int
    """Changes of a partition's leader, to nobody included; an election of the same one again, too."""
    controllers: int
    fenced: int

    def since(self, before: Counts) -> Counts:
        """Returns what has come since."""
        return Counts(*(now - then for now, then in zip(self, before, strict=True)))


NOTHING = Counts(0, 0, 0, 0, 0)


async def read_counts(cluster: LocalCluster, admin: AdminClient) -> Counts:
    """Asks the brokers."""
    counters = await read_counters(cluster.bootstrap)
    topics = [await admin.describe_topic(name) for name in PROTOCOLS]
    return Counts(
        shrinks=round(counters["tidelog_isr_shrinks_total"]),
        expands=round(counters["tidelog_isr_expands_total"]),
        leaders=sum(found.leader_epoch for topic in topics for found in topic.partitions),
        controllers=(await admin.describe_cluster()).controller_epoch,
        fenced=sum(cluster.broker(node).output.count(FENCED) for node in cluster.node_ids),
    )
