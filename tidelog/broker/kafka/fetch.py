"""Fetch: committed batches of many partitions, returned at once or when `min_bytes` have gathered.

Available records are read without yielding to the event loop; only a request that has to wait becomes a coroutine. It
is checked again whenever one of its partitions changes, until `min_bytes` are available over all partitions, a
partition has an error, or `max_wait_ms` has passed. The first batch of an answer is returned whole, however large;
further ones while `max_bytes` lasts. A partition is read at its leader, or from a follower in the client's rack
(KIP-392).

Offsets of records that were lost, and whose loss an operator has accepted, are not skipped silently. tidelog's own
client is told of them in a tagged field, as HTTP clients are in a header. Other clients get the error `RecordsLost` at
such an offset, and go on when they seek behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import starmap
from typing import Final

from tidelog.broker.face.partitions import FetchedBatches, LedPartition, LocalCopy
from tidelog.broker.kafka.call import Answer, Call
from tidelog.broker.kafka.codes import epoch_code, fetch_code_of
from tidelog.broker.kafka.endpoints import hint_of
from tidelog.broker.kafka.fetch_codec import IDS_FROM, NO_SESSION, FetchEntry, FetchRequest, read_fetch, write_fetched
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.broker.kafka.memory import has_no_room
from tidelog.broker.kafka.slices import ENTRIES, finished
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.cluster import PartitionInfo
from tidelog.model.errors import NotLeader, OffsetOutOfRange, RecordsLost, TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.lost_ranges import LostRange, format_lost
from tidelog.model.receipt_tags import FetchedTag
from tidelog.model.steps import Steps

ANSWER_BYTES_MAX: Final = 8 << 20
"""Maximum bytes of records in one answer, unless its first batch alone is larger. They are read in one go and stay in
memory until the client takes them."""
ROOM_BYTES_MIN: Final = 64 << 10
"""Bytes that a Fetch may read even if slow clients have used up the memory for answers."""
WHOLE_FETCH: Final = (-1, 0)
"""Session epochs of a request that names all its partitions. Fetch sessions are not supported."""


class Fetching:
    """A Fetch request in progress. `try_to_answer` is called first, and `answer_later` if it returns None."""

    _request: FetchRequest

    def __init__(self, parts: Parts, call: Call, caller: Caller, charge: Callable[[int], int]) -> None:
        """`charge` is called once with the bytes of records in the answer, and returns the throttle time in ms."""
        self._call = call
        self._bytes = 0
        """Bytes of the records read so far."""
        self._parts = parts
        self._caller = caller
        self._charge = charge

    def try_to_answer(self) -> Steps[Answer | None]:
        """Reads the available records, in slices, between which the event loop serves other connections. Returns the
        answer, or None if the request has to wait for more records. Raises `Malformed`."""
        yield from self._begin()
        if self._request.session_id != NO_SESSION or self._request.session_epoch not in WHOLE_FETCH:
            return (yield from write_fetched(self._call, self._request, 0, KafkaCode.FETCH_SESSION_ID_NOT_FOUND))
        is_enough = yield from self._try_now()
        if is_enough or self._wait_s == 0 or self._parts.admission.waits.is_ended:
            return (yield from self._answer())
        return None

    async def answer_later(self, steps: Steps[Answer | None]) -> tuple[Answer, bool]:
        """Runs the remaining steps of `try_to_answer`, then waits for records if too few are available. Returns the
        answer, and whether it is an error."""
        work = self._parts.face.work
        answer = await finished(work, steps)  # None from steps that have ended, too
        if answer is not None:
            return answer, False
        try:
            if await self._wait(asyncio.get_running_loop().time() + self._wait_s):
                await finished(work, self._try_now())
        except TidelogError as error:
            return await finished(work, self._answer_failed(error)), True
        return await finished(work, self._answer()), False

    def _begin(self) -> Steps[None]:
        self._request = yield from read_fetch(self._call)
        if self._call.version < IDS_FROM:
            return
        image = self._parts.cluster.image
        for entry in self._request.entries:
            topic = self._parts.ids.find(image, entry.topic)
            entry.topic = "" if topic is None else topic.name

    @property
    def _wait_s(self) -> float:
        """Seconds that the request may wait for records: the client's `max_wait_ms`, capped by the broker."""
        return min(max(self._request.wait_ms, 0), self._parts.limits.request_timeout_ms_max) / 1000

    # -- reading -----------------------------------------------------------------------------------------------------

    def _try_now(self) -> Steps[bool]:
        """Reads the available records of all partitions. Returns True if the answer can be sent: enough bytes, an
        error, or a preferred replica to report."""
        remaining = min(
            max(self._request.bytes_max, 1), self._parts.limits.fetch_bytes_max, ANSWER_BYTES_MAX, self._room()
        )
        self._bytes = 0
        must_answer = False
        for served, entry in enumerate(self._request.entries, start=1):
            entry.reset()
            if remaining > 0:
                self._read(entry, min(max(entry.bytes_max, 1), remaining))
            if entry.error or entry.preferred >= 0 or (entry.tag is not None and entry.tag.lost):
                must_answer = True
            remaining -= len(entry.data)
            self._bytes += len(entry.data)
            if served % ENTRIES == 0:
                yield None
        self._parts.turn.count(size=self._bytes)
        return must_answer or self._bytes >= self._request.bytes_min

    def _room(self) -> int:
        answers = self._parts.admission.answers
        if has_no_room(self._parts.admission):
            return 0
        return max(answers.bytes_max - answers.used, ROOM_BYTES_MIN)

    def _read(self, entry: FetchEntry, bytes_max: int) -> None:
        try:
            source = self._source(entry)
            if source is None:
                return
            fetched = source.read_nowait(entry.offset, bytes_max=bytes_max)
            if fetched.lost and not self._request.is_ours:
                raise RecordsLost("the records at this offset are lost")
            self._take(entry, fetched)
        except OffsetOutOfRange as error:
            is_ahead = self._is_elsewhere(entry) and entry.offset > error.log_end_offset
            self._refuse(entry, error, KafkaCode.OFFSET_NOT_AVAILABLE if is_ahead else fetch_code_of(error))
        except TidelogError as error:
            self._refuse(entry, error, fetch_code_of(error))

    def _refuse(self, entry: FetchEntry, error: TidelogError, code: KafkaCode) -> None:
        entry.error = code
        if self._request.is_ours:
            entry.tag = _fetched_tag(error)

    def _take(self, entry: FetchEntry, fetched: FetchedBatches) -> None:
        if self._request.is_ours:
            lost = format_lost(starmap(LostRange, fetched.lost)) if fetched.lost else ""
            entry.tag = FetchedTag(fetched.leader_epoch, lost)
        entry.data = fetched.data
        entry.high_watermark = fetched.high_watermark
        entry.log_start_offset = fetched.log_start_offset

    def _source(self, entry: FetchEntry) -> LedPartition | LocalCopy | None:
        """Returns the replica to read. Returns None if the entry is answered without reading, and sets its error (a
        wrong leader epoch, an unknown topic id) or its preferred read replica. Raises `NotAuthorized`,
        `UnknownTopic`, `UnknownPartition`, `NotLeader` or `LeaderNotAvailable`."""
        if not entry.topic:
            entry.error = KafkaCode.UNKNOWN_TOPIC_ID
            return None
        self._parts.refuse_unauthorized(self._caller, Operation.READ, Resource("Topic", entry.topic))
        try:
            led = self._parts.partitions.led_here(entry.topic, entry.partition)
        except NotLeader:
            copy = self._copy(entry)
            if copy is None:
                entry.hint = hint_of(self._parts.cluster.image, self._info(entry))
                raise
            entry.error = epoch_code(entry.leader_epoch, copy.replica.leader_epoch)
            return None if entry.error else copy
        entry.error = epoch_code(entry.leader_epoch, led.leader_epoch)
        if self._request.rack and not entry.error:
            entry.preferred = self._nearer(entry)
            entry.high_watermark, entry.log_start_offset = led.high_watermark, led.log_start_offset
        return None if entry.error or entry.preferred >= 0 else led

    def _is_elsewhere(self, entry: FetchEntry) -> bool:
        """Returns True if another broker leads the partition."""
        return self._info(entry).leader != self._parts.cluster.node_id

    def _info(self, entry: FetchEntry) -> PartitionInfo:
        return self._parts.cluster.topic(entry.topic).partitions[entry.partition]

    # -- copies nearby -----------------------------------------------------------------------------------------------

    def _copy(self, entry: FetchEntry) -> LocalCopy | None:
        """Returns this broker's follower replica if the client is in this broker's rack; otherwise None."""
        rack = self._parts.cluster.config.broker_rack
        if rack is None or self._request.rack != rack:
            return None
        topic = self._parts.cluster.topic(entry.topic)
        return self._parts.partitions.local_copy(PartitionId(topic.topic_id, entry.partition))

    def _nearer(self, entry: FetchEntry) -> int:
        """Returns the node id of a live in-sync replica in the client's rack, if the leader is in another rack;
        otherwise -1."""
        image, leader_rack = self._parts.cluster.image, self._parts.cluster.config.broker_rack
        if leader_rack == self._request.rack:
            return -1
        brokers = [image.brokers[node] for node in self._info(entry).isr if image.is_live(node)]
        return next((broker.node_id for broker in brokers if broker.rack == self._request.rack), -1)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _wait(self, deadline_s: float) -> bool:
        """Waits until enough records are available, until the deadline (loop time), or until the listener shuts down.
        Returns True if there is anything to return. Raises `Overloaded`."""
        sources: list[tuple[LedPartition | LocalCopy, FetchEntry]] = []
        for entry in self._request.entries:
            try:
                source = self._source(entry)
            except TidelogError:
                source = None
            if source is None:
                return True
            sources.append((source, entry))
        watched = [
            source.watchers if isinstance(source, LedPartition) else source.replica.watchers for source, _ in sources
        ]
        bytes_min = max(self._request.bytes_min, 1)

        def has(size_min: int) -> bool:
            ready = 0
            for source, entry in sources:
                ready += source.bytes_ready(entry.offset, size_min - ready)
                if ready >= size_min:
                    return True
            return False

        async with self._parts.admission.waits.until(deadline_s):
            await self._parts.partitions.wait_until(lambda: has(bytes_min), watched)
        return has(1)

    def _answer(self) -> Steps[Answer]:
        return write_fetched(self._call, self._request, self._charge(self._bytes))

    def _answer_failed(self, error: TidelogError) -> Steps[Answer]:
        """Returns an answer without records, in which each partition has the given error."""
        for entry in self._request.entries:
            entry.data = b""
            self._refuse(entry, error, fetch_code_of(error))
        return write_fetched(self._call, self._request, 0)


def _fetched_tag(error: TidelogError) -> FetchedTag:
    """Returns the tagged field in which tidelog's own client gets an error in full."""
    if isinstance(error, OffsetOutOfRange):
        start, end = error.log_start_offset, error.log_end_offset
        return FetchedTag(error_code=error.code, message=error.message, log_start_offset=start, log_end_offset=end)
    return FetchedTag(error_code=error.code, message=error.message)
