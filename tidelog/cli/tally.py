"""The outcomes of produced records: how many are certainly in the log, at which offsets, and how many are not."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.cli.terminal import counted
from tidelog.model.errors import TidelogError
from tidelog.producer import RecordMetadata

PARTITIONS_SHOWN_MAX = 6


@dataclass(slots=True)
class Extent:
    """The records written to one partition and their first and last offset; None if the broker returned no offsets."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None

    def add(self, offset: int | None) -> None:
        """Adds one record at `offset`."""
        self.records += 1
        if offset is not None:
            self.first_offset = offset if self.first_offset is None else min(offset, self.first_offset)
            self.last_offset = offset if self.last_offset is None else max(offset, self.last_offset)


class Tally:
    """Counts the outcomes of records. `error` is the first error."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.refused = 0
        self.unknown = 0
        self.bytes = 0
        self.seconds = 0.0
        self.error: TidelogError | None = None
        self._extents: dict[int, Extent] = {}

    async def settle(self, deliveries: Sequence[Awaitable[RecordMetadata]], size: int) -> None:
        """Waits for the outcomes of these records, of `size` bytes in total, and counts them. Raises nothing."""
        for delivery in deliveries:
            try:
                metadata = await delivery
            except TidelogError as error:
                self.error = self.error or error
                self.refused += error.definite
                self.unknown += not error.definite
            else:
                self.acknowledged += 1
                self._extents.setdefault(metadata.partition, Extent()).add(metadata.offset)
        self.bytes += size

    def summary(self) -> str:
        """Returns the counts as one line of text."""
        seconds = max(self.seconds, 1e-6)
        return (
            f"{counted(self.acknowledged, 'record')}, {_megabytes(self.bytes)} MB in {seconds:.2f} s ("
            f"{self.acknowledged / seconds:,.0f} records/s, {_megabytes(self.bytes / seconds)} MB/s)"
            f"{self._offsets()}"
        )

    def shortfall(self) -> str:
        """Returns a note for an error message: how many records are in the log, are not, or are unknown."""
        return (
            f"{counted(self.acknowledged, 'record')} acknowledged, {self.refused:,} surely not appended, "
            f"{self.unknown:,} unknown{self._offsets()}"
        )

    def document(self, topic: str) -> dict[str, Any]:
        """Returns the counts as an object for JSON."""
        return {
            "topic_name": topic,
            "records": self.acknowledged,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 6),
            "partitions": [
                {
                    "partition_id": partition,
                    "records": extent.records,
                    "first_offset": extent.first_offset,
                    "last_offset": extent.last_offset,
                }
                for partition, extent in sorted(self._extents.items())
            ],
        }

    def _offsets(self) -> str:
        """Returns the range of offsets in each partition as text; other producers may have written in between."""
        extents = [
            (partition, extent) for partition, extent in sorted(self._extents.items()) if extent.last_offset is not None
        ]
        if len(self._extents) > PARTITIONS_SHOWN_MAX:
            return f"; in {len(self._extents)} partitions"
        offsets = ", ".join(f"{partition}: {extent.first_offset}-{extent.last_offset}" for partition, extent in extents)
        return f"; offsets {offsets}" if offsets else ""


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f}"
