"""Writes the lines of the audit log to the topic `__audit`, which all brokers write to and principals with the right
read.

No request waits for it: lines are kept in a bounded queue, and one batch at a time is appended at the topic's leader,
in the broker's own name. That is not a client request, so it makes no audit line itself. A batch that was not appended,
or whose outcome is unknown, is tried again: a line may be in the topic twice, and none is lost that the queue has room
for. Lines beyond that are dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final, Protocol

import structlog

from tidelog.broker.partitions.partition_handle import PartitionHandle
from tidelog.broker.partitions.proposals import ACKS_ALL
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import RecordBatch, parse_header
from tidelog.model.errors import TidelogError, UnknownTopic
from tidelog.model.names import AUDIT_TOPIC
from tidelog.model.ports import Clock

QUEUE_MAX: Final = 10_000
BATCH_LINES_MAX: Final = 250
BATCH_BYTES_MAX: Final = 256 << 10
"""Maximum bytes of one batch: well below the topic's `max.message.bytes`, and a millisecond of work."""
APPEND_S_MAX: Final = 10.0
PAUSE_S: Final = 1.0
FLUSH_S_MAX: Final = 1.0
COMPLAINT_S: Final = 60.0


class Handles(Protocol):
    """Look-up of partition handles by topic name and partition number."""

    def handle(self, topic: str, partition: int) -> PartitionHandle:
        """Returns a handle that writes at the partition's leader. Raises `UnknownTopic`, `LeaderNotAvailable`."""


class AuditTopic:
    """The lines of one broker that are not in the audit topic yet. `run` is its task."""

    def __init__(self, partitions: Handles, make: Callable[[], Awaitable[object]], clock: Clock, node_id: int) -> None:
        """`make` creates the topic if it does not exist; it raises `TidelogError` while it cannot."""
        self._partitions = partitions
        self._make = make
        self._clock = clock
        self._key = b"%d" % node_id
        self._queue: deque[bytes] = deque()
        self._has_lines = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._complained_s = -COMPLAINT_S
        self._logger = structlog.get_logger("tidelog.audit").bind(node_id=node_id)
        self.counts: Counter[str] = Counter({"published": 0, "unpublished": 0})
        """Number of lines by outcome: published to the topic, or dropped because the queue was full."""

    def put(self, lines: Sequence[bytes]) -> None:
        """Queues lines, each with its newline; drops those beyond the queue's bound."""
        accepted = lines[: max(0, QUEUE_MAX - len(self._queue))]
        self._queue.extend(accepted)
        if self._queue:
            self._has_lines.set()
            self._is_empty.clear()
        if len(accepted) < len(lines):
            self.counts["unpublished"] += len(lines) - len(accepted)
            self._complain("lines of the audit log are not in the topic: it does not take them for too long", "")

    async def flush(self) -> None:
        """Waits until all queued lines are in the topic, `FLUSH_S_MAX` at most."""
        try:
            async with asyncio.timeout(FLUSH_S_MAX):
                await self._is_empty.wait()
        except TimeoutError:
            self.counts["unpublished"] += len(self._queue)

    async def run(self) -> None:
        """Appends queued lines to the topic until it is cancelled."""
        while True:
            await self._has_lines.wait()
            batch = self._next()
            try:
                await self._append(batch)
            except (TidelogError, TimeoutError) as error:
                self._complain("the topic of the audit log does not take lines; they wait", str(error))
                await asyncio.sleep(PAUSE_S)
                continue
            self.counts["published"] += len(batch)
            for _ in batch:
                self._queue.popleft()
            if not self._queue:
                self._has_lines.clear()
                self._is_empty.set()

    def _next(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        for line in islice(self._queue, BATCH_LINES_MAX):
            size += len(line)
            if batch and size > BATCH_BYTES_MAX:
                break
            batch.append(line)
        return batch

    async def _append(self, lines: Sequence[bytes]) -> None:
        try:
            handle = self._partitions.handle(AUDIT_TOPIC, 0)
        except UnknownTopic:
            await self._make()
            handle = self._partitions.handle(AUDIT_TOPIC, 0)
        now_ms = self._clock.wall_ms()
        data = encode_batch([(now_ms, self._key, line.rstrip(b"\n")) for line in lines])
        batch = RecordBatch(parse_header(data), memoryview(data))
        deadline_s = asyncio.get_running_loop().time() + APPEND_S_MAX
        await handle.produce([batch], acks=ACKS_ALL, deadline_s=deadline_s, is_own=True)

    def _complain(self, message: str, reason: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._complained_s + COMPLAINT_S:
            self._complained_s = now_s
            self._logger.warning(message, reason=reason, waiting=len(self._queue), dropped=self.counts["unpublished"])
