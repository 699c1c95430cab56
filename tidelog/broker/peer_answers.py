"""Checks of the answers of other brokers: an answer is accepted only if a correct broker could have given it.

Requests are checked by their sender (`peer_claims`). An answer comes on the connection to the broker that was asked, so
it is checked against the request: it must be of a type that answers it, be about the same things, and fit the payload
that follows. Numbers that no field can hold are refused before by the field types (`model.wire_numbers`). Statements of
a broker about its own disk, or as the leader about its partitions, are accepted if they could be true.

A refused answer counts as none: the caller gets the error of a lost connection, and asks again. `ANSWERED_BY` must name
every request, or brokers do not start; a message that it does not name is a notification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from tidelog.broker.consensus import messages as quorum
from tidelog.broker.consensus.plausible import check_prefix
from tidelog.broker.groups.messages import ForwardGroup, GroupAnswered
from tidelog.broker.isr.replica_messages import FetchReplicas, ReplicasFetched, ReplicasFlushed
from tidelog.broker.paxos import messages as paxos
from tidelog.broker.paxos.journal import decode_floor
from tidelog.broker.repair import repair_messages as repair
from tidelog.broker.rest_consumers import requests as rest
from tidelog.broker.routing import forwarding_messages as forwarding
from tidelog.controller import commands, partition_commands
from tidelog.controller.command_table import COMMANDS, WIRE_COMMANDS
from tidelog.model import groups
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import ForeignSender, ImplausibleNumber
from tidelog.model.ids import KEYED_PRODUCER_BIT
from tidelog.replication.paxos.voters import InvalidVoters, decode_voters
from tidelog.transport.peer import Answer, Hello
from tidelog.transport.peer.frames import BadFrame

AHEAD_MAX: Final = 2**32
"""How far a metadata position or an epoch in an answer may be beyond the known ones."""
PORT_MAX: Final = 65_535
Message = type[msgspec.Struct]
NOTHING: Final = type(None)

ANSWERED_BY: Final[Mapping[Message, tuple[type, ...]]] = {
    **{kind: (*COMMANDS[kind].answers, commands.ControllerElsewhere) for kind in WIRE_COMMANDS},
    quorum.DescribeQuorum: (quorum.QuorumDescribed,),
    quorum.DescribeSnapshots: (quorum.SnapshotsDescribed,),
    quorum.FetchSnapshot: (quorum.SnapshotPart,),
    FetchReplicas: (ReplicasFetched,),
    paxos.ReadApplied: (paxos.AppliedRead,),
    paxos.ReadValue: (paxos.ValueRead,),
    forwarding.ForwardProduce: (forwarding.Produced,),
    forwarding.ForwardRead: (forwarding.BatchesRead,),
    forwarding.ForwardOffsets: (forwarding.OffsetsFound,),
    forwarding.ForwardFingerprints: (forwarding.Fingerprints,),
    repair.RecoverQuery: (repair.RecoverReply,),
    repair.VerifyQuery: (repair.VerifyReply,),
    repair.DamageQuery: (repair.DamageReply,),
    repair.ReplicaStateQuery: (repair.ReplicaState,),
    repair.VerifyFilesQuery: (repair.VerifyFilesReply,),
    ForwardGroup: (GroupAnswered,),
    rest.ShowReading: (rest.Reading,),
    rest.ReadRecords: (rest.RecordsRead,),
    rest.CommitPositions: (rest.OffsetsCommitted,),
    rest.FetchCommitted: (rest.CommittedFetched,),
    **dict.fromkeys(
        (
            forwarding.ForwardDeletion,
            forwarding.ForwardDataWait,
            forwarding.ForwardChangeWait,
            rest.OpenInstance,
            rest.CloseInstance,
            rest.Subscribe,
            rest.Assign,
            rest.Seek,
            rest.SeekToEdge,
        ),
        (NOTHING,),
    ),
}
"""The types of the answers to each request; `NOTHING` stands for an empty answer."""
NOTIFICATIONS: Final[tuple[Message, ...]] = (
    quorum.PaxosFrame,
    quorum.ElectionFrame,
    paxos.PartitionFrame,
    paxos.AppliedDurable,
    ReplicasFlushed,
    rest.TakeBack,
)
"""Message types that are sent one-way, without an answer."""
NOTICED: Final[tuple[Message, ...]] = (*NOTIFICATIONS, commands.MetadataApplied, commands.ReportSilence)
"""Messages that may be sent one-way; the last two are commands, which may be sent as requests too."""
GROUPS_ANSWERED_BY: Final[Mapping[Message, Message]] = {
    groups.Heartbeat: groups.HeartbeatAnswer,
    groups.CommitOffsets: groups.CommitAnswer,
    groups.FetchOffsets: groups.OffsetsAnswer,
    groups.DescribeGroup: groups.GroupDescription,
    groups.DescribeInstance: groups.InstanceDescription,
    groups.ListGroups: groups.GroupsListed,
    groups.ListInstances: groups.InstancesListed,
    **dict.fromkeys(
        (
            groups.SetOffsets,
            groups.DeleteGroup,
            groups.CreateInstance,
            groups.ConfigureInstance,
            groups.DeleteInstance,
        ),
        groups.GroupDone,
    ),
}
"""The type of the answer to each request to a group coordinator."""


def check_paired(messages: Sequence[Message]) -> None:
    """Raises `TypeError` unless each message type is exactly one of request, answer and notification."""
    answers = {kind for kinds in ANSWERED_BY.values() for kind in kinds} - {NOTHING}
    for message in messages:
        if (message in ANSWERED_BY) + (message in answers) + (message in NOTIFICATIONS) != 1:
            raise TypeError(f"{message.__name__} is to have one place in ANSWERED_BY, or in NOTIFICATIONS")


class AnswerChecks:
    """Checks of the answers that one broker receives. `image` returns its metadata image."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    def check(self, answerer: Hello, request: msgspec.Struct, answer: Answer) -> None:
        """Raises `BadFrame` for an answer of a wrong type, `ForeignSender` or `ImplausibleNumber` for one that no
        correct broker could have given."""
        message = answer.message
        if type(message) not in ANSWERED_BY[type(request)]:
            raise BadFrame(f"{_name(message)} answers no {_name(request)}")
        if isinstance(message, commands.CommandAnswer):
            _check_command(request, message, self._image().position)
        elif isinstance(message, quorum.QuorumDescribed):
            _check_description(answerer, message)
        elif isinstance(request, ForwardGroup) and isinstance(message, GroupAnswered):
            if type(message.answer) is not GROUPS_ANSWERED_BY[type(request.request)]:
                raise BadFrame(f"{_name(message.answer)} answers no {_name(request.request)}")
        else:
            _check_sizes(request, message, len(answer.body))


