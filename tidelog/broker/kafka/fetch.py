"""Fetch: committed batches of many partitions, returned at once or when `min_bytes` have gathered.

Available records are read without yielding to the event loop. A request that has to wait (`fetch_wait.py`) is looked at
again whenever one of its partitions changes, until `min_bytes` are available over all partitions, a partition has an
error, or `max_wait_ms` has passed. Only a request of very many partitions becomes a task. The first batch of an answer
is returned whole, however large; further ones while `max_bytes` lasts. A partition is read at its leader, or from a
follower in the client's rack (`fetch_sources.py`).

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
from tidelog.broker.kafka.codes import fetch_code_of
from tidelog.broker.kafka.fetch_codec import NO_SESSION, FetchEntry, FetchRequest, LastFetch, write_fetched
from tidelog.broker.kafka.fetch_sources import FetchSources
from tidelog.broker.kafka.fetch_wait import FetchWait
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.broker.kafka.memory import has_no_room
from tidelog.broker.kafka.slices import ENTRIES, finished
from tidelog.model.access import Caller
from tidelog.model.errors import OffsetOutOfRange, RecordsLost, TidelogError
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
    """A Fetch request in progress."""

    __slots__ = (
        "_bytes",
        "_call",
        "_caller",
        "_charge",
        "_last",
        "_look",
        "_parts",
        "_request",
        "_sources",
        "_wait",
        "_waiting",
        "has_failed",
    )

    _request: FetchRequest
    _sources: FetchSources

    def __init__(
        self,
        parts: Parts,
        last: LastFetch,
        call: Call,
        caller: Caller,
        charge: Callable[[int], int],
        look: Callable[[], None],
    ) -> None:
        """`last` is the connection's last Fetch. `charge` is called once with the bytes of records in the answer, and
        returns the throttle time in ms. `look`, which must not raise, is called when the request waits and should be
        looked at again (`look_again`)."""
        self.has_failed = False
        """True if the request is answered with an error, since it could not wait."""
        self._parts = parts
        self._last = last
        self._call = call
        self._caller = caller
        self._charge = charge
        self._look = look
        self._wait: FetchWait | None = None
        self._waiting: list[tuple[LedPartition | LocalCopy, FetchEntry]] = []
        """The replicas that a waiting request is about."""
        self._bytes = 0
        """Bytes of the records read so far."""

    def begin(self) -> Steps[Answer | None]:
        """Reads the available records, in slices, between which the event loop serves other connections. Returns the
        answer, or None if the request waits for more records. Raises `Malformed`."""
        self._request = request = yield from self._last.read(self._call)
        self._sources = FetchSources(self._parts, self._caller, request.rack)
        if request.session_id != NO_SESSION or request.session_epoch not in WHOLE_FETCH:
            return (yield from write_fetched(self._call, request, 0, KafkaCode.FETCH_SESSION_ID_NOT_FOUND))
        is_enough = yield from self._try_now()
        wait_ms = min(request.wait_ms, self._parts.limits.request_timeout_ms_max)
        if is_enough or wait_ms <= 0 or self._parts.admission.waits.is_ended:
            return (yield from self._answer())
        try:
            if self._begin_wait(wait_ms / 1000):
                return None
        except TidelogError as error:
            self.has_failed = True
            return (yield from self._answer_failed(error))
        yield from self._try_now()
        return (yield from self._answer())

    def look_again(self) -> Steps[Answer | None]:
        """Returns the answer of the waiting request, if enough records are available or its wait is over; otherwise
        None."""
        wait = self._wait
        assert wait is not None, "only a request that waits is looked at again"
        if not wait.is_over and not self._has(self._request.bytes_min):
            return None
        if (wait.is_woken or self._bytes) and self._has(1):
            yield from self._try_now()
        else:
            self._bytes = 0
        self.leave()
        return (yield from self._answer())

    async def finish(self, steps: Steps[Answer | None]) -> tuple[Answer, bool]:
        """Runs the remaining steps of a request of very many partitions, waiting in between if it has to. Returns the
        answer, and whether it is an error."""
        work, is_time = self._parts.face.work, asyncio.Event()
        self._look = is_time.set
        try:
            answer = await finished(work, steps)
            is_time.set()  # records may have come between two slices
            while answer is None:
                await is_time.wait()
                is_time.clear()
                answer = await finished(work, self.look_again())
        finally:
            self.leave()
        return answer, self.has_failed

    def leave(self) -> None:
        """Ends the wait of the request, if it waits."""
        if self._wait is not None:
            self._wait.leave()
            self._wait = None

    # -- reading -----------------------------------------------------------------------------------------------------

    def _try_now(self) -> Steps[bool]:
        """Reads the available records of all partitions. Returns True if the answer can be sent: enough bytes, an
        error, or a preferred replica to report."""
        request = self._request
        remaining = min(max(request.bytes_max, 1), self._parts.limits.fetch_bytes_max, ANSWER_BYTES_MAX, self._room())
        if request.has_ids:
            self._name_topics()
        self._bytes = 0
        must_answer = False
        for served, entry in enumerate(request.entries, start=1):
            entry.reset()
            if remaining > 0:
                self._read(entry, min(max(entry.bytes_max, 1), remaining))
            if entry.error or entry.preferred >= 0 or (entry.tag is not None and entry.tag.lost):
                must_answer = True
            size = len(entry.data)
            remaining -= size
            self._bytes += size
            if served % ENTRIES == 0:
                yield None
        if self._bytes:
            self._parts.turn.count(size=self._bytes)
        return must_answer or self._bytes >= request.bytes_min

    def _name_topics(self) -> None:
        """Sets the names of the topics in a request that has ids."""
        image = self._parts.cluster.image
        for entry in self._request.entries:
            topic = self._parts.ids.find(image, entry.key)
            entry.topic = "" if topic is None else topic.name

    def _room(self) -> int:
        answers = self._parts.admission.answers
        if has_no_room(self._parts.admission):
            return 0
        return max(answers.bytes_max - answers.used, ROOM_BYTES_MIN)

    def _read(self, entry: FetchEntry, bytes_max: int) -> None:
        try:
            source = self._sources.of(entry)
            if source is not None:
                self._take(entry, source.read_nowait(entry.offset, bytes_max=bytes_max))
        except OffsetOutOfRange as error:
            is_ahead = self._sources.is_elsewhere(entry) and entry.offset > error.log_end_offset
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
        elif fetched.lost:
            raise RecordsLost("the records at this offset are lost")
        entry.data = fetched.data
        entry.high_watermark = fetched.high_watermark
        entry.log_start_offset = fetched.log_start_offset

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _begin_wait(self, wait_s: float) -> bool:
        """Begins the wait for records. Returns False if a partition cannot be read now, so that the request is answered
        at once. Raises `Overloaded`."""
        for entry in self._request.entries:
            try:
                source = self._sources.of(entry)
            except TidelogError:
                return False
            if source is None:
                return False
            self._waiting.append((source, entry))
            entry.data = b""  # too little, and read again with the rest
        deadline_s = asyncio.get_running_loop().time() + wait_s
        self._wait = FetchWait(self._parts, [source.watchers for source, _ in self._waiting], deadline_s, self._look)
        return True

    def _has(self, size_min: int) -> bool:
        """Returns True if so many bytes can be read, or if a read would raise an error."""
        ready = 0
        for source, entry in self._waiting:
            ready += source.bytes_ready(entry.offset, size_min - ready)
            if ready >= size_min:
                return True
        return False

    def _answer(self) -> Steps[Answer]:
        write = write_fetched if self._bytes else self._last.write_empty
        return write(self._call, self._request, self._charge(self._bytes))

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
