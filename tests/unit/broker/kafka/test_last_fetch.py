"""A Fetch that repeats the last one is read as it would be read alone, and only its offsets are decoded anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.integration.kafka.conftest import fetch_tree, request_frame
from tidelog.broker.kafka import fetch_codec
from tidelog.broker.kafka.apis import APIS, Key
from tidelog.broker.kafka.call import Call, Head, read_call
from tidelog.broker.kafka.endpoints import Hint
from tidelog.broker.kafka.fetch_codec import (
    IDS_FROM,
    REMEMBERED_BYTES_MAX,
    FetchRequest,
    LastFetch,
    read_fetch,
    write_fetched,
)
from tidelog.model.cluster import Endpoint
from tidelog.model.kafka_wire import Malformed
from tidelog.model.receipt_tags import FetchedTag
from tidelog.model.steps import drive

VERSIONS = range(APIS[Key.FETCH].oldest, APIS[Key.FETCH].newest + 1)
Partitions = Sequence[tuple[int, int, int]]
PARTITIONS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(-1, 1 << 62)), min_size=1, max_size=4)


def call_of(frame: bytes) -> Call:
    view = memoryview(bytearray(frame))
    head = Head(view)
    return read_call(APIS[head.key], head, view, 0.0)


def fetch(version: int, partitions: Partitions, number: int = 7, **terms: Any) -> bytes:
    entries = [
        (UUID(int=1 + topic) if version >= IDS_FROM else f"t{topic}", partition, offset)
        for topic, partition, offset in partitions
    ]
    return request_frame(Key.FETCH, version, fetch_tree(*entries, **terms), number)


def shown(request: FetchRequest) -> dict[str, Any]:
    return structs.asdict(request) | {"topics": [(bytes(topic), entries) for topic, entries in request.topics]}


@given(st.sampled_from(VERSIONS), st.lists(st.tuples(PARTITIONS, st.integers(0, 1)), min_size=2, max_size=5))
def test_what_comes_before_changes_no_request(version: int, requests: list[tuple[Partitions, int]]) -> None:
    last = LastFetch()
    for number, (partitions, wait_ms) in enumerate(requests):
        frame = fetch(version, partitions, number, max_wait=wait_ms)
        assert shown(drive(last.read(call_of(frame)))) == shown(drive(read_fetch(call_of(frame))))


@pytest.mark.parametrize("version", VERSIONS)
def test_other_offsets_make_no_other_request(version: int) -> None:
    last = LastFetch()
    request = drive(last.read(call_of(fetch(version, [(0, 0, 5), (0, 1, 1 << 40), (1, 0, 0)]))))
    again = drive(last.read(call_of(fetch(version, [(0, 0, 6), (0, 1, 9), (1, 0, 1 << 50)], 8))))
    assert again is request and [entry.offset for entry in again.entries] == [6, 9, 1 << 50]
    other = drive(last.read(call_of(fetch(version, [(0, 0, 6), (0, 2, 9), (1, 0, 1)], 9))))
    assert other is not request and [entry.partition for entry in other.entries] == [0, 2, 0]


ANSWERS = st.fixed_dictionaries(
    {
        "error": st.sampled_from([0, 1]),
        "high_watermark": st.sampled_from([0, 1 << 40]),
        "log_start_offset": st.sampled_from([0, 7]),
        "preferred": st.sampled_from([-1, 2]),
        "hint": st.sampled_from([None, Hint(2, 5, Endpoint("h", 9092), None)]),
        "tag": st.sampled_from([None, FetchedTag(3)]),
    }
)


@given(
    st.sampled_from(VERSIONS), st.lists(st.tuples(ANSWERS, ANSWERS, st.sampled_from([0, 9])), min_size=2, max_size=8)
)
def test_an_answer_without_records_is_what_it_would_be_alone(version: int, answers: list[tuple[Any, Any, int]]) -> None:
    last = LastFetch()
    for number, (*fields, throttle_ms) in enumerate(answers):
        call = call_of(fetch(version, [(0, 0, number), (1, 0, number)], number))
        request = drive(last.read(call))
        for entry, values in zip(request.entries, fields, strict=True):
            for name, value in values.items():
                setattr(entry, name, value)
        (answer,) = drive(last.write_empty(call, request, throttle_ms))
        assert [answer] == drive(write_fetched(call, request, throttle_ms))


def test_the_same_answer_without_records_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    last, frame = LastFetch(), fetch(12, [(0, 0, 5)])
    request = drive(last.read(call_of(frame)))
    drive(last.write_empty(call_of(frame), request, 0))
    monkeypatch.setattr(fetch_codec, "write_fetched", None)
    drive(last.write_empty(call_of(frame), drive(last.read(call_of(frame))), 0))
    with pytest.raises(TypeError):
        drive(last.write_empty(call_of(frame), request, 1))
    other = drive(last.read(call_of(fetch(12, [(0, 1, 5)]))))
    with pytest.raises(TypeError):
        drive(last.write_empty(call_of(frame), other, 0))


def test_a_request_that_cannot_be_read_is_not_taken_for_the_one_before() -> None:
    last, frame = LastFetch(), fetch(12, [(0, 0, 5)])
    drive(last.read(call_of(frame)))
    for _ in range(2):
        with pytest.raises(Malformed):
            drive(last.read(call_of(frame[:-4])))
    assert drive(last.read(call_of(frame))).entries[0].offset == 5


def test_a_long_request_is_not_kept() -> None:
    last, frame = LastFetch(), fetch(12, [(0, 0, 5)] * 120)
    assert len(frame) > REMEMBERED_BYTES_MAX
    assert drive(last.read(call_of(frame))) is not drive(last.read(call_of(frame)))
