"""`ProduceForm`: what the Produce requests of one producer have in common.

A producer that writes to a topic repeats its request to the byte, but for correlation id, partition and records. So a
connection keeps the form of its last two Produce requests, if they were alike, and of the answers to them. A request of
the same form needs no decoding, and its answer is a copy with other numbers. The form is taken from what
`produce_codec` has decoded and encoded, so the layout of the messages is known there alone.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tidelog.broker.kafka.call import CORRELATION_ID_AT, HEAD_BYTES, Answer, Call, Head
from tidelog.broker.kafka.produce_codec import (
    OUTCOME,
    OUTCOME_WHOLE_FROM,
    ProduceEntry,
    ProduceRequest,
    write_produced,
)
from tidelog.model.kafka_wire import INT32, Malformed, Reader, array, uvarint
from tidelog.model.steps import drive

FORM_BYTES_MAX: Final = 1024
"""Maximum size of a request without its records, if its form is to be kept."""


class ProduceForm:
    """The form of a Produce request for one partition: all its bytes but correlation id, partition and records."""

    __slots__ = ("_answer", "_before", "_behind", "_like", "_outcome_at", "_partition_at", "_request", "_topic")

    def __init__(self, call: Call, request: ProduceRequest, partition_at: int) -> None:
        """`call` and `request` are of a request of this form, whose partition number is at `partition_at`."""
        frame, (topic, (entry,)) = call.frame, request.topics[0]
        assert entry.records is not None
        nothing = Reader(memoryview(b""))  # the frame, which may be large, is not kept
        self._like = Call(call.api, call.version, 0, call.client_id, nothing, call.is_flexible, 0.0)
        self._topic = bytes(topic)
        self._request = request
        self._request = self._with(ProduceEntry(entry.topic, 0, None))
        self._partition_at = partition_at
        self._before = bytes(frame[HEAD_BYTES:partition_at])
        self._behind = bytes(frame[entry.records[1] :])
        (self._answer,) = drive(write_produced(self._like, self._request, 0))
        one = len(array(1, is_flexible=call.is_flexible))
        self._outcome_at = len(call.head()) + one + len(topic) + one

    def read(self, head: Head, frame: memoryview, came_s: float) -> Known | None:
        """Returns the request in `frame`, received at `came_s`; None if it has another form."""
        like, at = self._like, self._partition_at
        if head.version != like.version or frame[HEAD_BYTES:at] != self._before:
            return None
        reader = Reader(frame, at + INT32.size)
        try:
            (partition,) = INT32.unpack_from(frame, at)
            records = reader.nullable_span(is_flexible=like.is_flexible)
        except (struct.error, Malformed):
            return None
        if records is None or frame[records[1] :] != self._behind:
            return None
        call = Call(like.api, like.version, head.correlation_id, like.client_id, reader, like.is_flexible, came_s)
        return Known(call, self._with(ProduceEntry(self._request.entries[0].topic, partition, records)), self)

    def _with(self, entry: ProduceEntry) -> ProduceRequest:
        like = self._request
        topics = [(self._topic, [entry])]
        return ProduceRequest(like.transactional_id, like.acks, like.timeout_ms, topics, [entry], like.is_ours)

    def write(self, call: Call, request: ProduceRequest, throttle_ms: int) -> Answer:
        """Returns the answer to a request of this form."""
        (entry,) = request.entries
        if throttle_ms or entry.error or entry.message or entry.hint or entry.tag:
            return drive(write_produced(call, request, throttle_ms))
        answer = bytearray(self._answer)
        INT32.pack_into(answer, CORRELATION_ID_AT, call.correlation_id)
        outcome = entry.partition, 0, entry.base_offset, entry.append_time_ms, entry.log_start_offset
        OUTCOME.pack_into(answer, self._outcome_at, *outcome)
        return [answer]


class Known(NamedTuple):
    """A request that was not decoded, as its form is known."""

    call: Call
    request: ProduceRequest
    form: ProduceForm


class ProduceForms:
    """The form of the last Produce requests of one connection."""

    __slots__ = ("_before", "_form")

    def __init__(self) -> None:
        self._form: ProduceForm | None = None
        self._before = b""
        """The beginning of the last request that was decoded, up to its partition."""

    def read(self, head: Head, frame: memoryview, came_s: float) -> Known | None:
        """Returns the Produce request in `frame`, received at `came_s`; None if it has to be decoded."""
        return None if self._form is None else self._form.read(head, frame, came_s)

    def note(self, call: Call, request: ProduceRequest) -> None:
        """Keeps the form of a request that was decoded, if it begins like the one decoded before."""
        partition_at = _partition_at(call, request)
        if partition_at is not None:
            before = bytes(call.frame[HEAD_BYTES:partition_at])
            if before == self._before:
                self._form = ProduceForm(call, request, partition_at)
            self._before = before


def _partition_at(call: Call, request: ProduceRequest) -> int | None:
    """Returns the position of the partition number in a request for one partition. Returns None for a request whose
    form is not kept."""
    if call.version < OUTCOME_WHOLE_FROM or len(request.entries) != 1 or request.entries[0].records is None:
        return None
    begin, end = request.entries[0].records
    size = uvarint(end - begin + 1) if call.is_flexible else INT32.pack(end - begin)
    # A client may encode a varint in more bytes than it needs.
    is_usual = call.frame[begin - len(size) : begin] == size and call.reader.end - (end - begin) <= FORM_BYTES_MAX
    return begin - len(size) - INT32.size if is_usual else None
