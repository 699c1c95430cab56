"""An answer is believed as far as a correct broker could have given it, to what was asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.broker.samples import numbers, sample
from tidelog.broker.consensus.messages import DescribeQuorum, FetchSnapshot, QuorumDescribed, SnapshotPart
from tidelog.broker.groups.messages import ForwardGroup, GroupAnswered
from tidelog.broker.isr.replica_messages import FetchReplicas, FetchStatus, PartitionFetched, ReplicasFetched
from tidelog.broker.paxos.journal import Floor
from tidelog.broker.paxos.messages import AppliedRead, ReadApplied
from tidelog.broker.peer_answers import (
    AHEAD_MAX,
    ANSWERED_BY,
    GROUPS_ANSWERED_BY,
    NOTHING,
    NOTIFICATIONS,
    AnswerChecks,
    check_paired,
)
from tidelog.broker.peer_service import PEER_MESSAGES
from tidelog.broker.repair.repair_messages import (
    CheckedFiles,
    Held,
    RecoverQuery,
    RecoverReply,
    RequestedBatch,
    VerifyFilesQuery,
    VerifyFilesReply,
)
from tidelog.broker.routing.forwarding_messages import (
    Addressed,
    BatchesRead,
    Fingerprints,
    ForwardFingerprints,
    ForwardOffsets,
    ForwardRead,
    OffsetsEntry,
    OffsetsFound,
)
from tidelog.controller.commands import (
    AllocateProducerIds,
    BrokerAdmitted,
    BrokerHeartbeat,
    ControllerElsewhere,
    HeartbeatAnswered,
    ProducerIdBlock,
    RegisterBroker,
)
from tidelog.controller.partition_commands import (
    AlterCode,
    AlterMembers,
    AlterPartition,
    IsrAnswer,
    IsrAsked,
    MembersAltered,
    MembersAnswer,
    PartitionsAltered,
)
from tidelog.model import groups
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import ForeignSender, ImplausibleNumber
from tidelog.model.holdings import Holding
from tidelog.model.ids import KEYED_PRODUCER_BIT
from tidelog.model.wire_numbers import INT64_MAX
from tidelog.transport.peer import Answer, Hello
from tidelog.transport.peer.frames import BadFrame

THREE = Hello(3, "process", "c", 41)
POSITION = 100
CHECKS = AnswerChecks(lambda: ClusterImage("c", position=POSITION))
FLOOR = msgspec.msgpack.encode(Floor())
AT = Addressed("t", "id", 0, 1, 50)
ASKED = (*ANSWERED_BY,)
ANSWERS = tuple(dict.fromkeys(kind for kinds in ANSWERED_BY.values() for kind in kinds if kind is not NOTHING))


def answered(kind: Any) -> Any:
    """Returns an answer that is right for what `asked` asks."""
    if kind is NOTHING:
        return None
    fitting: dict[object, dict[str, Any]] = {
        QuorumDescribed: {"node_id": 3},
        AppliedRead: {"floor": FLOOR},
        BrokerAdmitted: {"broker_epoch": 0},
        VerifyFilesReply: {"is_last": True},
        GroupAnswered: {"answer": sample(groups.HeartbeatAnswer)},
    }
    return sample(kind, **fitting.get(kind, {}))


def check(asked: msgspec.Struct, message: Any, body: bytes = b"") -> None:
    CHECKS.check(THREE, asked, Answer(message, (body,) if body else ()))


def isr_asked(partition: int) -> IsrAsked:
    return IsrAsked("id", partition, 1, 1, ())


def isr_answer(partition: int, leader_epoch: int = 1, partition_epoch: int = 2) -> IsrAnswer:
    return IsrAnswer("id", partition, AlterCode.NONE, leader_epoch, partition_epoch)


def fetched(size: int) -> PartitionFetched:
    return PartitionFetched("id", 0, 1, 0, 1, FetchStatus.OK, size, 0, 0)


FIT: tuple[tuple[Any, Any, bytes], ...] = (
    (sample(BrokerHeartbeat), HeartbeatAnswered(POSITION + AHEAD_MAX, False, False), b""),
    (AllocateProducerIds(), ProducerIdBlock(1, 1_000, 1_000), b""),
    (AlterPartition(3, 41, [isr_asked(0), isr_asked(1)]), PartitionsAltered(1, [isr_answer(0), isr_answer(1)]), b""),
    (sample(FetchReplicas), ReplicasFetched((fetched(2), fetched(3))), b"12345"),
    (RecoverQuery("id", 0, (RequestedBatch(0, 1, b""),)), RecoverReply(1, 1, 1, (Held(Holding.HAVE, 2),)), b"12"),
    (FetchSnapshot(), SnapshotPart(header=b"h", count=2), b"12"),
    (sample(ReadApplied), AppliedRead(0, FLOOR, 2), b"123"),
    (VerifyFilesQuery("b"), VerifyFilesReply((CheckedFiles("c", 1, 0, 0), CheckedFiles("d", 1, 0, 0)), False), b""),
    (ForwardRead(AT, 7, 100, 100), BatchesRead(7, 0, 9, 9, 1, 3), b""),
    (ForwardOffsets([(AT, None)], 100), OffsetsFound([OffsetsEntry()]), b""),
    (ForwardFingerprints([AT], 1, 100), Fingerprints([None]), b""),
)
UNFIT: tuple[tuple[Any, Any, bytes], ...] = (
    (sample(BrokerHeartbeat), HeartbeatAnswered(POSITION + AHEAD_MAX + 1, False, False), b""),
    (sample(RegisterBroker), BrokerAdmitted(9, 9, "c"), b""),
    (AllocateProducerIds(), ProducerIdBlock(1, 1_000, 0), b""),
    (AllocateProducerIds(), ProducerIdBlock(1, KEYED_PRODUCER_BIT - 1, 2), b""),
    (AllocateProducerIds(), ControllerElsewhere(1, 2, "10.0.0.2", 0), b""),
    (AllocateProducerIds(), ControllerElsewhere(1, 2, "10.0.0.2", 65_536), b""),
    (AlterPartition(3, 41, [isr_asked(0), isr_asked(1)]), PartitionsAltered(1, [isr_answer(1), isr_answer(0)]), b""),
    (AlterPartition(3, 41, [isr_asked(0)]), PartitionsAltered(1, []), b""),
    (AlterPartition(3, 41, [isr_asked(0)]), PartitionsAltered(1, [isr_answer(0, 2**33)]), b""),
    (AlterPartition(3, 41, [isr_asked(0)]), PartitionsAltered(1, [isr_answer(0, 1, 2**62)]), b""),
    (AlterMembers(3, 41, []), MembersAltered(1, [sample(MembersAnswer)]), b""),
    (sample(FetchReplicas), ReplicasFetched((fetched(2), fetched(4))), b"12345"),
    (sample(FetchReplicas), ReplicasFetched(()), b"1"),
    (RecoverQuery("id", 0, (RequestedBatch(0, 1, b""),)), RecoverReply(1, 1, 1, (Held(Holding.HAVE, 3),)), b"12"),
    (RecoverQuery("id", 0, ()), RecoverReply(1, 1, 1, (Held(Holding.UNKNOWN),)), b""),
    (FetchSnapshot(), SnapshotPart(header=b"h", count=2**40), b"12"),
    (sample(ReadApplied), AppliedRead(0, FLOOR, 4), b"123"),
    (VerifyFilesQuery("b"), VerifyFilesReply((CheckedFiles("b", 1, 0, 0),), False), b""),
    (VerifyFilesQuery("b"), VerifyFilesReply((), False), b""),
    (ForwardRead(AT, 7, 100, 100), BatchesRead(6, 0, 9, 9, 1, 3), b""),
    (ForwardOffsets([(AT, None)], 100), OffsetsFound([]), b""),
    (ForwardFingerprints([AT], 1, 100), Fingerprints([None, None]), b""),
)


@pytest.mark.parametrize("message", PEER_MESSAGES, ids=lambda message: message.__name__)
def test_every_number_of_every_message_has_bounds_that_its_field_can_hold(message: type[msgspec.Struct]) -> None:
    for path, kind in numbers(message):
        assert kind.ge is not None and kind.ge >= -(2**63), f"{path} has no lower bound: take one of wire_numbers"
        assert kind.le is not None and kind.le <= INT64_MAX, f"{path} has no upper bound: take one of wire_numbers"


def test_every_message_is_asked_or_answers_or_is_a_notification() -> None:
    class Forgotten(msgspec.Struct, tag=True):
        pass

    check_paired(PEER_MESSAGES)
    with pytest.raises(TypeError, match="Forgotten is to have one place"):
        check_paired((*PEER_MESSAGES, Forgotten))
    assert {*ASKED, *ANSWERS, *NOTIFICATIONS} == {*PEER_MESSAGES}


@pytest.mark.parametrize("kind", ASKED, ids=lambda kind: kind.__name__)
def test_a_question_takes_its_own_kinds_of_answers_and_no_others(kind: type[msgspec.Struct]) -> None:
    asked = sample(kind)
    for other in (*ANSWERS, NOTHING):
        if other in ANSWERED_BY[kind]:
            check(asked, answered(other))
        else:
            with pytest.raises(BadFrame, match=f"answers no {kind.__name__}"):
                check(asked, answered(other))


def test_what_is_asked_about_groups_takes_one_kind_of_answer_each() -> None:
    kinds = tuple(dict.fromkeys(GROUPS_ANSWERED_BY.values()))
    assert {*GROUPS_ANSWERED_BY} == {*groups.AnyGroupRequest.__args__}
    for request, right in GROUPS_ANSWERED_BY.items():
        for kind in kinds:
            asked, answer = ForwardGroup(AT, sample(request), 100), GroupAnswered(sample(kind))
            if kind is right:
                check(asked, answer)
            else:
                with pytest.raises(BadFrame, match=f"{kind.__name__} answers no {request.__name__}"):
                    check(asked, answer)


@pytest.mark.parametrize(("asked", "message", "body"), FIT, ids=lambda one: type(one).__name__)
def test_what_a_correct_broker_answers_is_believed(asked: Any, message: Any, body: bytes) -> None:
    check(asked, message, body)


@pytest.mark.parametrize(("asked", "message", "body"), UNFIT, ids=lambda one: type(one).__name__)
def test_what_cannot_be_or_was_not_asked_is_not_believed(asked: Any, message: Any, body: bytes) -> None:
    with pytest.raises(ImplausibleNumber):
        check(asked, message, body)


def test_a_broker_describes_itself_and_names_voters_that_can_be_read() -> None:
    check(DescribeQuorum(), answered(QuorumDescribed))
    with pytest.raises(ForeignSender, match="node 3 described node 2 instead of itself"):
        check(DescribeQuorum(), sample(QuorumDescribed, node_id=2))
    with pytest.raises(BadFrame, match="names no voters"):
        check(DescribeQuorum(), sample(QuorumDescribed, node_id=3, voters=b"\x92\x01\xa1\xff"))
    with pytest.raises(BadFrame, match="no beginning of a journal"):
        check(sample(ReadApplied), AppliedRead(0, b"\xc1"))