def _check_command(request: msgspec.Struct, answer: commands.CommandAnswer, position: int) -> None:
    if answer.position - position > AHEAD_MAX:
        raise ImplausibleNumber(
            f"the controller names the position {answer.position}, and {position} is the end of what is known here"
        )
    match answer:
        case commands.ControllerElsewhere():
            _demand(0 < answer.port <= PORT_MAX, f"a controller is said to be at the port {answer.port}")
        case commands.BrokerAdmitted():
            _demand(answer.broker_epoch < answer.position, f"an epoch is no position before the end: {answer}")
        case commands.ProducerIdBlock():
            is_block = answer.count > 0 and answer.first + answer.count <= KEYED_PRODUCER_BIT
            _demand(is_block, f"these are no ids for producers: {answer.count} from {answer.first} on")
        case partition_commands.PartitionsAltered() if isinstance(request, partition_commands.AlterPartition):
            _check_partitions(request.partitions, answer.partitions)
        case partition_commands.MembersAltered() if isinstance(request, partition_commands.AlterMembers):
            _check_partitions(request.partitions, answer.partitions)


def _check_partitions(
    requested: Sequence[partition_commands.IsrAsked] | Sequence[partition_commands.MembersAsked],
    answered: Sequence[partition_commands.IsrAnswer] | Sequence[partition_commands.MembersAnswer],
) -> None:
    """Checks that there is one answer for each requested partition, in the same order, with plausible epochs. Raises
    `ImplausibleNumber`."""
    named = [(entry.topic_id, entry.partition) for entry in requested]
    reported = [(entry.topic_id, entry.partition) for entry in answered]
    _demand(named == reported, "an answer is about other partitions than was asked")
    before = [(entry.leader_epoch, entry.partition_epoch) for entry in requested]
    now = [(entry.leader_epoch, entry.partition_epoch) for entry in answered]
    for epochs, later in zip(before, now, strict=True):
        is_near = all(late - early <= AHEAD_MAX for early, late in zip(epochs, later, strict=True))
        _demand(is_near, f"the epochs {later} are more than 2^32 ahead of {epochs}, those that were asked about")


