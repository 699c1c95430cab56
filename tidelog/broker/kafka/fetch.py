"""Fetch: committed batches of many partitions at once, now or when there are enough.

What is there is read without giving the event loop away; only a request that has to wait becomes a coroutine. It is
looked at again whenever one of its partitions changes, until `min_bytes` are there over all of them, one of them has an
error to tell, or its time is up. The first batch of an answer is given whole, however large; the others as long as
`max_bytes` lasts. A partition is read at its leader, or from the copy of a broker in the client's rack (KIP-392).

Offsets that an operator has given up are not passed in silence. Clients of tidelog are told in a tagged field, as they
are in a header of HTTP. Others have no place for that: a read that comes to them is answered with the error of
`RecordsLost`, and goes on when its client seeks behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import starmap
from typing import Final

from tidelog.broker.face.partitions import FetchedBatches, LedPartition, LocalCopy
from tidelog.broker.kafka.call import Answer, Call
from tidelog.broker.kafka.codes import fetch_code_of
from tidelog.broker.kafka.endpoints import hint_of
from tidelog.broker.kafka.fetch_codec import IDS_FROM, NO_SESSION, FetchEntry, FetchRequest, read_fetch, write_fetched
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.broker.kafka.memory import has_no_room
from tidelog.broker.kafka.slices import Slices, finished
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.cluster import PartitionInfo
from tidelog.model.errors import NotLeader, OffsetOutOfRange, RecordsLost, TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.lost_ranges import LostRange, format_lost
from tidelog.model.receipt_tags import FetchedTag
from tidelog.model.steps import Steps

ANSWER_BYTES_MAX: Final = 8 << 20
"""Records of one answer, whatever its client would take: they are read in one go, and are in memory until the client
takes them. The first batch may be larger."""
ROOM_BYTES_MIN: Final = 64 << 10
"""So much is read even if the memory for answers is taken by clients that read slowly."""
WHOLE_FETCH: Final = (-1, 0)
"""The epochs of a request that names all its partitions: there are no sessions here."""


class Fetching:
    """Serves one request, in slices: `try_to_answer` comes first, and `answer_later` goes on with what has to wait."""

    _request: FetchRequest

    def __init__(self, parts: Parts, call: Call, caller: Caller, charge: Callable[[int], int]) -> None:
        """`charge` is told once how many bytes of records an answer has; it returns for how many milliseconds the
        client should pause."""
        self._call = call
        self._bytes = 0
        """The size of the records that were found."""
        self._parts = parts
        self._caller = caller
        self._charge = charge

    def try_to_answer(self) -> Steps[Answer | None]:
        """Returns the answer; None if there is to be waited for one. Raises `Malformed`."""
        yield from self._begin()
        if self._request.session_id != NO_SESSION or self._request.session_epoch not in WHOLE_FETCH:
            return (yield from write_fetched(self._call, self._request, 0, KafkaCode.FETCH_SESSION_ID_NOT_FOUND))
        is_enough = yield from self._try_now()
        if is_enough or self._wait_s == 0 or self._parts.admission.waits.is_ended:
            return (yield from self._answer())
        return None

    async def answer_later(self, steps: Steps[Answer | None]) -> tuple[Answer, bool]:
        """Goes on with `try_to_answer`, then waits if that has found too little. Returns the answer, and whether it is
        an error."""
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
        for topic_id, entries in self._request.topics:
            topic = self._parts.ids.find(image, topic_id)
            for entry in entries:
                entry.topic = "" if topic is None else topic.name

    @property
    def _wait_s(self) -> float:
        """For how long it may wait."""
        return min(max(self._request.wait_ms, 0), self._parts.limits.request_timeout_ms_max) / 1000

    # -- reading -----------------------------------------------------------------------------------------------------

    def _try_now(self) -> Steps[bool]:
        """Reads what is there. Returns False if that is not enough, and nothing else is to be told."""
        remaining = min(
            max(self._request.bytes_max, 1), self._parts.limits.fetch_bytes_max, ANSWER_BYTES_MAX, self._room()
        )
        self._bytes = 0
        has_news = False
        slices = Slices()
        for entry in self._request.entries:
            entry.reset()
            if remaining > 0:
                self._read(entry, min(max(entry.bytes_max, 1), remaining))
            if entry.error or entry.preferred >= 0 or (entry.told is not None and entry.told.lost):
                has_news = True
            remaining -= len(entry.data)
            self._bytes += len(entry.data)
            if slices.end_with(1):
                yield None
        self._parts.turn.count(size=self._bytes)
        return has_news or self._bytes >= self._request.bytes_min

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
            entry.told = _fetched_tag(error)

    def _take(self, entry: FetchEntry, fetched: FetchedBatches) -> None:
        if self._request.is_ours:
            lost = format_lost(starmap(LostRange, fetched.lost)) if fetched.lost else ""
            entry.told = FetchedTag(fetched.leader_epoch, lost)
        entry.data = fetched.data
        entry.high_watermark = fetched.high_watermark
        entry.log_start_offset = fetched.log_start_offset

    def _source(self, entry: FetchEntry) -> LedPartition | LocalCopy | None:
        """Returns the replica to read; None if there is something else to tell, which is noted: an epoch of another
        leadership, or a replica that is nearer. Raises `NotAuthorized`, and as `Partitions.led_here`."""
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
            entry.error = _epoch_error(entry, copy.replica.leader_epoch)
            return None if entry.error else copy
        entry.error = _epoch_error(entry, led.leader_epoch)
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
        """Returns this broker's copy for a client of its rack; None for others."""
        rack = self._parts.cluster.config.broker_rack
        if rack is None or self._request.rack != rack:
            return None
        topic = self._parts.cluster.topic(entry.topic)
        return self._parts.partitions.local_copy(PartitionId(topic.topic_id, entry.partition))

    def _nearer(self, entry: FetchEntry) -> int:
        """Returns the broker of an in-sync replica in the client's rack, if the leader is in another; -1 if none is."""
        image, leader_rack = self._parts.cluster.image, self._parts.cluster.config.broker_rack
        if leader_rack == self._request.rack:
            return -1
        brokers = [image.brokers[node] for node in self._info(entry).isr if image.is_live(node)]
        return next((broker.node_id for broker in brokers if broker.rack == self._request.rack), -1)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _wait(self, deadline_s: float) -> bool:
        """Returns when `_try_now` may find enough, at the deadline (loop time), or when the listener shuts down: True
        if it may find anything. Raises `Overloaded`."""
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

        def has(bytes_wanted: int) -> bool:
            ready = 0
            for source, entry in sources:
                ready += source.bytes_ready(entry.offset, bytes_wanted - ready)
                if ready >= bytes_wanted:
                    return True
            return False

        async with self._parts.admission.waits.until(deadline_s):
            await self._parts.partitions.wait_until(lambda: has(bytes_min), watched, deadline_s)
        return has(1)

    def _answer(self) -> Steps[Answer]:
        return write_fetched(self._call, self._request, self._charge(self._bytes))

    def _answer_failed(self, error: TidelogError) -> Steps[Answer]:
        """Returns the answer to a request of which nothing was read: the error stands with each partition."""
        for entry in self._request.entries:
            entry.data = b""
            self._refuse(entry, error, fetch_code_of(error))
        return write_fetched(self._call, self._request, 0)


def _epoch_error(entry: FetchEntry, leader_epoch: int) -> int:
    if entry.leader_epoch in (-1, leader_epoch):
        return 0
    return KafkaCode.FENCED_LEADER_EPOCH if entry.leader_epoch < leader_epoch else KafkaCode.UNKNOWN_LEADER_EPOCH


def _fetched_tag(error: TidelogError) -> FetchedTag:
    """Returns an error as a client of tidelog is told of it."""
    if isinstance(error, OffsetOutOfRange):
        start, end = error.log_start_offset, error.log_end_offset
        return FetchedTag(error_code=error.code, message=error.message, log_start_offset=start, log_end_offset=end)
    return FetchedTag(error_code=error.code, message=error.message)
