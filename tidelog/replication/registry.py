"""Which protocol commits a partition: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.replication.protocol import CommitProtocol
from tidelog.replication.single import SingleReplica


def new_protocol(
    *, node_id: int, leader_epoch: int, replicas: Sequence[int], log_end_offset: int, is_fsynced: bool
) -> CommitProtocol:
    """The protocol object of a partition that `node_id` leads from `leader_epoch` on."""
    assert tuple(replicas) == (node_id,), "a partition with several replicas needs a protocol that has peers"
    return SingleReplica(node_id, leader_epoch, log_end_offset, is_fsynced=is_fsynced)
