"""What brokers did for fear of each other, as they count it: in-sync sets, leaders, controllers, fenced brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from tidelog.admin import AdminClient
from tidelog.bench.target import read_counters
from tidelog.model.cluster import PROTOCOLS
from tidelog.testing import LocalCluster

TIMES: Final = Path("/proc/stat")
IDLE, WAITING = 3, 4
FENCED: Final = "a broker is not heard of; it is fenced"
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


NOTHING: Final = Counts(0, 0, 0, 0, 0)


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


class Processors:
    """How much of the machine's processors nobody wants."""

    def __init__(self) -> None:
        self._before = self._ticks()

    def idle(self) -> float:
        """Returns the part of all processor time, since this was made, in which a processor had nothing to do."""
        now = self._ticks()
        spent = [after - before for after, before in zip(now, self._before, strict=True)]
        return (spent[IDLE] + spent[WAITING]) / max(1, sum(spent))

    def _ticks(self) -> list[int]:
        return [int(word) for word in TIMES.read_text().splitlines()[0].split()[1:9]]
