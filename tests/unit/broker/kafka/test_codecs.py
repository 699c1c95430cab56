"""The decoders read what others write, and nothing that is written takes them longer or further than its bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.kafka.conftest import fetch_tree, request_frame
from tidelog.broker.kafka import cold
from tidelog.broker.kafka.api_versions import client_software
from tidelog.broker.kafka.apis import APIS, Api, Key
from tidelog.broker.kafka.call import Call, Head, read_call
from tidelog.broker.kafka.cold import NUMBERS, fields_of
from tidelog.broker.kafka.fetch_codec import read_fetch
from tidelog.broker.kafka.metadata import read_topics
from tidelog.broker.kafka.produce_codec import read_produce
from tidelog.model.kafka_wire import ENTRIES_MAX, Malformed, Reader, array, string, tagged, uvarint
from tidelog.model.steps import drive

PRODUCE = {
    "transactional_id": None,
    "acks": 1,
    "timeout": 1,
    "topic_data": [{"name": "t", "topic_id": UUID(int=1), "partition_data": [{"index": 0, "records": b"abc"}]}],
}
METADATA = {
    "topics": [{"name": "t", "topic_id": None}],
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
UNREAD = {Key.METADATA: 3, Key.API_VERSIONS: 1}
"""How much at the end of a request changes nothing, and is not looked at."""
LISTED = [{"partition_index": 0, "timestamp": -1}]
SEEDS = {
    Key.PRODUCE: (9, PRODUCE),
    Key.FETCH: (12, fetch_tree(("t", 0, 0))),
    Key.METADATA: (12, METADATA),
    Key.API_VERSIONS: (3, {"client_software_name": "a", "client_software_version": "b"}),
    Key.LIST_OFFSETS: (
        7,
        {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": LISTED}]},
    ),
    Key.INIT_PRODUCER_ID: (4, {"transactional_id": None, "transaction_timeout": 0}),
    Key.SASL_AUTHENTICATE: (2, {"auth_bytes": b"abc"}),
}  # fmt: skip


def read_body(call: Call) -> object:
    match call.api.key:
        case Key.PRODUCE:
            return drive(read_produce(call))
        case Key.FETCH:
            return drive(read_fetch(call))
        case Key.METADATA:
            return drive(read_topics(call))
        case Key.API_VERSIONS:
            return client_software(call)
    return cold.read(call)


def read_frame(frame: bytes) -> object:
    """Reads a frame as a connection does."""
    view = memoryview(bytearray(frame))
    head = Head(view)
    api = APIS.get(head.key)
    return (
        None
        if api is None or not api.oldest <= head.version <= api.newest
        else read_body(read_call(api, head, view, 0.0))
    )


FRAMES = [
    *(request_frame(key, version, tree) for key, (version, tree) in SEEDS.items()),
    request_frame(Key.PRODUCE, 13, PRODUCE),
]


@pytest.mark.parametrize("frame", FRAMES, ids=[*(key.label for key in SEEDS), "Produce by id"])
def test_a_frame_that_is_cut_anywhere_is_malformed(frame: bytes) -> None:
    assert read_frame(frame)
    for end in range(len(frame) - UNREAD.get(Key(int.from_bytes(frame[:2])), 0)):
        with pytest.raises(Malformed):
            read_frame(frame[:end])


@settings(max_examples=200)
@given(st.sampled_from(FRAMES), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6), st.binary())
def test_damage_is_malformed_or_another_request(frame: bytes, damage: list[tuple[int, int]], more: bytes) -> None:
    data = bytearray(frame)
    for position, value in damage:
        data[position % len(data)] = value
    with contextlib.suppress(Malformed):
        read_frame(bytes(data) + more)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_million_damaged_frames() -> None:
    rng = Random(1)
    for _ in range(1_000_000):
        data = bytearray(rng.choice(FRAMES))
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        with contextlib.suppress(Malformed):
            read_frame(bytes(data[: rng.randrange(len(data)) if rng.random() < 0.2 else None]))


@given(st.integers(0, (1 << 35) - 1))
def test_varints(value: int) -> None:
    reader = Reader(memoryview(uvarint(value)))
    assert (reader.uvarint(), reader.position) == (value, reader.end)


@given(st.none() | st.text(max_size=300), st.booleans())
def test_strings(text: str | None, is_flexible: bool) -> None:
    reader = Reader(memoryview(string(text, is_flexible=is_flexible)))
    assert (reader.nullable_string(is_flexible=is_flexible), reader.position) == (text, reader.end)


def test_tagged_fields_are_skipped_by_who_does_not_know_them() -> None:
    reader = Reader(memoryview(tagged({0: b"abc", 7: b""}) + b"\x05"))
    reader.tags(is_flexible=True)
    assert reader.int8() == 5


@pytest.mark.parametrize("is_flexible", [True, False])
def test_an_array_is_held_against_what_is_left(is_flexible: bool) -> None:
    for count in (11, ENTRIES_MAX + 1, (1 << 31) - 1):
        with pytest.raises(Malformed):
            Reader(memoryview(array(count, is_flexible=is_flexible) + bytes(20))).array(2, is_flexible=is_flexible)
    assert Reader(memoryview(array(10, is_flexible=is_flexible) + bytes(20))).array(2, is_flexible=is_flexible) == 10


KINDS = {*NUMBERS, "string", "bytes"}


def kinds_of(message: Any) -> Iterator[str]:
    """Yields the kinds of all values of a message that the reader comes across."""
    for field in fields_of(message):
        if field.nested is not None:
            yield from kinds_of(field.nested)
        elif not field.is_tagged:
            yield field.kind


@pytest.mark.parametrize(
    "api", [api for api in APIS.values() if api.key is not Key.PRODUCE], ids=lambda api: api.key.label
)
def test_every_value_of_every_request_has_a_reader(api: Api) -> None:
    for version in range(api.oldest, api.newest + 1):
        module = import_module(f"kio.schema.{api.key.name.lower()}.v{version}.request")
        assert {*kinds_of(getattr(module, f"{api.key.label}Request"))} <= KINDS, version


def test_a_value_that_may_be_missing_and_a_fraction_are_read() -> None:
    cursor_of = import_module("kio.schema.describe_topic_partitions.v0.request").Cursor
    for cursor in (cursor_of(topic_name="t", partition_index=7), None):
        tree: dict[str, Any] = {"topics": [], "response_partition_limit": 1, "cursor": cursor}
        frame = request_frame(Key.DESCRIBE_TOPIC_PARTITIONS, 0, tree)
        assert cold.read(call_of(Key.DESCRIBE_TOPIC_PARTITIONS, frame)).cursor == cursor
    ops = [{"key": "producer_byte_rate", "value": 0.25, "remove": False}]
    entries = [{"entity": [{"entity_type": "user", "entity_name": None}], "ops": ops}]
    frame = request_frame(Key.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": True})
    (entry,) = cold.read(call_of(Key.ALTER_CLIENT_QUOTAS, frame)).entries
    assert (entry.entity[0].entity_name, entry.ops[0].value) == (None, 0.25)


def call_of(key: Key, frame: bytes) -> Call:
    """Returns the call that a frame begins with."""
    view = memoryview(frame)
    return read_call(APIS[key], Head(view), view, 0.0)


def test_the_arrays_of_one_request_have_so_many_entries_together() -> None:
    half = array(ENTRIES_MAX // 2, is_flexible=False)
    reader = Reader(memoryview(half * 3 + bytes(ENTRIES_MAX)))
    assert [reader.array(1, is_flexible=False) for _ in range(2)] == [ENTRIES_MAX // 2] * 2
    with pytest.raises(Malformed):
        reader.array(1, is_flexible=False)
