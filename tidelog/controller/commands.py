"""The commands of the active controller and its answers; both travel between brokers.

A command carries everything random (a new topic's id, a process's incarnation), drawn by whoever asks: so the answer
to a command that was sent twice, because the first answer got lost, is the same, and deciding stays pure.
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
    """A topic to be created. None means the controller's default; `assignments` excludes the two counts."""

    name: str
    partitions: Int64 | None = None
    replication_factor: Int64 | None = None
    assignments: Mapping[Int64, Sequence[Int64]] | None = None
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)


# `\Z` and not `$`, which would let a line feed into the name of a directory.
NewTopicId = Annotated[str, msgspec.Meta(pattern=r"\A(?!0{32})[0-9a-f]{32}\Z")]
"""The id of a topic as whoever asks for it has drawn it. Every broker names a directory by it, and zeros are the
metadata log's, so nothing else is taken from other brokers."""


class Command(msgspec.Struct, frozen=True, tag=True):
    """Base of all."""


CALLER_LEVEL: Final = 3
"""Since which feature level a command says for whom it is done."""


class ClientCommand(Command, frozen=True, kw_only=True):
    """Base of what a broker asks for because one of its clients does, by whose rights the controller judges it."""

    caller: Caller | None = None
    """The client, as the broker that it speaks to has found it to be. None where nobody says, as in older versions."""


# -- topics --------------------------------------------------------------------------------------------------------


class CreateTopic(ClientCommand, frozen=True, tag=True):
    """Answered by `TopicPlaced`. With `validate_only`, that is what would have happened."""

    topic: NewTopic
    topic_id: NewTopicId
    validate_only: bool = False


class CreateOffsetsTopic(Command, frozen=True, tag=True):
    """Makes the topic of the consumer groups, or another one of the brokers' own, as the controller's settings say, if
    there is none yet: whoever asks for it gets the one that there is. Answered by `TopicPlaced`."""

    topic_id: NewTopicId
    name: str = OFFSETS_TOPIC


class AddPartitions(ClientCommand, frozen=True, tag=True):
    """Answered by `TopicPlaced`. `have` is the count that the asker saw; a repetition is known by it."""

    name: str
    have: Int64
    total: Int64


class DeleteTopic(ClientCommand, frozen=True, tag=True):
    """Answered by `Done`. `topic_id` is the topic that the asker saw under this name, or empty if it saw none."""

    name: str
    topic_id: str = ""


class AlterTopicConfigs(ClientCommand, frozen=True, tag=True):
    """Answered by `Done`. Sets overrides of a topic, or takes them back (None)."""

    name: str
    changes: Mapping[str, str | None]
    validate_only: bool = False


class QuotaChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """New rates of one entity (`model/quotas.py`); null takes one back."""

    rates: dict[str, float | None]
    user: str | None = None
    client_id: str | None = None
    address: str | None = None


class AlterQuotas(ClientCommand, frozen=True, tag=True):
    """Answered by `Done`. All changes or none."""

    changes: Sequence[QuotaChange]
    validate_only: bool = False


class ReportRemoved(Command, frozen=True, tag=True):
    """A broker holds no data of these deleted topics any more. Answered by `Done`."""

    node_id: Natural
    topic_ids: Sequence[str]


class AllocateProducerIds(Command, frozen=True, tag=True):
    """Answered by `ProducerIdBlock`. One that was asked for twice is wasted; there are enough."""


# -- brokers -------------------------------------------------------------------------------------------------------


Word = Annotated[str, msgspec.Meta(max_length=1_024)]
"""A name or an address. Every broker keeps those of all others."""
LISTENERS_MAX: Final = 64


class RegisterBroker(Command, frozen=True, tag=True):
    """A broker process reports for duty. Answered by `BrokerAdmitted`, or `RegistrationOutdated`."""

    node_id: Natural
    incarnation: Word
    """The incarnation of the broker's process."""
    storage: Word
    """The id of the disk that holds the metadata log."""
    listeners: Annotated[Mapping[Word, Endpoint], msgspec.Meta(max_length=LISTENERS_MAX)]
    """The addresses that clients are told, by the names of the listeners."""
    peer_host: Word
    peer_port: Natural
    rack: Word | None = None
    cluster_id: Word = ""
    """The cluster that its disk belongs to; empty if it is new."""
    clean_epoch: NaturalOrNone = -1
    """The broker epoch under which its predecessor on this disk stopped in good order; -1 if it did not."""
    replaces: NaturalOrNone = -1
    """The newest registration of its node id that it knows of; -1 if none."""
    lost_storage: Word = ""
    """The disk under which its data directory took part before, if that was lost since; else empty."""
    starts: Natural = 0
    """How often a process has begun on its data directory, this one included; 0 if that is not counted."""
    stamp: Natural = 0
    """The last time mark in its data directory."""
    levels: LevelRange = FIRST_LEVEL
    """The feature levels that it speaks."""


