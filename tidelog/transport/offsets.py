"""The first and last offsets of partitions, many in one request (`POST /offsets`, Kafka's ListOffsets).

Asked of any broker: one that does not lead a partition asks the one that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tidelog.model.errors import DamagedBatch, TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.transport.errors import decode_answer, error_from_code

if TYPE_CHECKING:  # who only wants the structs, as Spark's workers do, is spared aiohttp and asyncio
    from tidelog.transport.session import ClusterSession

JSON_HEADERS = {"Content-Type": "application/json"}
PARTITIONS_MAX = 1000
"""Partitions of one request; more take several."""


class OffsetQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question for one partition's offsets. With `timestamp` (ms) it asks also for the first offset of that time or
    later; with `high_watermark` the answer may wait until the partition has another one."""

    topic: str
    partition: int
    timestamp: int | None = None
    high_watermark: int | None = None


class PartitionOffsets(msgspec.Struct, frozen=True):
    """The extent of one partition, or why it is not known (`error_code`, `message`).

    `offset` and `timestamp` are those of the first record that is not older than the timestamp asked for; None if
    there is none.
    """

    topic: str
    partition: int
    topic_id: str | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    error_code: int | None = None
    message: str | None = None

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def error(self) -> TidelogError | None:
        """The exception this entry stands for, if it is no answer."""
        return None if self.error_code is None else error_from_code(self.error_code, self.message or "")

    @property
    def may_be_known_soon(self) -> bool:
        """True if the error passes by itself, as that of a partition whose leader is changing."""
        return self.error is not None and self.error.retriable and not isinstance(self.error, DamagedBatch)

    def extent(self) -> tuple[int, int]:
        """Returns log start offset and high watermark. Raises the entry's error."""
        if self.error is not None:
            raise self.error
        assert self.log_start_offset is not None and self.high_watermark is not None
        return self.log_start_offset, self.high_watermark


class _Request(msgspec.Struct, frozen=True):
    partitions: Sequence[OffsetQuery]


class OffsetsAnswer(msgspec.Struct, frozen=True):
    """The answers to offset queries: one entry per query, in their order."""

    partitions: list[PartitionOffsets]


_ENCODER = msgspec.json.Encoder()
_ANSWER = msgspec.json.Decoder(OffsetsAnswer)


async def fetch_offsets(
    session: ClusterSession, queries: Sequence[OffsetQuery], *, timeout_s: float | None = None
) -> list[PartitionOffsets]:
    """Asks for the offsets of partitions: one entry per query, in their order; a partition's error is in its entry."""
    offsets: list[PartitionOffsets] = []
    for start in range(0, len(queries), PARTITIONS_MAX):
        body = _ENCODER.encode(_Request(queries[start : start + PARTITIONS_MAX]))
        answer = await session.call("POST", "/offsets", body=body, headers=JSON_HEADERS, timeout_s=timeout_s)
        offsets += decode_answer(_ANSWER, answer).partitions
    return offsets


async def wait_for_offsets(session: ClusterSession, queries: Sequence[OffsetQuery]) -> list[PartitionOffsets]:
    """Does as `fetch_offsets`, and asks again for partitions whose error passes, up to the request timeout."""
    import asyncio  # noqa: PLC0415 - Spark's planner imports this module, and needs no event loop

    deadline_s = asyncio.get_running_loop().time() + session.request_timeout_s
    backoff = session.backoff()
    offsets = await fetch_offsets(session, queries)
    while unknown := [number for number, entry in enumerate(offsets) if entry.may_be_known_soon]:
        wait_s = backoff.next_s()
        left_s = deadline_s - asyncio.get_running_loop().time() - wait_s
        if left_s <= 0:
            break
        await asyncio.sleep(wait_s)
        again = await fetch_offsets(session, [queries[number] for number in unknown], timeout_s=left_s)
        for number, entry in zip(unknown, again, strict=True):
            offsets[number] = entry
    return offsets
