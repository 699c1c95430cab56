"""Dispatch of the messages of other brokers to the parts of a broker that handle them."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tidelog.broker.consensus import messages as quorum
from tidelog.broker.groups.messages import GROUP_MESSAGES, ForwardGroup
from tidelog.broker.isr.replica_messages import REPLICA_MESSAGES
from tidelog.broker.paxos import messages as paxos
from tidelog.broker.peer_answers import ANSWERED_BY, NOTICED, check_paired
from tidelog.broker.peer_claims import ClaimChecks, check_complete
from tidelog.broker.repair import repair_messages as repair
from tidelog.broker.rest_consumers import requests as rest
from tidelog.broker.routing import forwarding_messages as forwarding
from tidelog.controller import commands
from tidelog.controller.access_commands import ACCESS_COMMANDS
from tidelog.controller.command_table import ANSWERS, CLIENT_COMMANDS, WIRE_COMMANDS
from tidelog.controller.partition_commands import (
    UNFIT_REASON_LEVELS,
    AcceptLoss,
    ElectLeaders,
    HandOver,
    RegroupPartition,
    ReportLostReplicas,
    ReportUnfitReplicas,
)
from tidelog.controller.records import ACCESS_LEVEL, QUOTAS_LEVEL
from tidelog.model.errors import (
    BrokerNotRegistered,
    ForeignSender,
    ImplausibleNumber,
    NotAsked,
    NotController,
    TidelogError,
    UnsupportedLevel,
)
from tidelog.model.levels import LEVEL_MIN, Additions
from tidelog.replication.election_events import HeartbeatAnswer
from tidelog.replication.paxos.messages import WriteRequest
from tidelog.transport.peer import Answer, Hello
from tidelog.transport.peer.statistics import NUMBER, SENDER, UNREADABLE, UNREGISTERED, PeerStatistics

if TYPE_CHECKING:
    from tidelog.broker.controller.active import ActiveController
    from tidelog.broker.groups.facade import Groups
    from tidelog.broker.membership.controller_channel import ControllerChannel
    from tidelog.broker.metadata.metadata import ClusterMetadata
    from tidelog.broker.partitions.roles import AnswerPeer, ProtocolRuntime, TakeNotice
    from tidelog.broker.repair.copies import Copies
    from tidelog.broker.repair.loss_finding import LossFinder
    from tidelog.broker.repair.remains_finding import RemainsFinder
    from tidelog.broker.repair.verifying import Verifier
    from tidelog.broker.repair.verifying_files import FilesVerifier
    from tidelog.broker.rest_consumers.service import RestConsumers
    from tidelog.broker.routing.routing import Routing

logger = structlog.get_logger("tidelog.peer")

PEER_MESSAGES: Final[tuple[type[msgspec.Struct], ...]] = (
    *quorum.QUORUM_MESSAGES,
    *WIRE_COMMANDS,
    *ANSWERS,
    *forwarding.FORWARDING_MESSAGES,
    *REPLICA_MESSAGES,
    *repair.REPAIR_MESSAGES,
    *paxos.PAXOS_MESSAGES,
    *GROUP_MESSAGES,
    *rest.REST_CONSUMER_MESSAGES,
)
"""The types of all messages between brokers."""


def _without_newer_reasons(report: ReportUnfitReplicas, level: int) -> ReportUnfitReplicas:
    """Returns the report without replicas whose reason is newer than the feature level: an older controller would
    refuse the whole report."""
    replicas = [replica for replica in report.replicas if UNFIT_REASON_LEVELS.get(replica.reason, LEVEL_MIN) <= level]
    return msgspec.structs.replace(report, replicas=replicas)


def _checked_frame(frame: quorum.PaxosFrame, level: int) -> quorum.PaxosFrame:
    """Returns the frame. Raises `UnsupportedLevel` for a value without its payload below `NAMED_LEVEL`, where the
    acceptor would wait for the payload."""
    if level < NAMED_LEVEL and isinstance(frame.message, WriteRequest) and frame.message.is_named:
        raise UnsupportedLevel(f"values are not accepted by name at feature level {level}")
    return frame


def _checked_partition_frame(message: paxos.PartitionFrame, level: int) -> paxos.PartitionFrame:
    _checked_frame(message.frame, level)
    return message


def _election_frame_of_level(frame: quorum.ElectionFrame, level: int) -> quorum.ElectionFrame:
    message = frame.message
    if level >= FREE_LEVEL or not isinstance(message, HeartbeatAnswer):
        return frame
    return msgspec.structs.replace(frame, message=msgspec.structs.replace(message, free_ms=None))


FREE_LEVEL: Final = 3
"""The feature level from which on a voter reports for how long it has granted no earlier leader a lease."""
NAMED_LEVEL: Final = 2
"""The feature level from which on acceptors take a value whose payload is lost on all replicas."""

MESSAGE_ADDITIONS: Final = Additions(
    types={commands.AlterQuotas: QUOTAS_LEVEL}
    | dict.fromkeys(ACCESS_COMMANDS, ACCESS_LEVEL)
    | dict.fromkeys(
        (
            commands.RaiseLevel,
            commands.LevelAnswered,
            commands.ReportSilence,
            ReportLostReplicas,
            HandOver,
            AcceptLoss,
            RegroupPartition,
            quorum.DescribeSnapshots,
            quorum.SnapshotsDescribed,
            paxos.ReadValue,
            paxos.ValueRead,
            repair.DamageQuery,
            repair.DamageReply,
            repair.ReplicaStateQuery,
            repair.ReplicaState,
            repair.VerifyFilesQuery,
            repair.VerifyFilesReply,
        ),
        2,
    ),
    fields={
        **{kind: {"caller": commands.CALLER_LEVEL} for kind in CLIENT_COMMANDS},
        commands.AddPartitions: dict.fromkeys(("assignments", "caller"), commands.CALLER_LEVEL),
        commands.RegisterBroker: dict.fromkeys(("levels", "lost_storage", "starts", "stamp"), 2),
        commands.BrokerHeartbeat: dict.fromkeys(("wall_ms", "stamp"), 2),
        commands.HeartbeatAnswered: {"clock_offset_ms": 2},
        ElectLeaders: dict.fromkeys(("by", "via", "at_ms"), 2) | {"caller": commands.CALLER_LEVEL},
        quorum.QuorumDescribed: dict.fromkeys(("remembers", "generation", "recovery_id", "directories", "lacks"), 2),
        quorum.FetchSnapshot: {"header": 2},
        quorum.SnapshotPart: dict.fromkeys(("indexes", "end"), 2),
        paxos.PartitionFrame: {"era": 2},
        paxos.AppliedDurable: {"era": 2},
        paxos.ReadApplied: dict.fromkeys(("era", "takes_rows"), 2),
        paxos.AppliedRead: dict.fromkeys(("producers_size", "damaged_to", "damaged_digest"), 2),
        repair.RecoverQuery: {"aligned_epoch": 2},
        repair.RecoverReply: {"is_aligned": 2},
        forwarding.BatchesRead: {"lost": 2},
        **{kind: {"caller": ACCESS_LEVEL} for kind in rest.INSTANCE_REQUESTS},
        forwarding.ForwardProduce: {"is_own": ACCESS_LEVEL},
        commands.CreateOffsetsTopic: {"name": ACCESS_LEVEL},
        rest.RecordsRead: {"lost": 2},
    },
    values={
        ReportUnfitReplicas: _without_newer_reasons,
        quorum.ElectionFrame: _election_frame_of_level,
        quorum.PaxosFrame: _checked_frame,
        paxos.PartitionFrame: _checked_partition_frame,
    },
)
"""Feature levels from which on newer message types, fields and values may be sent."""


check_complete(PEER_MESSAGES)
check_paired(PEER_MESSAGES)

REASONS: Final[Mapping[type[TidelogError], str]] = {
    NotAsked: UNREADABLE,
    ForeignSender: SENDER,
    ImplausibleNumber: NUMBER,
    BrokerNotRegistered: UNREGISTERED,
}
"""Metric labels of the errors for which messages of other brokers are refused."""
REFUSED: Final = (NotAsked, ForeignSender, ImplausibleNumber, BrokerNotRegistered)
COMPLAINT_S: Final = 60.0
"""Seconds between two log lines about refusals for the same reason; all refusals are counted."""


class PeerService:
    """The `PeerHandler` of a broker, which dispatches messages of other brokers. The broker sets its parts when they
    exist."""

    claims: ClaimChecks
    statistics: PeerStatistics
    """Counters of the broker's `PeerNode`, which also count refused messages."""

    metadata: ClusterMetadata
    controller: ActiveController
    channel: ControllerChannel
    routing: Routing
    copies: Copies
    groups: Groups
    rest_consumers: RestConsumers
    verifier: Verifier
    files_verifier: FilesVerifier
    loss_finder: LossFinder
    remains_finder: RemainsFinder

    def __init__(self) -> None:
        self._requests: dict[type[msgspec.Struct], AnswerPeer] = {}
        self._notifications: dict[type[msgspec.Struct], TakeNotice] = {}
        self._complained_s: dict[str, float] = {}

    def add(self, protocol: ProtocolRuntime) -> None:
        """Adds the message handlers of a commit protocol."""
        self._requests |= protocol.requests
        self._notifications |= protocol.notifications

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        """Answers a request of another broker. Raises the error that the other broker gets as its answer."""
        try:
            _check_kind(message, ANSWERED_BY)
            self.claims.check(
                caller, message, is_open=isinstance(message, commands.Command) and not self.controller.decides
            )
            answer = self._requests.get(type(message))
            if answer is not None:
                return await answer(caller, message)
            if isinstance(message, commands.Command):
                return Answer(await self._decided(message))
        except REFUSED as error:
            self._refused(caller, message, error)
            raise
        return await self._answer(message, payload)

    async def _answer(self, message: msgspec.Struct, payload: memoryview) -> Answer:
        answer: msgspec.Struct
        match message:
            case ForwardGroup():
                return await self.groups.handle(message)
            case rest.InstanceRequest():
                return await self.rest_consumers.handle(message)
            case repair.RecoverQuery():
                return self.copies.answer(message)
            case quorum.DescribeSnapshots() | quorum.FetchSnapshot():
                return self.metadata.about_snapshots(message)
            case quorum.DescribeQuorum():
                answer = self.metadata.described()
            case repair.DamageQuery():
                answer = self.loss_finder.answer(message)
            case repair.ReplicaStateQuery():
                answer = self.remains_finder.answer(message)
            case repair.VerifyFilesQuery():
                answer = await self.files_verifier.answer(message)
            case repair.VerifyQuery():
                answer = await self.verifier.answer(message)
            case _:
                return await self.routing.handle(message, payload)
        return Answer(answer)

    async def _decided(self, command: commands.Command) -> commands.CommandAnswer:
        """Decides a command as the controller, or answers with the controller's address, which a broker that was away
        does not know."""
        try:
            return await self.controller.handle(command)
        except NotController:
            elsewhere = self.channel.elsewhere(self.metadata.image)
            if elsewhere is None:
                raise
            return elsewhere

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        """Handles a one-way message of another broker; a refused one is counted and dropped."""
        try:
            _check_kind(message, NOTICED)
            self.claims.check(caller, message)
            self._note(caller, message, payload)
        except REFUSED as error:
            self._refused(caller, message, error)

    def _refused(self, caller: Hello, message: msgspec.Struct, error: TidelogError) -> None:
        """Counts a refused message, and logs it at most every `COMPLAINT_S` seconds for each reason."""
        reason = REASONS[type(error)]
        self.statistics.refused[reason] += 1
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._complained_s.get(reason, -COMPLAINT_S) + COMPLAINT_S:
            self._complained_s[reason] = now_s
            logger.warning(
                "a message of another broker is refused",
                node=caller.node_id,
                incarnation=caller.incarnation,
                message=type(message).__name__,
                reason=str(error),
            )

    def _note(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        take = self._notifications.get(type(message))
        if take is not None:
            take(caller.node_id, message, payload)
        elif isinstance(message, rest.TakeBack):
            self.rest_consumers.take_back(message)
        elif isinstance(message, commands.MetadataApplied | commands.ReportSilence):
            self.controller.noted(message)
        else:
            self.metadata.notified(caller.node_id, message, payload)


def _check_kind(message: msgspec.Struct, kinds: Container[type[msgspec.Struct]]) -> None:
    if type(message) not in kinds:
        raise NotAsked(f"{type(message).__name__} is not to be sent like this; nothing was done")
