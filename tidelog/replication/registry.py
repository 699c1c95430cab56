"""Which protocol commits a partition: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.replication.isr.events import IsrChanged, IsrSettings, LogState
from tidelog.replication.isr.leader import IsrLeader


def new_protocol(
    *, node_id: int, leader_epoch: int, replicas: Sequence[int], log_end_offset: int, is_fsynced: bool
) -> IsrLeader:
    """The protocol object of a partition that `node_id` leads from `leader_epoch` on."""
    assert tuple(replicas) == (node_id,), "a partition with several replicas needs a shell that answers followers"
    log = LogState(0, log_end_offset, log_end_offset)
    alone = IsrChanged((node_id,), (node_id,), 0, {})
    return IsrLeader(node_id, leader_epoch, log, log_end_offset, alone, IsrSettings(is_fsynced=is_fsynced), now_ms=0)
