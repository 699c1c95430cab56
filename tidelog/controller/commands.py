"""The commands to the active controller and its answers; both travel between brokers.

A command carries every random value that it needs (a new topic's id, a process's incarnation), drawn by the sender: so
the answer to a command that was sent twice, because the first answer got lost, is the same, and deciding stays pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from tidelog.model.access import Caller
from tidelog.model.cluster import Endpoint
from tidelog.model.levels import FIRST_LEVEL, LEVEL_MIN, LevelRange
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.model.wire_numbers import Int64, Natural, NaturalOrNone


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to be created. A None field takes the controller's default; `assignments` excludes `partitions` and
    `replication_factor`."""

    name: str
    partitions: Int64 | None = None
    replication_factor: Int64 | None = None
    assignments: Mapping[Int64, Sequence[Int64]] | None = None
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)


# `\Z` and not `$`, which would let a line feed into the name of a directory.
NewTopicId = Annotated[str, msgspec.Meta(pattern=r"\A(?!0{32})[0-9a-f]{32}\Z")]
"""A topic's id, drawn by the sender of the command: 32 hexadecimal digits. Every broker names a directory by it, and
zeros are the metadata log's id, so no other form is accepted from other brokers."""


class Command(msgspec.Struct, frozen=True, tag=True):
    """The base class of all commands."""


CALLER_LEVEL: Final = 3
"""The feature level from which on a command names the client for which it is sent."""


class ClientCommand(Command, frozen=True, kw_only=True):
    """The base class of commands that a broker sends for one of its clients. The controller checks that client's
    rights."""

    caller: Caller | None = None
    """The client, as authenticated by the broker that it is connected to. None if it is not known, as from older
    versions."""


class BrokerCommand(Command, frozen=True):
    """The base class of commands that a broker sends about itself: its node id, and the epoch of its registration."""

    node_id: Natural
    broker_epoch: NaturalOrNone


# -- topics --------------------------------------------------------------------------------------------------------


class CreateTopic(ClientCommand, frozen=True, tag=True):
    """Command: create a topic. Answered by `TopicPlaced`; with `validate_only` nothing is created, and the answer says
    what would be."""

    topic: NewTopic
    topic_id: NewTopicId
    validate_only: bool = False


class CreateOffsetsTopic(Command, frozen=True, tag=True):
    """Command: create the topic of consumer groups' offsets, or another internal topic, with the controller's settings,
    if it does not exist. Answered by `TopicPlaced` with the existing or new topic."""

    topic_id: NewTopicId
    name: str = OFFSETS_TOPIC


class AddPartitions(ClientCommand, frozen=True, tag=True):
    """Command: add partitions to a topic. Answered by `TopicPlaced`. `have` is the partition count that the sender
    knew, by which a repeated command is recognised. `assignments` has the replicas of each new partition; None leaves
    them to the placement rule."""

    name: str
    have: Int64
    total: Int64
    assignments: Mapping[Int64, Sequence[Int64]] | None = None


class DeleteTopic(ClientCommand, frozen=True, tag=True):
    """Command: delete a topic. Answered by `Done`. `topic_id` is the id that the sender knew for this name, or empty if
    it knew none."""

    name: str
    topic_id: str = ""


class AlterTopicConfigs(ClientCommand, frozen=True, tag=True):
    """Command: set configuration overrides of a topic, or remove them (None). Answered by `Done`."""

    name: str
    changes: Mapping[str, str | None]
    validate_only: bool = False


class QuotaChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """New rates of one entity (`model/quotas.py`); a null rate removes the quota."""

    rates: dict[str, float | None]
    user: str | None = None
    client_id: str | None = None
    address: str | None = None


class AlterQuotas(ClientCommand, frozen=True, tag=True):
    """Command: change quotas, all or none. Answered by `Done`."""

    changes: Sequence[QuotaChange]
    validate_only: bool = False


