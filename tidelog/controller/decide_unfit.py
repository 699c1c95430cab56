"""Decisions about unfit replicas: the broker is live, but the replica's log has failed, is damaged, or is lost.

A log that is *offline* acknowledges nothing any more. So the replica leaves the in-sync set, or nothing would be
committed, and another replica leads. It still has all that it has acknowledged, so it stays eligible if the partition
has an ELR. If no other replica can lead, it stays the leader: committed records can still be read there.

A leader that cannot find out which records at the *damaged* end of its log were committed is replaced by another
member, which may have that end intact; it stays in the set, since it has everything else. The next replica in the order
of the replicas takes over, so that each gets its turn.

A log that is *lost*, while its disk remained, is treated like that of a new disk: the replica leaves ISR and ELR, and
if no other replica may lead, the partition has no leader.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.config.schema import BrokerConfig
from tidelog.controller.broker_state import Loss, Lost
from tidelog.controller.decide_partitions import Partitions, decide_reports
from tidelog.controller.decision import Decision
from tidelog.controller.partition_commands import (
    LostReplica,
    ReportLostReplicas,
    ReportUnfitReplicas,
    UnfitReason,
    UnfitReplica,
)
from tidelog.controller.protocols import rules_of
from tidelog.controller.records import RENEWED_LEVEL
from tidelog.model.cluster import BrokerInfo, ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import UnsupportedLevel
from tidelog.model.ids import NodeId


def report_unfit(image: ClusterImage, command: ReportUnfitReplicas, config: BrokerConfig) -> Decision:
    """Removes the replicas that a broker reports as unfit from leadership, and from the ISR where their logs
    acknowledge nothing. A report about another leader epoch is ignored. Raises `StaleBrokerEpoch`, `BrokerRemoved` or
    `NotController`."""
    return decide_reports(image, command, config, command.replicas, _relieve)


def _relieve(
    partitions: Partitions, broker: BrokerInfo, unfit: UnfitReplica, topic: Topic, info: PartitionInfo
) -> None:
    node = broker.node_id
    is_counted_on = node in info.isr or info.leader == node
    # After an election the report is of the past: the replica may be well again, and lead by that election.
    if info.leader_epoch != unfit.leader_epoch or not is_counted_on:
        return
    others = _candidates(partitions.image, info, node)
    # If nobody else can lead, the unfit leader stays: what is committed can still be read there.
    if len(others) < rules_of(topic).live_needed(info):
        return
    # A leader whose disk hangs gives way only to a member that is in sync.
    if unfit.reason is UnfitReason.STALLED and (info.leader != node or not {*others[:1]} & {*info.isr}):
        return
    is_damaged = unfit.reason is UnfitReason.DAMAGED
    # A damaged end leaves the rest of the log sound, so the replica stays in the set.
    if is_damaged and info.leader == node and others[0] in info.isr:
        partitions.settle(topic, info, replace(info, leader=others[0]))
    # An offline or stalled log acknowledges nothing: kept in the ISR, it would hold up every commit.
    elif not is_damaged or info.leader == node:
        partitions.settle(topic, info, info, unfit=node)


def _candidates(image: ClusterImage, info: PartitionInfo, node: NodeId) -> list[NodeId]:
    """Returns the brokers that may lead in place of `node` without data loss: in-sync replicas first, in the order of
    the replicas from `node` on, then those of the ELR."""
    # In a circle from the unfit one on, so that all have their turn if several are damaged.
    at = info.replicas.index(node)
    others = [replica for replica in (*info.replicas[at + 1 :], *info.replicas[:at]) if image.is_live(replica)]
    return [replica for nodes in (info.isr, info.elr) for replica in others if replica in nodes]


# -- lost logs ---------------------------------------------------------------------------------------------------------


def report_lost(image: ClusterImage, command: ReportLostReplicas, config: BrokerConfig) -> Decision:
    """Has lost replicas begin anew with empty logs; a replica that has begun anew since is left as it is. Raises
    `StaleBrokerEpoch`, `BrokerRemoved`, `NotController`, or `UnsupportedLevel`: the cluster's metadata cannot record it
    yet."""
    if image.level < RENEWED_LEVEL:
        raise UnsupportedLevel(
            f"logs of broker {command.node_id} are lost, and at feature level {image.level} the metadata cannot say "
            "so. Upgrade all brokers and run `tidelog cluster upgrade --finalize`, or start this one with another disk"
        )
    return decide_reports(image, command, config, command.replicas, _begin_anew)


def _begin_anew(
    partitions: Partitions, broker: BrokerInfo, replica: LostReplica, topic: Topic, info: PartitionInfo
) -> None:
    node = broker.node_id
    # The report comes until it is heeded; by now the replica may have been filled, and must not be emptied again.
    if node not in dict(info.since) or info.since_of(node) != replica.since:
        return
    # Struck out here, the replica gets the position of the record that is being decided (`PartitionChange.renewed`).
    anew = replace(info, since=tuple(began for began in info.since if began[0] != node))
    partitions.settle(topic, info, anew, unfit=node, lost=Lost(node, Loss.DISK, broker.epoch))
