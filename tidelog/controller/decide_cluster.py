"""Decisions about the cluster itself: its controller, the metadata log's voters, snapshots, and producer ids."""

from __future__ import annotations

from typing import Final

from tidelog.controller import commands, records
from tidelog.controller.decision import Decision
from tidelog.model.cluster import ClusterImage
from tidelog.model.ids import KEYED_PRODUCER_BIT, NodeId

PRODUCER_ID_BLOCK: Final = 1_000


def lead(image: ClusterImage, command: commands.LeadCluster) -> Decision:
    """Records that a controller was elected under an epoch; for the first controller, also the cluster's id and feature
    level."""
    created: tuple[records.MetadataRecord, ...] = ()
    # Only the first controller of a cluster names it; a later one brings an id along in vain.
    if not image.cluster_id:
        created = (records.ClusterCreated(command.cluster_id, command.level),)
    return Decision((*created, records.ControllerElected(command.node_id, command.epoch)))


def assign_voter(image: ClusterImage, command: commands.AssignVoter) -> Decision:
    """Assigns the next voter id of the metadata log to a broker's disk, unless the disk has an unused voter id
    already."""
    broker = image.brokers.get(NodeId(command.node_id))
    # An id at or above `voters_end` is unused yet, and a repeated command must not waste another.
    if broker is None or broker.storage != command.storage or broker.voter_id >= image.voters_end:
        return Decision()
    return Decision((records.VoterAssigned(broker.node_id, broker.storage, image.next_voter_id),))


def take_snapshot(_image: ClusterImage, _command: commands.TakeSnapshot) -> Decision:
    """Returns the record upon which every broker writes a snapshot at the same position."""
    return Decision((records.SnapshotTaken(),))


def agree_snapshot(image: ClusterImage, command: commands.AgreeSnapshot) -> Decision:
    """Records the root hash that a majority has reported for the newest snapshot, unless it is recorded already."""
    # A report about a snapshot that was agreed already, or never taken, is late or wrong.
    if not image.snapshot_agreed < command.position <= image.snapshot_position:
        return Decision()
    return Decision((records.SnapshotAgreed(command.position, command.root_hash),))


def allocate_producer_ids(image: ClusterImage, _command: commands.AllocateProducerIds) -> Decision:
    """Allocates the next block of producer ids, from the range below the ids that are derived from idempotency keys."""
    first = image.next_producer_id
    # Above this bit ids are made from idempotency keys, without asking; one of both kinds would mix two producers.
    assert first + PRODUCER_ID_BLOCK < KEYED_PRODUCER_BIT
    record = records.ProducerIdsAllocated(first + PRODUCER_ID_BLOCK)
    return Decision((record,), lambda after: commands.ProducerIdBlock(after.position, first, PRODUCER_ID_BLOCK))