class ReportRemoved(Command, frozen=True, tag=True):
    """Command: a broker reports that it holds no data of these deleted topics any more. Answered by `Done`."""

    node_id: Natural
    topic_ids: Sequence[str]


class AllocateProducerIds(Command, frozen=True, tag=True):
    """Command: allocate a block of producer ids. Answered by `ProducerIdBlock`. A repeated command allocates another
    block."""


# -- brokers -------------------------------------------------------------------------------------------------------


Word = Annotated[str, msgspec.Meta(max_length=1_024)]
"""A name or an address in a registration, of at most 1,024 characters, since every broker keeps those of all others."""
LISTENERS_MAX: Final = 64


class RegisterBroker(Command, frozen=True, tag=True):
    """Command: register a broker process. Answered by `BrokerAdmitted`, or `RegistrationOutdated`."""

    node_id: Natural
    incarnation: Word
    """The incarnation of the broker's process."""
    storage: Word
    """The id of the broker's disk that holds the metadata log."""
    listeners: Annotated[Mapping[Word, Endpoint], msgspec.Meta(max_length=LISTENERS_MAX)]
    """The advertised addresses, by listener name."""
    peer_host: Word
    peer_port: Natural
    rack: Word | None = None
    cluster_id: Word = ""
    """The id of the cluster that the broker's disk belongs to; empty if the disk is new."""
    clean_epoch: NaturalOrNone = -1
    """The broker epoch under which the last process on this disk shut down cleanly; -1 if it did not."""
    replaces: NaturalOrNone = -1
    """The broker epoch of the newest registration of its node id that the broker knows; -1 if it knows none."""
    lost_storage: Word = ""
    """The former disk id of the broker's data directory, if that disk was lost; else empty."""
    starts: Natural = 0
    """The number of process starts on the broker's data directory, this one included; 0 if they are not counted."""
    stamp: Natural = 0
    """The time mark of the broker's data directory: a counter that grows regularly, by which an old copy of the
    directory is recognised."""
    levels: LevelRange = FIRST_LEVEL
    """The feature levels that the broker supports."""


class BrokerHeartbeat(BrokerCommand, frozen=True, tag=True):
    """Command: the periodic heartbeat of a broker. Answered by `HeartbeatAnswered`."""

    position: Natural
    """The position up to which the broker has applied the metadata log."""
    wants_shutdown: bool = False
    """True if the broker is about to stop, and asks to be fenced and to lose its leaderships."""
    snapshot_position: Natural = 0
    """The position of the broker's newest snapshot; `snapshot_hash` is that snapshot's root hash."""
    snapshot_hash: str = ""
    stamp: Natural = 0
    """The time mark of the broker's data directory: a counter that grows regularly, by which an old copy of the
    directory is recognised."""
    wall_ms: Int64 | None = None
    """The time by the broker's wall clock, in milliseconds."""


class MetadataApplied(BrokerCommand, frozen=True, tag=True):
    """Command: a broker has applied the metadata log up to `position`. It is sent at once, between heartbeats, and not
    answered."""

    position: Natural


class ReportSilence(BrokerCommand, frozen=True, tag=True):
    """Command: the sending broker (the witness) has waited in vain for answers of another broker. It is repeated while
    that lasts and not answered; on the reports of two witnesses the controller may fence the silent broker."""

    silent_node: Natural
    silent_epoch: NaturalOrNone


class RemoveBroker(ClientCommand, frozen=True, tag=True):
    """Command: remove a broker from the cluster. Answered by `Done`. `broker_epoch` is the registration that the sender
    knew; -1 if it knew none."""

    node_id: Int64
    broker_epoch: Int64 = -1


