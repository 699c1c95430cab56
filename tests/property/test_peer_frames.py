"""Peer frames: what goes in comes out, and whatever else comes in is a `BadFrame`, never anything worse."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.errors import LogOffline, OffsetOutOfRange, TidelogError
from tidelog.sim.kit.network_replay import FIRST_ID, replay_of
from tidelog.transport.peer.errors import Fault
from tidelog.transport.peer.frames import (
    PREFIX_BYTES,
    TIMEOUT_MS_MAX,
    BadFrame,
    Kind,
    MessageCodec,
    frame_bytes,
    pack,
    unpack,
)
from tidelog.transport.peer.hello import Hello


class Note(msgspec.Struct, tag=True):
    text: str
    numbers: list[int]


class Other(msgspec.Struct, tag=True):
    data: bytes


CODEC = MessageCodec([Note, Other])

NOTES = st.builds(Note, st.text(), st.lists(st.integers(-(2**63), 2**64 - 1)))
MESSAGES = st.one_of(NOTES, st.builds(Other, st.binary()))
HELLOS = st.builds(Hello, st.integers(0, 2**31), st.text(), st.text(), st.integers(-1, 2**62))


def joined(buffers: list[bytes | bytearray | memoryview]) -> memoryview:
    return memoryview(b"".join(buffers))


@given(
    kind=st.sampled_from(Kind),
    header=st.binary(),
    payload=st.lists(st.binary(), max_size=4),
    correlation=st.integers(0, 2**64 - 1),
    timeout_ms=st.integers(0, TIMEOUT_MS_MAX),
)
def test_a_frame_comes_apart_into_what_it_was_made_of(
    kind: Kind, header: bytes, payload: list[bytes], correlation: int, timeout_ms: int
) -> None:
    frame = joined(pack(kind, header, payload, correlation=correlation, timeout_ms=timeout_ms))
    assert len(frame) == frame_bytes(header, payload)
    assert unpack(frame) == (kind, correlation, timeout_ms, header, b"".join(payload))


@given(message=MESSAGES, hello=HELLOS)
def test_messages_survive_the_journey(message: msgspec.Struct, hello: Hello) -> None:
    assert CODEC.message(memoryview(CODEC.encode(message))) == message
    assert CODEC.hello(memoryview(CODEC.encode(hello))) == hello


@given(data=st.binary(max_size=200))
def test_garbage_is_a_bad_frame(data: bytes) -> None:
    """F119."""
    with pytest.raises(BadFrame):
        unpack(memoryview(data))
    assert replay_of(data, 1) is None


@given(data=st.binary(max_size=200))
def test_a_garbled_header_is_a_bad_frame_or_a_message(data: bytes) -> None:
    for decode in (CODEC.message, CODEC.hello, CODEC.fault):
        with contextlib.suppress(BadFrame):
            decode(memoryview(data))


@given(message=MESSAGES, payload=st.binary(max_size=20), data=st.data())
def test_a_flipped_bit_outside_the_payload_is_seen(
    message: msgspec.Struct, payload: bytes, data: st.DataObject
) -> None:
    header = CODEC.encode(message)
    frame = bytearray(joined(pack(Kind.REQUEST, header, [payload], correlation=7, timeout_ms=9)))
    bit = data.draw(st.integers(0, 8 * (PREFIX_BYTES + len(header)) - 1))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadFrame):
        unpack(memoryview(frame))


@given(size=st.integers(0, PREFIX_BYTES + 30))
def test_a_frame_that_was_cut_within_its_header_is_a_bad_frame(size: int) -> None:
    header = CODEC.encode(Note("a text of some length", [1, 2, 3]))
    frame = joined(pack(Kind.NOTIFY, header))
    if size < len(frame):
        with pytest.raises(BadFrame):
            unpack(frame[:size])


@given(
    text=st.text(),
    numbers=st.tuples(st.integers(0, 2**62), st.integers(0, 2**62), st.one_of(st.none(), st.integers(0, 2**62))),
)
def test_errors_keep_their_kind_their_words_and_their_numbers(text: str, numbers: tuple[int, int, int | None]) -> None:
    error = OffsetOutOfRange(text, numbers[0], numbers[1])
    error.high_watermark = numbers[2]
    for sent in (error, LogOffline(text)):
        received = CODEC.fault(memoryview(CODEC.encode(Fault.of(sent)))).to_error()
        assert type(received) is type(sent)
        assert vars(received) == vars(sent)


@pytest.mark.parametrize("code", [40499, 42399, 50399, 50499, 50799, 99999])
def test_an_error_of_a_newer_version_is_as_definite_here_as_there(code: int) -> None:
    class Newer(TidelogError):
        pass

    Newer.code = code
    received = Fault.of(Newer("what happened")).to_error()
    assert received.definite == Newer("").definite
    assert "what happened" in received.message


@given(message=MESSAGES, payload=st.binary(), number=st.integers(0, 2**32))
def test_a_replayed_request_is_the_same_but_for_its_id(message: msgspec.Struct, payload: bytes, number: int) -> None:
    frame = bytes(joined(pack(Kind.REQUEST, CODEC.encode(message), [payload], correlation=7, timeout_ms=9)))
    replayed = replay_of(frame, number)
    assert replayed is not None
    assert unpack(memoryview(replayed)) == unpack(memoryview(frame))._replace(correlation=FIRST_ID + number)
