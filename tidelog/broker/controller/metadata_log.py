"""Where the controller keeps its decisions: an interface, and the log of a controller that has no peers.

A cluster of several controllers agrees on the log's entries among them; the controller above sees only `replay` and
`append`. This one is a partition log like any other, with one batch per decision, so it has the same checksums, group
commit and loading rules, and the same tools read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from tidelog.broker.controller.records import MetadataRecord, decode_record, encode_record
from tidelog.broker.log_writer import LogWriter
from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import assign_offsets, iter_batches, split_batches
from tidelog.model.errors import InternalError, TidelogError
from tidelog.model.ports import Clock
from tidelog.model.records import Record
from tidelog.storage.partition_log import PartitionLog

READ_BYTES = 1 << 20
DECISION_BYTES_MAX = 16 << 20


class MetadataDamaged(TidelogError):
    """The metadata log cannot be read whole, so this broker must not act on it. No data was touched."""


class MetadataLog(Protocol):
    """An ordered, durable sequence of records that all controllers agree on."""

    def replay(self) -> Iterator[tuple[int, MetadataRecord]]:
        """All records so far, with their positions. Raises `MetadataDamaged`."""
        ...

    async def append(self, records: Sequence[MetadataRecord]) -> int:
        """Adds the records of one decision, all or none; returns the first one's position when they are durable.

        Raises `TidelogError`: definite ones mean that nothing was added.
        """
        ...


class LocalMetadataLog:
    """The metadata log of a cluster with one controller."""

    def __init__(self, log: PartitionLog, leader_epoch: int, log_writer: LogWriter, clock: Clock) -> None:
        self.log = log
        self._leader_epoch = leader_epoch
        self._log_writer = log_writer
        self._clock = clock
        self._durable = asyncio.Event()

    def replay(self) -> Iterator[tuple[int, MetadataRecord]]:
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            try:
                extent = self.log.read(offset, READ_BYTES, self.log.log_end_offset)
                for batch in iter_batches(extent.data):
                    for record in decode_batch(batch):
                        yield record.offset, decode_record(record.value or b"")
            except (TidelogError, msgspec.DecodeError) as error:
                raise MetadataDamaged(
                    f"the metadata log cannot be read at offset {offset}: {error}. Nothing was changed or removed; "
                    f"restore the directory metadata/ from a copy, then start again"
                ) from error
            offset = extent.next_offset

    async def append(self, records: Sequence[MetadataRecord]) -> int:
        now_ms = self._clock.wall_ms()
        encoded = encode_batch([Record(now_ms, None, encode_record(record)) for record in records])
        (batch,) = split_batches(encoded, batch_bytes_max=DECISION_BYTES_MAX)
        base_offset = self.log.log_end_offset
        self.log.append([assign_offsets(batch, base_offset, self._leader_epoch)], now_ms)
        while self.log.durable_offset < base_offset + len(records):
            if self.log.offline_reason is not None:
                raise InternalError(f"the metadata log is offline ({self.log.offline_reason}); the outcome is unknown")
            self._durable.clear()
            self._log_writer.submit(self)
            await self._durable.wait()
        return base_offset

    def committed(self) -> None:
        """The log writer's report."""
        self._durable.set()
