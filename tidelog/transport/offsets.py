"""Start and end offsets of partitions, many per request (`POST /offsets`, Kafka's ListOffsets).

Any broker answers: it queries the leaders of partitions that it does not lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tidelog.model.errors import DamagedBatch, TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.transport.errors import ConnectFailed, NoAnswer, decode_answer, error_from_code

if TYPE_CHECKING:  # who only wants the structs, as Spark's workers do, is spared aiohttp and asyncio
    from tidelog.transport.session import ClusterSession

JSON_HEADERS = {"Content-Type": "application/json"}
PARTITIONS_MAX = 1000
"""Partitions per request; more partitions are split into several requests."""


class OffsetQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """A query for one partition's offsets. With `timestamp` (ms) the result includes the first offset with that time or
    a later one; with `high_watermark` the broker may delay the response until the partition's high watermark differs
    from this."""

    topic: str
    partition: int
    timestamp: int | None = None
    high_watermark: int | None = None


class PartitionOffsets(msgspec.Struct, frozen=True):
    """The log start offset and high watermark of one partition, or an error (`error_code`, `message`).

    `offset` and `timestamp` are those of the first record that is not older than the queried timestamp; None if there
    is none.
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
        """The exception for the entry's error code; None for a success."""
        return None if self.error_code is None else error_from_code(self.error_code, self.message or "")

    @property
    def may_be_known_soon(self) -> bool:
        """True if the entry's error is transient, for example while a partition elects a leader."""
        return self.error is not None and self.error.retriable and not isinstance(self.error, DamagedBatch)

    def extent(self) -> tuple[int, int]:
        """Returns the log start offset and the high watermark. Raises the entry's error."""
        if self.error is not None:
            raise self.error
        assert self.log_start_offset is not None and self.high_watermark is not None
        return self.log_start_offset, self.high_watermark


class _Request(msgspec.Struct, frozen=True):
    partitions: Sequence[OffsetQuery]


class OffsetsAnswer(msgspec.Struct, frozen=True):
    """The response to a list of offset queries: one entry per query, in the same order."""

    partitions: list[PartitionOffsets]


_ENCODER = msgspec.json.Encoder()


async def fetch_offsets(
    session: ClusterSession, queries: Sequence[OffsetQuery], *, timeout_s: float | None = None
) -> list[PartitionOffsets]:
    """Fetches the offsets of partitions. Returns one entry per query, in the same order; the error of a partition is in
    its entry."""
    offsets: list[PartitionOffsets] = []
    for start in range(0, len(queries), PARTITIONS_MAX):
        body = _ENCODER.encode(_Request(queries[start : start + PARTITIONS_MAX]))
        answer = await session.call("POST", "/offsets", body=body, headers=JSON_HEADERS, timeout_s=timeout_s)
        offsets += decode_answer(OffsetsAnswer, answer).partitions
    return offsets


async def wait_for_offsets(session: ClusterSession, queries: Sequence[OffsetQuery]) -> list[PartitionOffsets]:
    """Fetches the offsets of partitions, and retries those with a transient error until the request timeout. Returns
    one entry per query, in the same order: the last one that a broker has sent."""
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
        try:
            again = await fetch_offsets(session, [queries[number] for number in unknown], timeout_s=left_s)
        except (ConnectFailed, NoAnswer):
            break  # the time is over, and the errors that brokers have sent say more
        for number, entry in zip(unknown, again, strict=True):
            offsets[number] = entry
    return offsets