class BrokerHeartbeat(Command, frozen=True, tag=True):
    """A broker lives. Answered by `HeartbeatAnswered`."""

    node_id: Natural
    broker_epoch: NaturalOrNone
    position: Natural
    """How far it has applied the metadata log."""
    wants_shutdown: bool = False
    """It is about to stop, and asks that nobody counts on it any more."""
    snapshot_position: Natural = 0
    """The position of the broker's newest snapshot, which `snapshot_hash` is the root hash of."""
    snapshot_hash: str = ""
    stamp: Natural = 0
    """The last time mark in its data directory."""
    wall_ms: Int64 | None = None
    """The time by its own clock."""


class MetadataApplied(Command, frozen=True, tag=True):
    """A broker has applied the metadata log up to `position`; it says so at once, between its heartbeats. One-way."""

    node_id: Natural
    broker_epoch: NaturalOrNone
    position: Natural


class ReportSilence(Command, frozen=True, tag=True):
    """A broker, the witness, is owed answers by another one, which does not even say that it is there. Told again while
    that lasts; a word of two witnesses lets the controller fence it. One-way."""

    node_id: Natural
    """The witness."""
    broker_epoch: NaturalOrNone
    """The witness's."""
    silent_node: Natural
    silent_epoch: NaturalOrNone


class RemoveBroker(ClientCommand, frozen=True, tag=True):
    """Answered by `Done`. `broker_epoch` is the registration that the asker saw; -1 if it saw none."""

    node_id: Int64
    broker_epoch: Int64 = -1


class SpokenLevels(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The feature levels that a broker speaks, as this process of it says."""

    node_id: Int64
    incarnation: str
    levels: LevelRange


class RaiseLevel(ClientCommand, frozen=True, tag=True):
    """Raises the cluster's feature level to the highest that any of its brokers speaks, if all do. Answered by
    `LevelAnswered`; with `validate_only`, that is what would have happened."""

    validate_only: bool = False
    spoken: Sequence[SpokenLevels] = ()
    """The controller fills this in, for itself and the brokers that it is connected to."""


# -- what only the controller itself asks for ----------------------------------------------------------------------


class LeadCluster(Command, frozen=True, tag=True):
    """Records that a controller was elected under `epoch`. A cluster that has no id yet gets `cluster_id`."""

    node_id: int
    epoch: int
    cluster_id: str
    level: int = LEVEL_MIN
    """The feature level at which a cluster is founded by this command."""


class FenceBroker(Command, frozen=True, tag=True):
    """A broker was not heard of for too long. Without effect if it has registered again since."""

    node_id: int
    broker_epoch: int


class Stamped(msgspec.Struct, frozen=True, array_like=True):
    """The last time mark in the directory of a broker, in one of its lives."""

    node_id: int
    broker_epoch: int
    stamp: int


class NoteStamps(Command, frozen=True, tag=True):
    """The metadata are to know how recent the directories of brokers are."""

    stamps: Sequence[Stamped]


class AssignVoter(Command, frozen=True, tag=True):
    """A broker's disk is to get a voter id."""

    node_id: int
    storage: str


class TakeSnapshot(Command, frozen=True, tag=True):
    """The log has grown long."""


class AgreeSnapshot(Command, frozen=True, tag=True):
    """A majority of the voters reported the same snapshot."""

    position: int
    root_hash: str


# -- answers -------------------------------------------------------------------------------------------------------


class CommandAnswer(msgspec.Struct, frozen=True, tag=True):
    """Base of all. `position` is how far a broker must have applied the metadata log to see what was decided."""

    position: Natural


class Done(CommandAnswer, frozen=True, tag=True):
    """It is so, now or already."""


class ControllerElsewhere(CommandAnswer, frozen=True, tag=True):
    """Nothing was done: another broker is the controller, as far as this one knows, and is found there by its peers."""

    node_id: Natural
    host: str
    port: Natural


class TopicPlaced(CommandAnswer, frozen=True, tag=True):
    """`assignments[p]` are the replicas of partition p, the preferred leader first."""

    topic_id: str
    assignments: list[list[Natural]]


class ProducerIdBlock(CommandAnswer, frozen=True, tag=True):
    """The ids from `first` on are the asker's."""

    first: Natural
    count: Natural


class BrokerAdmitted(CommandAnswer, frozen=True, tag=True):
    """Registered, and fenced until a heartbeat reports a position beyond `broker_epoch`."""

    broker_epoch: Natural
    cluster_id: str


class RegistrationOutdated(CommandAnswer, frozen=True, tag=True):
    """Nothing was done: the newest registration of this node id is another one; -1 if there is none."""

    broker_epoch: NaturalOrNone


class HeartbeatAnswered(CommandAnswer, frozen=True, tag=True):
    """Tells what the cluster thinks of the broker. `may_stop`: it asked to, and leads nothing any more."""

    is_fenced: bool
    may_stop: bool
    clock_offset_ms: Int64 | None = None
    """How far its clock is ahead of the median of the live brokers' clocks; None if that was not looked at."""


class LevelAnswered(CommandAnswer, frozen=True, tag=True):
    """The cluster's feature level was `before`, and is `level`."""

    before: Natural
    level: Natural
