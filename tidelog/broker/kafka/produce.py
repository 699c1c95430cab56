"""Produce: hands the batches of a request to the partitions that this broker leads. Nothing is forwarded to other
brokers.

A partition led elsewhere is answered with NOT_LEADER_OR_FOLLOWER and the current leader; forwarding would hide a
client's stale metadata for ever. Each partition has its own outcome. All batches of a request are handed over before
the next request of the connection begins, so that pipelined batches of one producer keep their order. The answer is
sent when the last partition has an outcome.

If the request queue (mailbox) of a partition is full, the request waits, and its connection is not read. A request of
very many partitions is handed over in slices, and its connection is not read before all of it is handed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tidelog.broker.face.partitions import LedPartition, ProduceReceipt, Proposal
from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.codes import code_of
from tidelog.broker.kafka.endpoints import hint_of
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.broker.kafka.produce_codec import IDS_FROM, TRANSACTIONS_FROM, ProduceEntry, ProduceRequest
from tidelog.broker.kafka.slices import ENTRIES
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.batch_header import split_batches
from tidelog.model.errors import InvalidBatch, NotLeader, TidelogError
from tidelog.model.kafka_codes import OLD_REPEAT, KafkaCode
from tidelog.model.receipt_tags import ProducedTag

ACKS: Final = (-1, 0, 1)

Led = list[tuple[ProduceEntry, LedPartition | None]]


class Production:
    """A Produce request in progress: hands its batches to the partitions and collects their outcomes."""

    def __init__(self, parts: Parts, call: Call, request: ProduceRequest, finish: Callable[[Production], None]) -> None:
        """`finish` is called once, when all partitions have an outcome, but never during `begin`. The caller has to
        call `expire` at `deadline_s`."""
        self.call = call
        self.request = request
        self.has_failed = False
        """True if a partition has refused its batch. A client that asked for acks=0 gets no answer, so its connection
        is closed."""
        self.is_gone = False
        """True once the connection is lost: batches not appended yet are not appended."""
        self._parts = parts
        self._finish = finish
        self._proposals: list[Proposal] = []
        self._seen: dict[tuple[str, int], None] = {}
        self.deadline_s = 0.0
        """Loop time at which the partitions without an outcome are given up."""
        self._left = 0

    @property
    def is_done(self) -> bool:
        """True if all partitions have an outcome."""
        return self._left == 0

    def led(self, entries: Sequence[ProduceEntry]) -> Led:
        """Returns each entry with the partition that this broker leads; with None, and the entry's error set, if it
        does not lead it."""
        if self.call.version >= IDS_FROM:
            self._name_topics(entries)
        led: Led = []
        led_here = self._parts.face.partitions.led_here
        for entry in entries:
            try:
                led.append((entry, None if entry.error else led_here(entry.topic, entry.partition)))
            except TidelogError as error:
                self._refuse(entry, error)
                led.append((entry, None))
        return led

    def _name_topics(self, entries: Sequence[ProduceEntry]) -> None:
        """Replaces the topic ids of the entries by names. An entry whose id no topic has gets the error of that."""
        image = self._parts.cluster.image
        for entry in entries:
            topic = self._parts.ids.find(image, entry.topic)
            if topic is None:
                entry.topic, entry.error, entry.message = "", KafkaCode.UNKNOWN_TOPIC_ID, "no topic has this id"
                self.has_failed = True
            else:
                entry.topic = topic.name

    def wants_room(self, led: Led, call: Callable[[], None]) -> bool:
        """Returns True if a partition among `led` has no room for its batch in its request queue now. Then `call` is
        called once, when that partition may have room."""
        for entry, partition in led:
            if partition is None or entry.records is None:
                continue
            begin, end = entry.records
            if not partition.has_room(end - begin):
                partition.when_room(call)
                return True
        return False

    def begin(self, led: Led, caller: Caller, now_s: float) -> None:
        """Hands the batches of all entries to their partitions. `now_s` is the loop's time."""
        self._start_clock(now_s)
        self._hand_over(led, caller)
        self._left -= 1

    async def begin_in_slices(self, caller: Caller) -> None:
        """Hands the batches of a long request to their partitions in slices, between which other connections are
        served. Waits while a partition's request queue is full."""
        now_s = asyncio.get_running_loop().time()
        self._start_clock(now_s)
        room_until_s = now_s + self._parts.limits.room_s_max
        for begin in range(0, len(self.request.entries), ENTRIES):
            led = self.led(self.request.entries[begin : begin + ENTRIES])
            await self._wait_for_room(led, room_until_s)
            self._hand_over(led, caller)
            await asyncio.sleep(0)
        self._left -= 1

    async def _wait_for_room(self, led: Led, until_s: float) -> None:
        """Waits until all partitions have room for their batches, or until `until_s` (loop time). A partition that
        still has none then refuses its batch."""
        is_time = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                while self.wants_room(led, is_time.set):
                    await is_time.wait()
                    is_time.clear()

    def _start_clock(self, now_s: float) -> None:
        wait_ms = min(max(self.request.timeout_ms, 0), self._parts.limits.request_timeout_ms_max)
        self.deadline_s = now_s + wait_ms / 1000
        self._left = 1  # so that nothing is finished before all is begun

    def _hand_over(self, led: Led, caller: Caller) -> None:
        for entry, partition in led:
            # Without a topic (its id is unknown) there is nothing to judge by: it has its error already.
            if entry.topic and (refusal := self._judge(entry, caller)):
                entry.error, entry.message, entry.hint = *refusal, None
                self.has_failed = True
            elif partition is not None and not entry.error:
                self._offer(entry, partition)

    def _judge(self, entry: ProduceEntry, caller: Caller) -> tuple[KafkaCode, str | None] | None:
        """Returns the error code and message if this partition may not be written to, whichever broker leads it;
        otherwise None."""
        is_open = self._parts.admission.is_open
        if not is_open and not self._parts.may(caller, Operation.WRITE, Resource("Topic", entry.topic)):
            return KafkaCode.TOPIC_AUTHORIZATION_FAILED, None
        if self.call.version < TRANSACTIONS_FROM:
            return KafkaCode.UNSUPPORTED_VERSION, None
        if self.request.transactional_id is not None:
            return KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "there are no transactions here"
        if self.request.acks not in ACKS:
            return KafkaCode.INVALID_REQUIRED_ACKS, "acks are -1, 0 or 1"
        partition = entry.topic, entry.partition
        if partition in self._seen:
            return KafkaCode.INVALID_REQUEST, "the partition comes twice in this request"
        self._seen[partition] = None
        return None

    def _offer(self, entry: ProduceEntry, partition: LedPartition) -> None:
        acks = self.request.acks
        try:
            begin, end = entry.records or (0, 0)
            if begin == end:
                raise InvalidBatch("no records came for this partition")
            data = self.call.frame[begin:end]
            batches = split_batches(data, batch_bytes_max=partition.config.max_message_bytes)
            if len(batches) > 1 and not self.request.is_ours:
                raise InvalidBatch(f"{len(batches)} batches came for this partition; one request has one")
            asker = _Waiting(self, entry, partition) if acks else None
            proposal = partition.produce_nowait(batches, acks=acks, deadline_s=self.deadline_s, asker=asker)
        except TidelogError as error:
            self._refuse(entry, error)
            return
        if acks:
            self._left += 1
            self._proposals.append(proposal)

    def _refuse(self, entry: ProduceEntry, error: TidelogError) -> None:
        self.has_failed = True
        entry.error, entry.message = code_of(error), error.message
        if self.request.is_ours:
            entry.tag = ProducedTag(error_code=error.code, message=error.message)
        if isinstance(error, NotLeader):
            topic = self._parts.cluster.image.topics.get(entry.topic)
            if topic is not None and entry.partition < len(topic.partitions):
                entry.hint = hint_of(self._parts.cluster.image, topic.partitions[entry.partition])

    def heard(self, entry: ProduceEntry, partition: LedPartition, outcome: ProduceReceipt | TidelogError) -> None:
        """Records the outcome of one partition in its entry."""
        if isinstance(outcome, TidelogError):
            self._refuse(entry, outcome)
        else:
            if self.request.is_ours:
                entry.tag = _receipt(outcome)
            base_offset = outcome.base_offset
            if base_offset is None:  # a repeat whose offsets are forgotten
                entry.error = OLD_REPEAT
            else:
                entry.base_offset = base_offset
            entry.append_time_ms = -1 if outcome.log_append_time_ms is None else outcome.log_append_time_ms
            entry.log_start_offset = partition.log.log_start_offset
        self._left -= 1
        if self._left == 0:
            self._proposals.clear()
            self._finish(self)

    def expire(self) -> None:
        """Gives up the partitions that have no outcome yet."""
        for proposal in self._proposals:
            proposal.expire()

    def leave(self) -> None:
        """Notes that the connection is lost: batches not appended yet are not appended, and no outcome is awaited."""
        self.is_gone = True
        self._proposals.clear()


class _Waiting:
    """Receiver of one partition's outcome (an `Asker`, as the partition calls it)."""

    __slots__ = ("_entry", "_partition", "_production")

    def __init__(self, production: Production, entry: ProduceEntry, partition: LedPartition) -> None:
        self._production = production
        self._entry = entry
        self._partition = partition

    @property
    def is_gone(self) -> bool:
        return self._production.is_gone

    def hear(self, outcome: ProduceReceipt | TidelogError) -> None:
        self._production.heard(self._entry, self._partition, outcome)


def _receipt(outcome: ProduceReceipt) -> ProducedTag:
    base_offsets = [base_offset for base_offset, _ in outcome.batches]
    return ProducedTag(base_offsets, outcome.leader_epoch, outcome.acked_by, outcome.durability)
