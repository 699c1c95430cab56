"""A broker's report on a replica that it has read and checked itself (REST v3, `verification`)."""

from __future__ import annotations

import msgspec


class DamagedOffsets(msgspec.Struct, frozen=True):
    """Offsets that a replica's disk has lost; `end_offset` is exclusive."""

    start_offset: int
    end_offset: int
    reason: str


class NamedBatch(msgspec.Struct, frozen=True):
    """A batch, as a replica's catalog names it."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    digest: str


class ReplicaVerification(msgspec.Struct, frozen=True):
    """The result of a replica that has read and checked itself, from `offset` to `next_offset`."""

    broker_id: int
    log_start_offset: int
    high_watermark: int
    offset: int
    next_offset: int
    bytes: int
    checksum: str
    """The checksum of the batches that the catalog names there: replicas with equal ones hold the same."""
    damaged: tuple[DamagedOffsets, ...]
    batches: tuple[NamedBatch, ...] | None


class CheckedFiles(msgspec.Struct, frozen=True):
    """The result for a part of what a broker keeps besides logs: `found` pieces were damaged, `left` of them still
    are."""

    name: str
    bytes: int
    found: int
    left: int
    error: str | None = None


class BrokerVerification(msgspec.Struct, frozen=True):
    """A part of what a broker keeps besides logs; unless `is_last`, more follows behind the last name."""

    broker_id: int
    checked: tuple[CheckedFiles, ...]
    is_last: bool
