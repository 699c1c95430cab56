"""Messages between brokers about the metadata log.

`PaxosFrame` and `ElectionFrame` are one-way: the cores repeat what matters. Their sender and receiver are engine ids,
not node ids: an answer to a disk that has been replaced is dropped, because the new disk has another id.
"""

from __future__ import annotations

import msgspec

from tidelog.model.wire_numbers import Natural, NaturalOrNone
from tidelog.replication.election_events import ElectionMessage
from tidelog.replication.paxos.messages import Learned, LearnResponse, Message, PromiseResponse, WriteRequest
from tidelog.replication.paxos.state import Value


class PaxosFrame(msgspec.Struct, frozen=True, tag=True):
    """A message from one Paxos engine to another. The payloads of its values follow, in order."""

    sender: Natural
    to: Natural
    message: Message
    sizes: tuple[Natural, ...] = ()
    """Length of each payload in bytes, in the order of `values_of`."""
    notices: tuple[Learned, ...] = ()
    """Notices of chosen values, which the receiver handles before the message."""


class ElectionFrame(msgspec.Struct, frozen=True, tag=True):
    """A message from one election core to another."""

    sender: Natural
    to: Natural
    message: ElectionMessage


class DescribeQuorum(msgspec.Struct, frozen=True, tag=True):
    """Asks a broker which cluster and log it belongs to. Sent by a broker that starts; answered in every state, to any
    caller."""


class QuorumDescribed(msgspec.Struct, frozen=True, tag=True):
    """Answers `DescribeQuorum` with what the broker knows of its log and its cluster."""

    node_id: Natural
    incarnation: str
    """Incarnation (random id) of the disk of its metadata log."""
    cluster_id: str
    """Id of the broker's cluster; empty if it belongs to none yet."""
    voter_id: Natural
    """The id under which it votes, or would if the voter set named it; 0 if it cannot vote."""
    founders: tuple[tuple[Natural, str], ...]
    """Voter id and incarnation of each founder, if this broker is one of those that found or founded the cluster."""
    voters: bytes
    """The encoded newest voter set that the broker has applied; empty if it knows none."""
    voters_position: NaturalOrNone
    """The log position of the value that put `voters` in force."""
    configured_voters: tuple[str, ...]
    """The setting `cluster.voters` of the answering broker."""
    remembers: str | None = None
    """Id of the cluster whose data the broker holds though its metadata log is lost, empty if it does not know the id;
    None if nothing is lost. Such a broker takes no part in founding a cluster."""
    generation: Natural = 0
    """Number of times that the cluster's metadata log was begun anew by an operator."""
    recovery_id: str = ""
    """The id of the last recovery of the metadata log by an operator; empty if there was none, or for a new disk that
    may join any cluster."""
    directories: tuple[tuple[Natural, str, Natural, Natural], ...] = ()
    """Node id, disk id, number of process starts and time mark (a counter that grows regularly) of each broker's data
    directory, as far as the answering broker knows (`BrokerInfo`)."""
    lacks: Natural | None = None
    """Position of a damaged entry without which its log cannot go on, and of which no broker has sent a copy yet
    (`ElectedLog.unreadable`); None if there is none."""


class DescribeSnapshots(msgspec.Struct, frozen=True, tag=True):
    """Asks which snapshots a broker has."""


class SnapshotsDescribed(msgspec.Struct, frozen=True, tag=True):
    """Answers `DescribeSnapshots` with the snapshots whose header is readable, even if the rest is damaged."""

    headers: tuple[bytes, ...]
    """Snapshot headers as in the files, the newest first."""


class FetchSnapshot(msgspec.Struct, frozen=True, tag=True):
    """Asks for some chunks of a snapshot. Answered by `SnapshotPart`."""

    header: bytes | None = None
    """Header of the wanted snapshot, as in its file. Not used at the first feature level, where `position` names the
    snapshot."""
    first: Natural = 0
    position: NaturalOrNone = -1
    """Position of the wanted snapshot if there is no header; -1 for the newest."""


class SnapshotPart(msgspec.Struct, frozen=True, tag=True):
    """Answers `FetchSnapshot` with chunks of a snapshot, which follow in order. At the first feature level the chunks
    are consecutive, and `header`, `first` and `count` describe them; these fields are empty at higher levels."""

    indexes: tuple[Natural, ...] = ()
    """Indexes of the readable chunks, from the first one requested up to `end`."""
    end: Natural = 0
    """Index of the chunk that the next request begins with."""
    header: bytes = b""
    """The header of the snapshot, as in the file."""
    first: Natural = 0
    count: Natural = 0

    @property
    def chunks(self) -> tuple[int, ...]:
        """Indexes of the chunks that follow, at any feature level."""
        return self.indexes or tuple(range(self.first, self.first + self.count))

    @property
    def next_first(self) -> int:
        """Index of the chunk that the next request begins with, at any feature level."""
        return max(self.end, self.first + self.count)


QUORUM_MESSAGES = (
    PaxosFrame,
    ElectionFrame,
    DescribeQuorum,
    QuorumDescribed,
    DescribeSnapshots,
    SnapshotsDescribed,
    FetchSnapshot,
    SnapshotPart,
)
"""All message types of this module, for the registry of messages between brokers."""


def values_of(message: Message) -> list[tuple[int, Value]]:
    """Returns position and value of each payload that is sent with a message, in the order of the payloads."""
    match message:
        case WriteRequest(_, position, value):
            # A value that is proposed by its identity alone has no payload that anybody could send.
            return [(position, value)] if value.digest and not message.is_named else []
        case PromiseResponse() | LearnResponse():
            # A faulty slot tells of its value, whose payload the sender cannot read.
            return [(slot.position, slot.value) for slot in message.slots if slot.value.digest and not slot.faulty]
        case _:
            return []
