"""The outbox: records waiting to be appended to the coordinator's log.

One batch is in flight; records decided meanwhile gather in the next. The records of one decision stay in one batch, so
that a log that ends anywhere contains whole decisions. The outbox is bounded in bytes; a decision refused because it is
full has changed nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tidelog.groups.records import GroupLogRecord, OffsetKey, encode
from tidelog.model.errors import Overloaded, TidelogError, TooLarge

GATHERED_BYTES_MAX: Final = 256 << 10
"""Maximum bytes of a batch with the records of more than one decision (about a request or a timeout), so that neither
writing nor loading it blocks the event loop."""
WAITING_BYTES_MAX: Final = 32 << 20
"""Maximum bytes of all batches not committed yet. The records of one decision (about a request or a timeout) are always
accepted if there are no others."""
RECORD_OVERHEAD_BYTES: Final = 32
BATCH_OVERHEAD_BYTES: Final = 128

Entry: TypeAlias = tuple[bytes, bytes | None]


class OutgoingBatch:
    """A batch with the records of one or more decisions (about requests or timeouts). `outcome` is a future: None once
    they are committed, otherwise the error."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.size = BATCH_OVERHEAD_BYTES
        self.is_sent = False
        self.changed: dict[str, None] = {}
        """Names of groups that the batch changes in more than committed offsets."""
        self.outcome: asyncio.Future[TidelogError | None] = asyncio.get_running_loop().create_future()

    def add(self, entries: Sequence[Entry], size: int, news: Sequence[GroupLogRecord]) -> None:
        self.entries += entries
        self.size += size
        # Commits are left out: they are the most frequent records, and change nothing that a member waits to hear.
        self.changed.update((record.group, None) for record in news if not isinstance(record.key, OffsetKey))


class Outbox:
    """The uncommitted batches of one coordinator, in order."""

    def __init__(self, batch_bytes_max: Callable[[], int]) -> None:
        self._batch_bytes_max = batch_bytes_max
        self._batches: deque[OutgoingBatch] = deque()
        self._bytes = 0
        self._has_mail = asyncio.Event()

    @property
    def newest(self) -> OutgoingBatch | None:
        """The last batch; once it is committed, all are. None if the outbox is empty."""
        return self._batches[-1] if self._batches else None

    def put(self, records: Sequence[GroupLogRecord], *, is_news: bool = True) -> OutgoingBatch:
        """Adds the records of one decision (about a request or a timeout) to a batch and returns the batch. `is_news`
        is False for copies of records that are already in the log. Raises `TooLarge` or `Overloaded`, with nothing
        added."""
        entries = [encode(record) for record in records]
        size = _size(entries)
        # A decision is never split over two batches: with half of it at the log's end a partition might be taken from
        # one member, and given to nobody, or to two.
        if size + BATCH_OVERHEAD_BYTES > self._batch_bytes_max():
            raise TooLarge(
                f"this would change {len(records)} records of the group, {size} bytes, which is over the "
                f"max.message.bytes of __consumer_offsets ({self._batch_bytes_max()}); nothing was done"
            )
        if self._batches and self._bytes + size > WAITING_BYTES_MAX:
            raise Overloaded("the group's coordinator has too much to write; nothing was done, try again later")
        batch = self._with_room_for(size)
        self._add(batch, entries, size, records if is_news else ())
        return batch

    def barrier(self, entry: Entry) -> OutgoingBatch:
        """Returns the newest batch if its append has not begun, else a new batch with `entry` alone. Its commit proves
        that this broker still led after this call."""
        # Not a batch that was sent: its append may have begun before the question, when this broker did lead.
        if self._batches and not self._batches[-1].is_sent:
            return self._batches[-1]
        batch = self._with_room_for(0)
        self._add(batch, [entry], _size([entry]), ())
        return batch

    def _add(self, batch: OutgoingBatch, entries: Sequence[Entry], size: int, news: Sequence[GroupLogRecord]) -> None:
        batch.add(entries, size, news)
        self._bytes += size
        self._has_mail.set()

    def _with_room_for(self, size: int) -> OutgoingBatch:
        newest = self.newest
        # What was sent takes nothing more: its records are encoded, and a late one would be told as committed without
        # being there.
        if newest is None or newest.is_sent or newest.size + size > min(GATHERED_BYTES_MAX, self._batch_bytes_max()):
            newest = OutgoingBatch()
            self._batches.append(newest)
        return newest

    async def next(self) -> OutgoingBatch:
        """Waits for the first batch, marks it as sent and returns it. It stays in the outbox until `done`."""
        while not self._batches:
            self._has_mail.clear()
            await self._has_mail.wait()
        batch = self._batches[0]
        batch.is_sent = True
        return batch

    def done(self, batch: OutgoingBatch) -> None:
        """Removes the first batch as committed, and resolves its outcome."""
        assert self._batches[0] is batch
        self._batches.popleft()
        self._bytes -= batch.size - BATCH_OVERHEAD_BYTES
        batch.outcome.set_result(None)

    def fail(self, sent: TidelogError, unsent: TidelogError) -> None:
        """Fails all batches: sent ones with `sent`, since they may be committed, the others with `unsent`."""
        batches, self._batches, self._bytes = self._batches, deque(), 0
        for batch in batches:
            # The batch under way may still be committed by the next leader. Those behind it never left this broker.
            batch.outcome.set_result(sent if batch.is_sent else unsent)


def _size(entries: Sequence[Entry]) -> int:
    return sum(len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in entries)