def _check_description(answerer: Hello, description: quorum.QuorumDescribed) -> None:
    """Checks that a broker describes itself and names valid voters. Raises `ForeignSender`, `BadFrame`."""
    if description.node_id != answerer.node_id:
        raise ForeignSender(f"node {answerer.node_id} described node {description.node_id} instead of itself")
    if description.voters:
        try:
            decode_voters(description.voters)
        except InvalidVoters as error:
            raise BadFrame(f"node {answerer.node_id} names no voters: {error}") from error


def _check_sizes(request: msgspec.Struct, answer: msgspec.Struct | None, size: int) -> None:
    """Checks that the answer describes as many bytes as follow it, and fits the request. Raises `ImplausibleNumber`,
    `BadFrame`."""
    match answer:
        case ReplicasFetched():
            _demand_size(sum(entry.size for entry in answer.partitions), size)
        case repair.RecoverReply() if isinstance(request, repair.RecoverQuery):
            _demand(len(answer.held) <= len(request.wanted), "an answer has more batches than were asked for")
            _demand_size(sum(held.size for held in answer.held), size)
        case quorum.SnapshotPart():
            # Each chunk has a byte, at least, so that nobody counts up to what a count may be.
            _demand(answer.count <= size, f"{answer.count} chunks are told of, and {size} bytes follow")
        case paxos.AppliedRead():
            _demand(answer.producers_size <= size, f"{answer.producers_size} bytes are told of, and {size} follow")
            _check_floor(answer.floor)
        case repair.VerifyFilesReply() if isinstance(request, repair.VerifyFilesQuery):
            names = [request.after, *(file.name for file in answer.checked)]
            _demand(all(map(str.__lt__, names, names[1:])), "files are told of that were checked before")
            _demand(answer.is_last or bool(answer.checked), "no files are told of, and there are more")
        case forwarding.OffsetsFound() if isinstance(request, forwarding.ForwardOffsets):
            _demand(len(answer.entries) == len(request.asked), "offsets are told of other partitions than was asked")
        case forwarding.Fingerprints() if isinstance(request, forwarding.ForwardFingerprints):
            _demand(len(answer.found) == len(request.partitions), "an answer is about other partitions than was asked")
        case forwarding.BatchesRead() if isinstance(request, forwarding.ForwardRead):
            _demand(
                answer.next_offset >= request.offset, f"a read from {request.offset} on led to {answer.next_offset}"
            )


def _check_floor(floor: bytes) -> None:
    try:
        check_prefix(decode_floor(floor))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"these bytes are no beginning of a journal: {error}") from error


def _demand_size(reported: int, size: int) -> None:
    if reported != size:  # looked at with each fetch: no words are made of what is right
        raise ImplausibleNumber(f"{reported} bytes are told of, and {size} follow")


def _demand(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ImplausibleNumber(otherwise)


def _name(message: msgspec.Struct | None) -> str:
    return "nothing" if message is None else type(message).__name__
