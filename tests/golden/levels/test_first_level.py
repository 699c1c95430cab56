"""The bytes of what brokers of the first level, which is that of version 0.2.0, sent and wrote; newer brokers do the
same at that level. The messages are one of each type, every field with some value, as that version encoded them; but
the ids of new topics look like ids, since nothing else is read any more."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tidelog.broker.consensus.messages import ElectionFrame
from tidelog.broker.peer_service import MESSAGE_ADDITIONS, PEER_MESSAGES
from tidelog.controller.records import RECORD_ADDITIONS, decode_record, encode_record
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.levels import FIRST_LEVEL, LEVEL_MAX
from tidelog.replication.election_events import HeartbeatAnswer
from tidelog.transport.peer.frames import MessageCodec
from tidelog.transport.peer.hello import Hello

HERE = Path(__file__).parent
MESSAGES = {
    name: bytes.fromhex(encoded)
    for name, encoded in (line.split() for line in (HERE / "messages.txt").read_text().splitlines())
}
RECORDS = (HERE.parent / "metadata" / "records.ndjson").read_bytes().splitlines()
CODEC = MessageCodec(PEER_MESSAGES, MESSAGE_ADDITIONS)
LONGER_PARTS = ("FetchReplicas", "ReplicasFlushed", "OpenInstance")
"""Parts of these have got a field, which readers of the first level pass over."""


def test_a_hello() -> None:
    hello = CODEC.hello(memoryview(MESSAGES["Hello"]))
    assert hello.levels == FIRST_LEVEL
    assert CODEC.encode_hello(hello) == MESSAGES["Hello"]


def test_a_fault() -> None:
    assert CODEC.encode(CODEC.fault(memoryview(MESSAGES["Fault"])), 1) == MESSAGES["Fault"]


@pytest.mark.parametrize("name", [name for name in MESSAGES if name not in ("Hello", "Fault")])
def test_a_message_is_read_and_sent_as_ever(name: str) -> None:
    message = CODEC.message(memoryview(MESSAGES[name]))
    assert type(message).__name__ == name
    encoded = CODEC.encode(message, 1)
    if name in LONGER_PARTS:
        assert len(encoded) > len(MESSAGES[name]) and CODEC.message(memoryview(encoded)) == message
    else:
        assert msgspec.msgpack.decode(encoded) == msgspec.msgpack.decode(MESSAGES[name])


def test_a_voter_of_an_earlier_level_is_not_told_what_it_does_not_know() -> None:
    answer = ElectionFrame(2, 1, HeartbeatAnswer(1 << 16, 3, 700))
    earlier = ElectionFrame(2, 1, HeartbeatAnswer(1 << 16, 3))
    assert CODEC.message(memoryview(CODEC.encode(answer, 3))) == answer
    assert CODEC.message(memoryview(CODEC.encode(answer, 2))) == earlier
    assert b"free_ms" not in CODEC.encode(answer, 2)


def test_every_message_is_here_or_in_the_table() -> None:
    newer = [message_type.__name__ for message_type in MESSAGE_ADDITIONS.types]
    expected = ["Hello", "Fault", *(message_type.__name__ for message_type in PEER_MESSAGES)]
    assert sorted([*MESSAGES, *newer]) == sorted(expected)


@pytest.mark.parametrize("line", RECORDS, ids=lambda line: str(msgspec.json.decode(line)["type"]))
def test_a_record_is_written_as_ever(line: bytes) -> None:
    record = decode_record(line)
    since = RECORD_ADDITIONS.types.get(type(record), 1)
    if since == 1 and not any(name.encode() in line for name in RECORD_ADDITIONS.fields.get(type(record), {})):
        assert encode_record(record, 1) == line


def test_a_snapshot_is_written_as_ever() -> None:
    snapshot = (HERE / "snapshot.json").read_bytes()
    assert encode_image(decode_image(snapshot)) == snapshot


def test_an_older_broker_understands_the_hello_of_a_newer_one() -> None:
    """It passes over fields that it does not know."""

    class OldHello(msgspec.Struct):
        node_id: int
        incarnation: str
        cluster_id: str
        broker_epoch: int
        protocol_version: int
        generation: int
        recovery_id: str

    newer = Hello(3, "life", "c", levels=msgspec.structs.replace(FIRST_LEVEL, highest=LEVEL_MAX), cluster_level=1)
    assert msgspec.msgpack.decode(CODEC.encode_hello(newer), type=OldHello).incarnation == "life"
