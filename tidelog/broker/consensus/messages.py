"""Messages of brokers about the metadata log.

`PaxosFrame` and `ElectionFrame` are one-way: the cores behind them repeat what matters. Sender and addressee are engine
ids, not node ids: an answer that was meant for a disk since lost reaches nobody, because the new disk has another id.
"""

from __future__ import annotations

import msgspec

from tidelog.model.wire_numbers import Natural, NaturalOrNone
from tidelog.replication.election_events import ElectionMessage
from tidelog.replication.paxos.messages import Learned, LearnResponse, Message, PromiseResponse, WriteRequest
from tidelog.replication.paxos.state import Value


class PaxosFrame(msgspec.Struct, frozen=True, tag=True):
    """An engine's message. The payloads of its values follow, one behind the other."""

    sender: Natural
    to: Natural
    message: Message
    sizes: tuple[Natural, ...] = ()
    """The length of each payload, in the order of `values_of`."""
    notices: tuple[Learned, ...] = ()
    """Notices of what is chosen by now, told along with the message, and before it."""


class ElectionFrame(msgspec.Struct, frozen=True, tag=True):
    """An election core's message."""

    sender: Natural
    to: Natural
    message: ElectionMessage


class DescribeQuorum(msgspec.Struct, frozen=True, tag=True):
    """Asked by a broker that starts: what is there already? Answered in every state, to anybody."""


class QuorumDescribed(msgspec.Struct, frozen=True, tag=True):
    """Answers with what the broker knows."""

    node_id: Natural
    incarnation: str
    """The incarnation of its metadata log's disk."""
    cluster_id: str
    """Empty if it belongs to no cluster yet."""
    voter_id: Natural
    """Under which it votes, or would if the voter set named it; 0 if it cannot."""
    founders: tuple[tuple[Natural, str], ...]
    """Voter id and incarnation, if it is one of those who found or founded the cluster."""
    voters: bytes
    """The newest voter set that it has applied, encoded; empty if it knows none."""
    voters_position: NaturalOrNone
    """The position of that set in the log."""
    configured_voters: tuple[str, ...]
    """The setting `cluster.voters` there."""
    remembers: str | None = None
    """The cluster whose data it holds though its metadata log is lost, empty if it cannot say which; else None. Such a
    broker founds nothing, and nobody founds with it."""
    generation: Natural = 0
    """How often that cluster's metadata log was begun anew."""
    recovery_id: str = ""
    """The id of the last time; empty as well for a new disk that may join any."""
    directories: tuple[tuple[Natural, str, Natural, Natural], ...] = ()
    """Node, disk, starts and stamp of the data directory of each broker, as far as it knows (`BrokerInfo`)."""
    lacks: Natural | None = None
    """The position of the entry that its log cannot go on without, if it is damaged there and nobody has given it yet
    (`ElectedLog.unreadable`)."""


class DescribeSnapshots(msgspec.Struct, frozen=True, tag=True):
    """Asks which snapshots a broker has."""


class SnapshotsDescribed(msgspec.Struct, frozen=True, tag=True):
    """Answers with the snapshots of which a header can be read there, damaged or not."""

    headers: tuple[bytes, ...]
    """Headers as in the files, the newest snapshot's first."""


class FetchSnapshot(msgspec.Struct, frozen=True, tag=True):
    """Asks for some chunks of a snapshot. Answered by `SnapshotPart`."""

    header: bytes | None = None
    """The header of that snapshot, as in the file. At the first feature level it is not told, but `position`."""
    first: Natural = 0
    position: NaturalOrNone = -1
    """The position of the snapshot, if there is no header; -1 stands for the newest."""


class SnapshotPart(msgspec.Struct, frozen=True, tag=True):
    """Chunks of a snapshot, which follow, one behind the other. At the first feature level they have no gap, and
    `header`, `first` and `count` stand in the place of the others; they are empty at higher ones."""

    indexes: tuple[Natural, ...] = ()
    """The chunks that are sound there, of those from the first one asked for up to `end`."""
    end: Natural = 0
    """The next question goes on here."""
    header: bytes = b""
    """The header of the snapshot, as in the file."""
    first: Natural = 0
    count: Natural = 0

    @property
    def told(self) -> tuple[int, ...]:
        """The chunks that follow, whatever the level."""
        return self.indexes or tuple(range(self.first, self.first + self.count))

    @property
    def next_first(self) -> int:
        """The next question goes on here, whatever the level."""
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
"""All messages of this page: a peer node has to know them."""


def values_of(message: Message) -> list[tuple[int, Value]]:
    """Returns position and value of each payload that travels with a message, in the order of the payloads."""
    match message:
        case WriteRequest(_, position, value):
            # A value that is proposed by its identity alone has no payload that anybody could send.
            return [(position, value)] if value.digest and not message.is_named else []
        case PromiseResponse() | LearnResponse():
            # A faulty slot tells of its value, whose payload the sender cannot read.
            return [(slot.position, slot.value) for slot in message.slots if slot.value.digest and not slot.faulty]
        case _:
            return []
