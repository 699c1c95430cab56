"""A request read by its form is the one that the codec decodes, and has the answer that the codec encodes."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.kafka.conftest import request_frame
from tidelog.broker.kafka.apis import APIS, Key
from tidelog.broker.kafka.call import Call, Head, read_call
from tidelog.broker.kafka.endpoints import Hint
from tidelog.broker.kafka.produce_codec import ProduceEntry, ProduceRequest, read_produce, write_produced
from tidelog.broker.kafka.produce_form import FORM_BYTES_MAX, Known, ProduceForms
from tidelog.model.cluster import Endpoint
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.kafka_wire import Malformed
from tidelog.model.steps import drive


def produce(
    version: int = 9,
    *records: bytes | None,
    topic: str = "t",
    partition: int = 0,
    acks: int = 1,
    transactional_id: str | None = None,
    number: int = 0,
) -> memoryview:
    """A request for as many partitions as there are records."""
    entries = [{"index": partition + index, "records": data} for index, data in enumerate(records)]
    topics = [{"name": topic, "topic_id": UUID(int=len(topic)), "partition_data": entries}]
    tree = {"transactional_id": transactional_id, "acks": acks, "timeout": 9, "topic_data": topics}
    return memoryview(bytearray(request_frame(Key.PRODUCE, version, tree, number)))


def decoded(frame: memoryview) -> tuple[Call, ProduceRequest]:
    call = read_call(APIS[Key.PRODUCE], Head(frame), frame, 1.0)
    return call, drive(read_produce(call))


class Server:
    """Reads requests as a connection does."""

    def __init__(self) -> None:
        self._forms = ProduceForms()

    def take(self, frame: memoryview) -> Known | None:
        """Returns the request if its form is known; otherwise decodes it, and compares nothing."""
        known = self._forms.read(Head(frame), frame, 1.0)
        if known is None:
            with contextlib.suppress(Malformed):
                self._forms.note(*decoded(frame))
        return known


def plain(request: ProduceRequest) -> Any:
    """The request as values that can be compared."""
    topics = [(bytes(topic), entries) for topic, entries in request.topics]
    return msgspec.to_builtins(msgspec.structs.replace(request, topics=topics))


def require_same(known: Known, frame: memoryview) -> None:
    call, request = decoded(frame)
    assert plain(known.request) == plain(request)
    for name in ("api", "version", "correlation_id", "client_id", "is_flexible", "began_s", "frame"):
        assert getattr(known.call, name) == getattr(call, name), name


frames = st.builds(
    produce,
    st.sampled_from([3, 5, 8, 9, 10, 13]),
    st.sampled_from([None, b"", b"x", bytes(126), bytes(127), bytes(128), bytes(300)]),
    topic=st.sampled_from(["t", "u", "long" * 40]),
    partition=st.integers(0, 2),
    acks=st.sampled_from([0, 1]),
    transactional_id=st.sampled_from([None, "id"]),
    number=st.integers(0, 1 << 31),
)


@st.composite
def damaged(draw: st.DrawFn) -> memoryview:
    """A request with one other byte behind its head, one byte more, or cut off."""
    data = bytearray(draw(frames))
    at = draw(st.integers(8, len(data) - 1))
    match draw(st.sampled_from(["other", "more", "less"])):
        case "other":
            data[at] ^= draw(st.integers(1, 255))
        case "more":
            data.insert(at, draw(st.integers(0, 255)))
        case _:
            del data[at:]
    return memoryview(data)


@given(st.lists(st.one_of(frames, damaged()), max_size=4), st.integers(1, 3))
def test_any_sequence_is_read_as_the_codec_reads_it(sequence: list[memoryview], rounds: int) -> None:
    server = Server()
    for frame in [frame for frame in sequence for _ in range(2)] * rounds:
        known = server.take(frame)
        if known is not None:
            require_same(known, frame)


@pytest.mark.parametrize("version", [5, 8, 9, 10, 13])
def test_the_third_request_of_a_kind_is_not_decoded_whatever_its_partition_and_records(version: int) -> None:
    server = Server()
    assert server.take(produce(version, b"abc")) is None
    assert server.take(produce(version, b"abc", number=1)) is None
    for number, size in enumerate([1, 126, 127, 200, 20_000, 3_000_000]):
        frame = produce(version, bytes(size), partition=number, number=number)
        known = server.take(frame)
        assert known is not None
        require_same(known, frame)


def test_topics_that_take_turns_are_decoded_and_cost_no_form() -> None:
    server = Server()
    for number in range(6):
        assert server.take(produce(9, b"abc", topic="tu"[number % 2])) is None
    assert server._forms._form is None


@pytest.mark.parametrize(
    "frame",
    [
        produce(3, b"abc"),  # its answer has fewer fields
        produce(9, b"abc", b"abc"),
        produce(9, None),
        produce(9, b"abc", transactional_id="x" * FORM_BYTES_MAX),
    ],
    ids=["old", "two partitions", "null", "long"],
)
def test_unusual_requests_have_no_form(frame: memoryview) -> None:
    server = Server()
    assert [server.take(frame) for _ in range(4)] == [None] * 4


@pytest.mark.parametrize("version", [5, 8, 9, 10, 13])
@pytest.mark.parametrize("throttle_ms", [0, 70])
@pytest.mark.parametrize(
    "outcome",
    [
        {"base_offset": 1 << 40, "append_time_ms": 1 << 41, "log_start_offset": 7},
        {"error": KafkaCode.NOT_LEADER_OR_FOLLOWER, "hint": Hint(3, 4, Endpoint("host", 9092), "rack")},
        {"error": KafkaCode.INVALID_RECORD, "message": "no records came for this partition"},
    ],
    ids=["appended", "led elsewhere", "refused"],
)
def test_the_answer_is_the_one_of_the_codec(version: int, throttle_ms: int, outcome: dict[str, Any]) -> None:
    server = Server()
    frame = produce(version, b"abc", partition=2, number=77)
    known = [server.take(frame) for _ in range(3)][-1]
    assert known is not None
    call, request = decoded(frame)
    for (entry,) in (request.entries, known.request.entries):
        assert isinstance(entry, ProduceEntry)
        for name, value in outcome.items():
            setattr(entry, name, value)
    answer = known.form.write(known.call, known.request, throttle_ms)
    assert b"".join(answer) == b"".join(drive(write_produced(call, request, throttle_ms)))
