"""Forged messages, made of those under way: decoded, changed at one place, encoded.

Some changes a broker cannot tell from the truth, since a broker alone knows its own disk: those are not made. The
changes here name another sender, an epoch that is not the sender's, or a number that no broker can have reached. The
brokers have a table of where a message names its sender; the simulator does not use it, but has its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from tidelog.model.cluster import ClusterImage
from tidelog.model.ids import NodeId
from tidelog.transport.peer.frames import BadFrame, Frame, Kind, pack, unpack

Message = dict[str, Any]

NAMES_NODE: Final[Mapping[str, str]] = {
    "FetchReplicas": "replica",
    "ReplicasFlushed": "replica",
    **dict.fromkeys(
        (
            "BrokerHeartbeat",
            "MetadataApplied",
            "ReportSilence",
            "ReportRemoved",
            "RegisterBroker",
            "AlterPartition",
            "HandOver",
            "ReportUnfitReplicas",
            "ReportLostReplicas",
            "AlterMembers",
            "ReportLostVotes",
            "ReportPaxosLeader",
        ),
        "node_id",
    ),
}
"""Field that names the sending node, by message type."""
NAMES_ENGINE: Final = ("PaxosFrame", "ElectionFrame", "PartitionFrame", "AppliedDurable")
"""Types of messages that name their sender by its Paxos engine id."""
OF_NEWCOMERS: Final = ("DescribeQuorum", "DescribeSnapshots", "FetchSnapshot", "RegisterBroker")
"""Types of messages that brokers accept from any process."""
COUNTED: Final = ("ReplicasFetched", "RecoverReply")
"""Types of answers that state how many bytes follow."""
OF_VOTERS: Final = ("PaxosFrame", "ElectionFrame")
"""Types of messages that may come from a voter whose process has not registered yet: the peer credentials identify the
sender."""
NUMBER_BITS: Final = 16
HUGE: Final = (2**33, 2**49, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
ROUNDS: Final = (2**33, 2**40, 2**47 - 1)
"""Rounds of huge ballots; the last is the largest that fits into its field."""
UNHEARD: Final = (2**63, 2**64 - 1)
NEGATIVE: Final = (-2, -(2**40), -(2**63))
FUTURE: Final = (1, 2**20, 2**40)
FIRST_ID: Final = 3 << 62
"""First correlation id of forged requests: larger than any that a caller or a repeated frame uses."""


def read(frame: bytes) -> tuple[Frame, Message] | None:
    """Decodes a request or notification; returns None for any other frame."""
    return _read(frame, Kind.REQUEST, Kind.NOTIFY)


def read_answer(frame: bytes) -> tuple[Frame, Message] | None:
    """Decodes an answer that carries a message; returns None for any other frame."""
    return _read(frame, Kind.ANSWER)


def _read(frame: bytes, *kinds: Kind) -> tuple[Frame, Message] | None:
    try:
        parts = unpack(memoryview(frame))
    except BadFrame:
        return None
    if parts.kind not in kinds or not len(parts.header):
        return None
    message = msgspec.msgpack.decode(parts.header)
    return (parts, message) if isinstance(message, dict) and "type" in message else None


def rewritten(parts: Frame, message: Message, payload: memoryview) -> bytes:
    """Encodes a changed answer with the correlation id of the original."""
    return b"".join(pack(parts.kind, msgspec.msgpack.encode(message), [payload], correlation=parts.correlation))


def with_unheard_number(message: Message, rng: random.Random) -> Message | None:
    """Returns the message with one number replaced by a value that no field of any message can hold; None if it has no
    number."""
    return _with_number(message, rng, lambda _: rng.choice(UNHEARD))


def answers_another(message: Message, answer: Message) -> bool:
    """Returns True if the two answers are of types that never answer the same request."""
    kinds = {message["type"], answer["type"]}
    return len(kinds) == 2 and "ControllerElsewhere" not in kinds and "RegistrationOutdated" not in kinds


def written(parts: Frame, message: Message, number: int) -> bytes:
    """Encodes a changed message; a request gets a correlation id that no caller waits for."""
    correlation = FIRST_ID + number if parts.kind is Kind.REQUEST else 0
    header = msgspec.msgpack.encode(message)
    return b"".join(pack(parts.kind, header, [parts.payload], correlation=correlation, timeout_ms=parts.timeout_ms))


def notification(parts: Frame, message: Message) -> bytes:
    """Encodes a message as a notification, which is never answered."""
    return written(parts._replace(kind=Kind.NOTIFY, payload=memoryview(b"")), message, 0)


def of_another(message: Message, caller: int, image: ClusterImage, rng: random.Random) -> Message | None:
    """Returns the message with another broker as its sender, by node and epoch or by engine id; None if it names no
    sender, or there is no other."""
    if message["type"] in NAMES_NODE:
        others = [node for node in image.brokers if node != caller]
        if not others:
            return None
        node = rng.choice(others)
        changed = {**message, NAMES_NODE[message["type"]]: int(node)}
        return changed | ({"broker_epoch": image.brokers[node].epoch} if "broker_epoch" in message else {})
    if message["type"] not in NAMES_ENGINE:
        return None
    ids = _ids_of_others(message, caller, image)
    return _under(message, rng.choice(ids)) if ids else None


def _ids_of_others(message: Message, caller: int, image: ClusterImage) -> list[int]:
    if "topic_id" not in message:
        return [voter.voter_id for voter in image.voters if voter.node_id != caller]
    topics = [topic for topic in image.topics.values() if topic.topic_id == message["topic_id"]]
    infos = [topic.partitions[message["partition"]] for topic in topics if message["partition"] < len(topic.partitions)]
    return [member.engine_id for info in infos for member in info.members if member.node_id != caller]


def _under(message: Message, engine_id: int) -> Message:
    if message["type"] == "AppliedDurable":
        return {**message, "senders": [engine_id]}
    if message["type"] == "PartitionFrame":
        return {**message, "frame": {**message["frame"], "sender": engine_id}}
    return {**message, "sender": engine_id}


def as_reports_of(message: Message, node: int, image: ClusterImage) -> Message | None:
    """Returns a follower's report of its log ends as the report of another node; None if the message holds no such
    report."""
    states = message.get("states") or message.get("changed")
    broker = image.brokers.get(NodeId(node))
    if message["type"] not in ("FetchReplicas", "ReplicasFlushed") or not states or broker is None:
        return None
    return {"type": "ReplicasFlushed", "replica": node, "broker_epoch": broker.epoch, "states": states}


def as_ballot(message: Message, rng: random.Random) -> Message | None:
    """Returns a Paxos or election message as a request to promise a huge ballot of the sender's; None for other
    messages."""
    if message["type"] == "PartitionFrame":
        ballot = as_ballot({"type": "PaxosFrame", **message["frame"]}, rng)
        return None if ballot is None else {**message, "frame": {name: ballot[name] for name in message["frame"]}}
    if message["type"] not in OF_VOTERS or message["sender"] >> NUMBER_BITS:
        return None
    request = {"type": "PromiseRequest", "number": rng.choice(ROUNDS) << NUMBER_BITS | message["sender"], "position": 0}
    frame = {"type": "PaxosFrame", "sender": message["sender"], "to": message["to"], "message": request}
    return {**frame, "sizes": [], "notices": []}


def of_another_epoch(message: Message, caller: int, image: ClusterImage, rng: random.Random) -> Message | None:
    """Returns the message with a past or future broker epoch that the sender does not have; None if it names no
    epoch."""
    broker = image.brokers.get(NodeId(caller))
    if "broker_epoch" not in message or broker is None:
        return None
    return {**message, "broker_epoch": rng.choice((0, broker.epoch - 1, *(broker.epoch + more for more in FUTURE)))}


def with_impossible_number(message: Message, rng: random.Random) -> Message | None:
    """Returns the message with one number replaced by a huge or a negative one; None if it has no number. A ballot may
    keep the engine id in its lower bits."""
    return _with_number(message, rng, lambda number: _impossible(number, rng))


def _impossible(number: int, rng: random.Random) -> int:
    huge = rng.choice(HUGE)
    is_ballot = number >> NUMBER_BITS > 0 and rng.random() < 0.5
    if rng.random() < 0.3:
        return rng.choice(NEGATIVE)
    return min((huge << NUMBER_BITS | number % (1 << NUMBER_BITS)) if is_ballot else huge, 2**64 - 1)


def _with_number(message: Message, rng: random.Random, change: Callable[[int], int]) -> Message | None:
    places = list(_numbers(message, ()))
    if not places:
        return None
    path, number = rng.choice(places)
    return cast("Message", _put(message, path, change(number)))


def _numbers(whole: object, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yields each number in a decoded message, with its path."""
    if isinstance(whole, int) and not isinstance(whole, bool):
        yield path, whole
    elif isinstance(whole, dict):
        for name, part in whole.items():
            yield from _numbers(part, (*path, name))
    elif isinstance(whole, list):
        for at, part in enumerate(whole):
            yield from _numbers(part, (*path, at))


def _put(whole: Any, path: tuple[Any, ...], number: int) -> Any:
    """Returns a copy of a decoded message with another number at a path."""
    if not path:
        return number
    if isinstance(whole, dict):
        return {**whole, path[0]: _put(whole[path[0]], path[1:], number)}
    return [*whole[: path[0]], _put(whole[path[0]], path[1:], number), *whole[path[0] + 1 :]]