class SpokenLevels(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The feature levels that a broker's present process supports."""

    node_id: Int64
    incarnation: str
    levels: LevelRange


class RaiseLevel(ClientCommand, frozen=True, tag=True):
    """Command: raise the cluster's feature level to the highest that any of its brokers supports, provided that all
    support it. Answered by `LevelAnswered`; with `validate_only` nothing changes, and the answer says what would."""

    validate_only: bool = False
    spoken: Sequence[SpokenLevels] = ()
    """The levels of the controller and of the brokers connected to it; the controller fills them in."""


# -- what only the controller itself asks for ----------------------------------------------------------------------


class LeadCluster(Command, frozen=True, tag=True):
    """Command: record that a controller was elected under `epoch`. A cluster that has no id yet gets `cluster_id`."""

    node_id: int
    epoch: int
    cluster_id: str
    level: int = LEVEL_MIN
    """The feature level at which a cluster is founded by this command."""


class FenceBroker(Command, frozen=True, tag=True):
    """Command: fence a broker that the controller has not heard of for too long. It has no effect if the broker has
    registered again since."""

    node_id: int
    broker_epoch: int


class Stamped(msgspec.Struct, frozen=True, array_like=True):
    """The time mark (a regularly growing counter) in the directory of a broker, under one of its broker epochs."""

    node_id: int
    broker_epoch: int
    stamp: int


class NoteStamps(Command, frozen=True, tag=True):
    """Command: record the newest time marks in brokers' directories in the metadata, by which an old copy of a
    directory is recognised."""

    stamps: Sequence[Stamped]


class AssignVoter(Command, frozen=True, tag=True):
    """Command: assign a voter id to a broker's disk."""

    node_id: int
    storage: str


class TakeSnapshot(Command, frozen=True, tag=True):
    """Command: have all brokers write a snapshot, because the metadata log has grown long."""


class AgreeSnapshot(Command, frozen=True, tag=True):
    """Command: record that a majority of the voters reported the same snapshot."""

    position: int
    root_hash: str


# -- answers -------------------------------------------------------------------------------------------------------


class CommandAnswer(msgspec.Struct, frozen=True, tag=True):
    """The base class of all answers. `position` is the position up to which a broker must have applied the metadata log
    to see the decision."""

    position: Natural


class Done(CommandAnswer, frozen=True, tag=True):
    """The answer that the command has taken effect, now or before."""


class ControllerElsewhere(CommandAnswer, frozen=True, tag=True):
    """The answer of a broker that is not the controller: nothing was done. It names the controller that it knows, and
    its address for other brokers."""

    node_id: Natural
    host: str
    port: Natural


class TopicPlaced(CommandAnswer, frozen=True, tag=True):
    """The answer with a topic's replicas: `assignments[p]` are those of partition p, the preferred leader first."""

    topic_id: str
    assignments: list[list[Natural]]


class ProducerIdBlock(CommandAnswer, frozen=True, tag=True):
    """The answer with a block of producer ids, from `first` on, for the sender."""

    first: Natural
    count: Natural


class BrokerAdmitted(CommandAnswer, frozen=True, tag=True):
    """The answer that a broker is registered. It is fenced until a heartbeat reports a position beyond
    `broker_epoch`."""

    broker_epoch: Natural
    cluster_id: str


class RegistrationOutdated(CommandAnswer, frozen=True, tag=True):
    """The answer that nothing was done, because the newest registration of this node id is not the one that the command
    replaces. `broker_epoch` is that of the newest registration, -1 if there is none."""

    broker_epoch: NaturalOrNone


class HeartbeatAnswered(CommandAnswer, frozen=True, tag=True):
    """The answer to a heartbeat: the broker's state in the metadata. `may_stop` is True if the broker asked to stop,
    and leads no partition any more."""

    is_fenced: bool
    may_stop: bool
    clock_offset_ms: Int64 | None = None
    """Milliseconds by which the broker's clock is ahead of the median of the live brokers' clocks; None if they were
    not compared."""


class LevelAnswered(CommandAnswer, frozen=True, tag=True):
    """The answer with the cluster's feature level: `before` the command, and `level` now."""

    before: Natural
    level: Natural
