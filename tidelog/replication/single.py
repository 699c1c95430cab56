"""The commit protocol of a partition with one replica: what its disk holds is committed.

Primary-backup with an in-sync set of one, and nobody to ask. With `ack.durability=fsynced` the high watermark follows
the fsyncs, so an acknowledged record has been on the disk; with `replicated` it follows the appends, and a power cut
takes what the system had not written yet (Kafka's default, with its replication factor of 1).
"""

from __future__ import annotations

from tidelog.replication.protocol import (
    AdvanceHighWatermark,
    Append,
    Appended,
    AppendRefused,
    DurabilityChanged,
    Effect,
    Event,
    Propose,
    Synced,
)


class SingleReplica:
    """Invariant: high_watermark <= next_offset."""

    def __init__(self, node_id: int, leader_epoch: int, log_end_offset: int, *, is_fsynced: bool) -> None:
        self._leader_epoch = leader_epoch
        self._next_offset = log_end_offset
        self._high_watermark = log_end_offset
        self._is_fsynced = is_fsynced
        self._in_sync = (node_id,)

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def in_sync(self) -> tuple[int, ...]:
        return self._in_sync

    def step(self, event: Event) -> list[Effect]:
        match event:
            case Propose(offsets):
                base = self._next_offset
                self._next_offset = base + offsets
                return [Append(base, self._leader_epoch)]
            case AppendRefused(base):
                assert self._high_watermark <= base <= self._next_offset
                self._next_offset = base
                return []
            case Appended(end):
                return [] if self._is_fsynced else self._advance(end)
            case Synced(end):
                return self._advance(end)
            case DurabilityChanged(is_fsynced):
                self._is_fsynced = is_fsynced
                return []

    def _advance(self, end: int) -> list[Effect]:
        assert end <= self._next_offset
        if end <= self._high_watermark:
            return []
        self._high_watermark = end
        return [AdvanceHighWatermark(end)]
