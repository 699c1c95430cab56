"""Writer of a replicated log (Mesos: `Log::Writer`). It is exclusive because each append names the expected log end,
where Mesos uses a Paxos promise (decision 0018)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Self, Unpack

from tidelog.adapters.system import SystemClock
from tidelog.log.entries import CLAIM, RECORD_OVERHEAD_BYTES, TRUNCATION, entry_record, mark_record
from tidelog.log.partition import LogPartition
from tidelog.log.term import Term
from tidelog.model.batch_codec import encode_batch
from tidelog.model.errors import InvalidRequest, TooLarge
from tidelog.model.ports import Clock, Entropy
from tidelog.transport.errors import ClientClosed
from tidelog.transport.parameters import client_parameters
from tidelog.transport.security import Security, SecurityParameters

GROUP_BYTES_MAX: Final = 1 << 20
BATCH_OVERHEAD_BYTES: Final = 64


class Writer:
    """The exclusive writer of the log in a topic's partition, from `start` until another writer starts.

    - `bootstrap_servers`: URLs or `host:port` of any brokers of the cluster, as a comma-separated string or a list.
    - `topic`, `partition`: the partition that holds the log. Meant for topics with `commit.protocol=paxos`, but works
      with any that has `commit.order=total`, the default. No other program may write there, and `retention.ms` and
      `retention.bytes` must be -1.
    - `name`: information about the writer, stored in its claim; at most 255 bytes.
    - `timeout_ms` limits each call as a whole, `request_timeout_ms` one try at one broker.

    Use it as an async context manager, or call `start` and `close`. It belongs to one event loop.
    """

    @client_parameters(bootstrap="bootstrap_servers")
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        topic: str,
        *,
        partition: int = 0,
        name: str = "",
        timeout_ms: float = 30_000,
        request_timeout_ms: float = 5_000,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **security: Unpack[SecurityParameters],
    ) -> None:
        if len(name.encode()) > 255:
            raise InvalidRequest("a writer's name has at most 255 bytes")
        self._partition = LogPartition(
            bootstrap_servers,
            topic,
            partition,
            request_timeout_ms=request_timeout_ms,
            entropy=entropy,
            security=Security(**security),
        )
        self._name = name
        self._timeout_s = timeout_ms / 1000
        self._wall_ms = (clock or SystemClock()).wall_ms
        self._starting = asyncio.Lock()
        self._is_open = False
        self._entry_bytes_max = 0
        self._term: Term | None = None

    async def start(self) -> int:
        """Becomes the exclusive writer; returns the end of the log: everything that earlier writers got into it is
        before that position, and committed. May be called again, after `WriterFenced` or an unknown outcome.

        When it returns, every earlier writer is fenced: what it has in flight is in the log by now or never will be.

        Raises `InvalidRequest` if the topic's retention may delete entries; `TotalOrderRequired` if it has another
        `commit.order` than `total`; `UnknownTopic`, `UnknownPartition`, `ConnectFailed`; `DeliveryExpired` if no writer
        was fenced; `DeliveryUnknown` if one may have been: call `start` again. (Mesos: `start`, which returns
        "none" if the promise was not obtained.)
        """
        async with self._starting:
            if self._term is not None:
                # The earlier term ends before the claim is made: one writer, one end.
                await self._term.abort()
                self._term = None
            if not self._is_open:
                await self._partition.open()
                self._is_open = True
            deadline_s = self._deadline_s()
            self._entry_bytes_max = await self._partition.entry_bytes_max(deadline_s) - BATCH_OVERHEAD_BYTES
            # A new id for each term: with the old one, a late request of the term before would look like a repeat of
            # this one's, and be answered with its offsets.
            producer_id = await self._partition.new_producer_id(deadline_s)
            claim = encode_batch(
                [mark_record(self._wall_ms(), CLAIM, self._name)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
            )
            # The claim alone expects no end. Once it is committed, every later leader has it, and every log of a leader
            # ends behind it: what an older writer expects is before it, for ever.
            base = await self._partition.append(claim, deadline_s)
            # The claim is one record, so the log ends at `base + 1` for this writer, also if somebody has appended
            # since: the next entry will be refused then.
            self._term = Term(self._partition, producer_id, base + 1, min(GROUP_BYTES_MAX, self._entry_bytes_max))
            return self._term.end

    @property
    def ending(self) -> int:
        """Returns the position after this writer's last entry, or after its claim if there is none; it is the end of
        the log as long as this is the writer. Raises `ClientClosed` before `start`."""
        return self._current().end

    async def append(self, data: bytes) -> int:
        """Appends an entry directly after the one before it; returns its position when it is committed.

        Many tasks may append at once: their entries share requests, in the order of the calls. If a call is cancelled,
        its entry may be in the log, or still get there.

        Raises `WriterFenced` if another writer has started: the entry is not in the log, and this writer can append no
        more until it starts again. `DeliveryUnknown` if the outcome is unknown: start again, then read. `TooLarge`,
        `InvalidRequest`, `BufferFull`, `DeliveryExpired`: the entry is not in the log, and the writer continues.
        `ClientClosed`: not started, or an earlier outcome is unknown. (Mesos: `append`, which returns "none" if the
        promise is lost.)
        """
        # A null value is what marks have.
        if not isinstance(data, bytes):
            raise InvalidRequest(f"an entry is bytes, not {type(data).__name__}")
        term = self._current()
        bytes_max = self._entry_bytes_max - RECORD_OVERHEAD_BYTES
        if len(data) > bytes_max:
            raise TooLarge(f"an entry of {len(data)} bytes: {bytes_max} are possible with this max.message.bytes")
        return await term.submit(entry_record(self._wall_ms(), data), self._deadline_s())

    async def truncate(self, to: int) -> int:
        """Deletes the entries before `to`, on all replicas; returns the position after the truncation marker.

        The marker is appended first, like an entry, so a fenced writer deletes nothing. Positions stay the same.
        Typically `to` is the position of a snapshot. (Mesos: `truncate`.)

        Raises `InvalidRequest` if `to` is beyond the end. Raises `WriterFenced`, `DeliveryUnknown` or another error of
        `append` if the append of the marker fails; nothing is deleted then. If the deletion itself fails, raises its
        last error: the marker is in the log, and the call may be repeated.
        """
        deadline_s = self._deadline_s()
        if not 0 <= to <= self.ending:
            raise InvalidRequest(f"truncate to {to}: the log ends at {self.ending}")
        # First a mark, in its turn like any entry. A writer that was deposed gets `WriterFenced` here, and deletes
        # nothing of what the other one still needs.
        mark = await self._current().submit(mark_record(self._wall_ms(), TRUNCATION, str(to)), deadline_s)
        await self._partition.delete_before(to, deadline_s)
        return mark + 1

    async def close(self) -> None:
        """Waits for the queued entries and closes the connections. It fences no writer. May be called again."""
        if self._term is not None:
            # Entries on their way have deadlines, so this ends.
            await self._term.finish()
        await self._partition.close()
        self._is_open = False

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _current(self) -> Term:
        if self._term is None:
            raise ClientClosed("the writer is not started")
        return self._term

    def _deadline_s(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_s
