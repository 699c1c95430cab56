"""The client's requests are what the broker and `kio` read; the broker's answers are what the client reads."""

from __future__ import annotations

import pytest
from kio.schema.produce.v9.request import ProduceRequest as KioProduce
from kio.serial import entity_reader

from tidelog.broker.kafka.apis import APIS, Key
from tidelog.broker.kafka.call import Call, Head, read_call
from tidelog.broker.kafka.fetch_codec import read_fetch
from tidelog.broker.kafka.produce_codec import read_produce, write_produced
from tidelog.model.errors import NotAuthorized, NotLeader, TimedOutAfterAppend
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.kafka_wire import NO_TAGS, Malformed
from tidelog.model.receipt_tags import REQUEST_TAG, ProducedTag
from tidelog.model.steps import drive
from tidelog.producer.accumulator import BatchReceipt
from tidelog.producer.produce_frames import parse_result
from tidelog.transport.errors import NoAnswer
from tidelog.transport.frames import codec
from tidelog.transport.frames.codec import FetchQuery, PartitionStatus, Sent

SENT = [Sent("flüge", 3, [b"one", bytearray(b"two")], 6), Sent("t", 0, [b"x" * 200], 200)]


def broker_call(pieces: list[object]) -> Call:
    frame = memoryview(bytearray(b"".join(pieces)))  # type: ignore[arg-type]  # any buffer can be joined
    head = Head(frame)
    return read_call(APIS[head.key], head, frame, 0.0)


def answered(call: Call, tags: list[ProducedTag | None]) -> memoryview:
    request = drive(read_produce(call))
    for entry, tag in zip(request.entries, tags, strict=True):
        entry.tag = tag
    return memoryview(b"".join(drive(write_produced(call, request, 5))))


def test_a_produce_request_is_read_by_the_broker_and_by_kio() -> None:
    pieces = codec.produce("me", -1, 4_000, SENT)
    call = broker_call(list(pieces))
    assert (call.api.key, call.version, call.client_id) == (Key.PRODUCE, 9, "me")
    request = drive(read_produce(call))
    assert (request.transactional_id, request.acks, request.timeout_ms, request.is_ours) == (None, -1, 4_000, True)
    found = [(entry.topic, entry.partition, call.frame[slice(*(entry.records or ()))]) for entry in request.entries]
    assert found == [("flüge", 3, b"onetwo"), ("t", 0, b"x" * 200)]
    frame = b"".join(pieces).removesuffix(REQUEST_TAG) + NO_TAGS  # kio does not skip what it does not know
    body, size = entity_reader(KioProduce)(frame, 8 + 2 + len("me") + 1)
    assert 8 + 2 + len("me") + 1 + size == len(frame)
    assert [topic.name for topic in body.topic_data] == ["flüge", "t"]
    assert bytes(body.topic_data[0].partition_data[0].records or b"") == b"onetwo"


def test_batches_are_not_copied() -> None:
    batch = bytearray(b"x" * 1_000)
    assert any(piece is batch for piece in codec.produce("", 1, 0, [Sent("t", 0, [batch], 1_000)]))


def test_a_receipt_comes_as_it_was_made() -> None:
    call = broker_call(list(codec.produce("", -1, 0, SENT)))
    receipt = ProducedTag([7, None], 4, (1, 2), "replicated")
    refusal = ProducedTag(error_code=NotLeader.code, message="no")
    told = codec.read_produced(answered(call, [receipt, refusal]), SENT)
    assert parse_result(told[0], 2) == [
        BatchReceipt(7, 4, (1, 2), "replicated"),
        BatchReceipt(None, 4, (1, 2), "replicated"),
    ]
    assert isinstance(parse_result(told[1], 1), NotLeader)


def test_what_is_no_receipt_leaves_the_outcome_open() -> None:
    for tag in (b"", b"{", b'{"base_offsets": [1, 2]}', b'{"base_offsets": "x"}', b"\xff"):
        assert isinstance(parse_result(PartitionStatus(0, "", memoryview(tag)), 1), NoAnswer)
    assert isinstance(parse_result(PartitionStatus(0, "", None), 1), NoAnswer)


def test_kafkas_words_alone_keep_what_is_definite() -> None:
    for code, kind in (
        (KafkaCode.TOPIC_AUTHORIZATION_FAILED, NotAuthorized),
        (KafkaCode.NOT_LEADER_OR_FOLLOWER, NotLeader),
        (KafkaCode.REQUEST_TIMED_OUT, TimedOutAfterAppend),
        (-1, NoAnswer),
    ):
        error = parse_result(PartitionStatus(code, "", None), 1)
        assert isinstance(error, kind)
        assert error.definite is (kind in (NotAuthorized, NotLeader))


def test_an_answer_about_others_or_cut_short_is_malformed() -> None:
    call = broker_call(list(codec.produce("", -1, 0, SENT)))
    frame = answered(call, [None, None])
    with pytest.raises(Malformed):
        codec.read_produced(frame, SENT[:1])
    with pytest.raises(Malformed):
        codec.read_produced(frame, [SENT[1], SENT[0]])
    for end in range(len(frame) - 6):
        with pytest.raises(Malformed):
            codec.read_produced(frame[:end], SENT)


def test_a_fetch_request_is_read_by_the_broker() -> None:
    call = broker_call(list(codec.fetch("me", FetchQuery("t", 2, 77, 1_000, 3, 500))))
    request = drive(read_fetch(call))
    assert (request.wait_ms, request.bytes_min, request.bytes_max, request.session_epoch) == (500, 3, 1_000, -1)
    (entry,) = request.entries
    assert (entry.key, entry.partition, entry.offset, entry.bytes_max, entry.leader_epoch) == ("t", 2, 77, 1_000, -1)
