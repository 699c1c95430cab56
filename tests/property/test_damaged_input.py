"""Every decoder of the wire and of the disk is given what was right once and is not any more: it refuses, by the errors
that it declares, or takes it, and it takes no memory that the bytes have not brought. F119 of docs/testing.md.

A few thousand inputs each time; with `-m slow` a million.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from tests.series import seeds
from tidelog.broker.consensus.messages import DescribeQuorum, PaxosFrame
from tidelog.broker.http.json_body import decode_body
from tidelog.broker.http.logins_v3 import TokenAsked, UserAsked
from tidelog.broker.isr.replica_messages import FetchReplicas, FollowerState
from tidelog.broker.peer_service import MESSAGE_ADDITIONS, PEER_MESSAGES
from tidelog.controller.commands import CreateTopic, NewTopic, RegisterBroker
from tidelog.controller.records import LevelRaised, TopicCreated, decode_record, encode_record
from tidelog.controller.snapshot import SnapshotUnreadable, decode_image, encode_image
from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import Compression, iter_batches, parse_header, split_batches, verify_batch
from tidelog.model.cluster import HTTP, ClusterImage, Endpoint
from tidelog.model.errors import InvalidBatch, InvalidRequest, TooLarge, UnprocessableBody
from tidelog.model.ids import PartitionId, TopicId
from tidelog.replication.paxos.messages import PromiseRequest
from tidelog.storage.rows import ROW_BYTES, RowCodec, Tail
from tidelog.storage.slot_entries import EntryKind, Head, decode_entry, encode_entry, identity_of, salvage_head
from tidelog.transport.errors import NoAnswer, decode_answer, error_from_answer
from tidelog.transport.peer.errors import Fault
from tidelog.transport.peer.frames import BadFrame, Kind, MessageCodec, pack, unpack
from tidelog.transport.peer.hello import Hello
from tidelog.transport.peer.proof import Challenge

INPUTS = 100
"""So many of each decoder in a seed."""
MEMORY_BYTES_MAX = 128 << 20
EXTREMES = (
    bytes(8),
    b"\xff" * 8,
    b"\x7f" + b"\xff" * 7,
    b"\xff" * 7 + b"\x7f",
    b"\x80" + bytes(7),
    b"[" * 8,
    b"\xdf" * 8,
)
CODEC = MessageCodec(PEER_MESSAGES, MESSAGE_ADDITIONS)
ROWS = RowCodec(PartitionId(TopicId("0123456789abcdef" * 2), 3))
TAIL = Tail(7, 5, 2, 9, 1000, 1, 0)
STATE = FollowerState("f" * 32, 0, 1, 2, 1, 2, 0)


class Decoder(NamedTuple):
    """What was right, how it is decoded, and the errors by which that may end."""

    right: Sequence[bytes]
    decode: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]


def batches() -> list[bytes]:
    records = [(1, b"key", b"value" * 20), (2, None, None)]
    return [bytes(encode_batch(records, compression=one)) for one in Compression]


def messages() -> list[bytes]:
    return [
        CODEC.encode(one)
        for one in (
            DescribeQuorum(),
            PaxosFrame(1, 2, PromiseRequest(7, 0)),
            FetchReplicas(1, 2, "session", 0, (STATE, STATE), (("f" * 32, 1),), 10, 1000),
            CreateTopic(NewTopic("t", 3, 1), "f" * 32),
            RegisterBroker(1, "life", "disk", {HTTP: Endpoint("host", 1)}, "host", 2),
        )
    ]


def rows() -> list[bytes]:
    return [ROWS.header(TAIL, 3), *ROWS.checkpoint(TAIL, [(1, 0), (2, 5)], []), ROWS.pack_producers([])]


def decode_rows(data: bytes) -> None:
    RowCodec.owner(data)
    for at in range(0, len(data) - ROW_BYTES + 1, ROW_BYTES):
        ROWS.parse_header(data[at : at + ROW_BYTES])
        ROWS.parse_checkpoint(data[at : at + ROW_BYTES])
    list(ROWS.bodies(data))
    with suppress(InvalidBatch):
        ROWS.parse_producers(data)


def entries() -> list[bytes]:
    head = Head(EntryKind.REFERENCE, 3, 9, b"d" * 16, b"content")
    return [b"".join(encode_entry(head, payload, 4, 2).buffers) for payload in (None, b"payload" * 9)]


def decode_any_entry(data: bytes) -> None:
    salvage_head(data, 0)
    identity_of(parse_header(data), data)
    decode_entry(data)


def read_batches(data: bytes) -> None:
    for batch in iter_batches(data):
        list(decode_batch(batch))


REFUSED_BATCHES = (InvalidBatch, TooLarge, UnprocessableBody)
DECODERS: Mapping[str, Decoder] = {
    "frames of peers": Decoder(
        [b"".join(pack(Kind.REQUEST, one, [b"x"])) for one in messages()],
        lambda data: unpack(memoryview(data)),
        (BadFrame,),
    ),
    "messages of peers": Decoder(messages(), lambda data: CODEC.message(memoryview(data)), (BadFrame,)),
    "hellos": Decoder(
        [CODEC.encode_hello(Hello(1, "life", "c"))], lambda data: CODEC.hello(memoryview(data)), (BadFrame,)
    ),
    "challenges": Decoder(
        [CODEC.encode(Challenge(3, bytes(32)))], lambda data: CODEC.challenge(memoryview(data)), (BadFrame,)
    ),
    "faults": Decoder([CODEC.encode(Fault(40001, "why"))], lambda data: CODEC.fault(memoryview(data)), (BadFrame,)),
    "batches that come": Decoder(batches(), lambda data: split_batches(data, batch_bytes_max=1000), REFUSED_BATCHES),
    "a batch": Decoder(batches(), verify_batch, REFUSED_BATCHES),
    "records": Decoder(batches(), read_batches, REFUSED_BATCHES),
    "rows of catalogs": Decoder(rows(), decode_rows, (InvalidBatch,)),
    "entries of journals": Decoder(entries(), decode_any_entry, (InvalidBatch,)),
    "records of the metadata": Decoder(
        [encode_record(TopicCreated("t", "f" * 32, [[1, 2]], {"x": "1"})), encode_record(LevelRaised(2, ()))],
        decode_record,
        (msgspec.DecodeError,),
    ),
    "snapshots of the metadata": Decoder([encode_image(ClusterImage("c"))], decode_image, (SnapshotUnreadable,)),
    "documents": Decoder(
        [b'{"user_name": "a", "password": "12345678"}'],
        lambda data: decode_body(UserAsked, data),
        (InvalidRequest,),
    ),
    "numbers of documents": Decoder(
        [b'{"principal": "User:a", "lifetime_ms": 1}'],
        lambda data: decode_body(TokenAsked, data),
        (InvalidRequest,),
    ),
    "answers": Decoder([b'{"error_code": 40001, "message": "why"}'], lambda data: error_from_answer(400, {}, data), ()),
    "good answers": Decoder(
        [b'{"topics": ["a", "b"]}'],
        lambda data: decode_answer(dict[str, list[str]], data),
        (NoAnswer,),
    ),
}
SEEDS = 1_000_000 // (INPUTS * len(DECODERS)) + 1


def damaged(data: bytes, rng: Random) -> bytes:
    """Bits turned over, ends and pieces missing, there twice, or extreme; or nothing but noise."""
    at, size = rng.randrange(len(data) + 1), rng.randrange(1, 9)
    match rng.randrange(7):
        case 0:
            return (
                data[:at] + bytes([data[at % len(data)] ^ 1 << rng.randrange(8)]) + data[at + 1 :] if data else b"\x01"
            )
        case 1:
            return data[:at]
        case 2:
            return data[:at] + data[at + size :]
        case 3:
            return data[:at] + data[max(0, at - size) : at] + data[at:]
        case 4:
            return data[:at] + rng.choice(EXTREMES)[:size] + data[at + size :]
        case 5:
            return data[:at] + rng.randbytes(size) + data[at + size :]
    return rng.randbytes(rng.randrange(300))


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_right_is_taken(name: str) -> None:
    for data in DECODERS[name].right:
        DECODERS[name].decode(data)


@seeds(3, SEEDS)
def test_what_is_damaged_is_refused_or_taken(seeds: range) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in seeds:
        rng = Random(seed)
        for name, decoder in DECODERS.items():
            for _ in range(INPUTS):
                data = rng.choice(decoder.right)
                for _ in range(rng.randrange(1, 4)):
                    data = damaged(data, rng)
                check(name, decoder, data)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MEMORY_BYTES_MAX


def check(name: str, decoder: Decoder, data: bytes) -> None:
    try:
        decoder.decode(data)
    except decoder.refusals:
        pass
    except Exception as error:
        raise AssertionError(f"{name}: {data!r}") from error
