"""REST responses of a broker that has read its replicas and checked their checksums (REST v3, `verification`)."""

from __future__ import annotations

import msgspec


class DamagedOffsets(msgspec.Struct, frozen=True):
    """A range of offsets that are damaged on a replica's disk; `end_offset` is exclusive."""

    start_offset: int
    end_offset: int
    reason: str


class NamedBatch(msgspec.Struct, frozen=True):
    """A batch as listed in a replica's catalog of batches."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    digest: str


class ReplicaVerification(msgspec.Struct, frozen=True):
    """The result of checking a replica's log from `offset` to `next_offset`."""

    broker_id: int
    log_start_offset: int
    high_watermark: int
    offset: int
    next_offset: int
    bytes: int
    checksum: str
    """Checksum over the batches that the catalog lists in this range; equal on replicas with the same batches."""
    damaged: tuple[DamagedOffsets, ...]
    batches: tuple[NamedBatch, ...] | None


class CheckedFiles(msgspec.Struct, frozen=True):
    """The result for one kind of a broker's files other than logs: `found` damaged pieces, of which `left` are still
    damaged."""

    name: str
    bytes: int
    found: int
    left: int
    error: str | None = None


class BrokerVerification(msgspec.Struct, frozen=True):
    """A page of the results for a broker's files other than logs; unless `is_last`, the next page starts behind the
    last name."""

    broker_id: int
    checked: tuple[CheckedFiles, ...]
    is_last: bool
