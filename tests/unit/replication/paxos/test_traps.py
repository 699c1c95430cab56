"""The traps in Mesos' log that a reader of its documentation misses, E1 to E11: not here."""

from __future__ import annotations

import msgspec
import pytest

from tests.golden.paxos.stage import Stage
from tidelog.replication.paxos.events import Lost, Persist, Refused, Send, StoreFailed, Timer
from tidelog.replication.paxos.messages import Message, PromiseRequest, WriteRequest
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.numbers import make_number
from tidelog.replication.paxos.state import NOP, Kind, Metadata, Prefix, Slot, Status, StoredLog, Value
from tidelog.replication.quorum import Majority


@pytest.fixture
def stage() -> Stage:
    """Three nodes; node 1 is elected, and everybody has applied its barrier."""
    made = Stage(3)
    made.elect(1)
    made.run()
    made.news()
    return made


def test_e1_a_rejected_coordinator_is_gone_and_never_writes_under_its_rivals_number(stage: Stage) -> None:
    stage.elect(3)
    stage.run(2, 3)
    stage.append(1, "a")
    stage.deliver(1, 2)
    stage.deliver(2, 1)
    assert stage.nodes[1].coordinator is None
    stage.news()
    stage.append(1, "b")
    stage.fire(1, Timer.RESEND)
    assert [news for news in stage.news() if news.startswith("1")] == ["1 refused append b of 1: not_coordinator"]


@pytest.mark.parametrize("message", ["promise", "write"])
def test_e2_a_quorum_that_ignores_is_asked_again(message: str) -> None:
    stage = Stage(3)
    stage.elect(1)
    if message == "write":
        stage.deliver(1, 2)
        stage.deliver(2, 1)
    lost = {2: stage.disks[2].load(), 3: stage.disks[3].load()}
    for node in lost:
        stage.nodes[node] = PaxosNode(node, stage.quorum, StoredLog(Metadata("other")), window=4)
    stage.run()
    assert stage.news() == []
    for node, log in lost.items():
        stage.nodes[node] = PaxosNode(node, stage.quorum, log, window=4)
    stage.fire(1, Timer.RESEND)
    stage.run()
    assert "1 elected 1.1, barrier 0, next offset 0" in stage.news()


def test_e3_nothing_is_readable_beyond_a_hole_at_the_end_of_a_range(stage: Stage) -> None:
    """Reads end where in-order apply does; a peer is told what is learned, and that it ends there."""
    stage.append(1, "a")
    stage.append(1, "b")
    stage.drop(1, 2, 1)
    stage.run(1, 2)
    replica = stage.nodes[2].replica
    assert stage.learned(2) == {0: "barrier", 2: "b"}
    assert replica.applied.position == 1


def test_e4_no_lost_message_stops_an_election_or_an_append() -> None:
    stage = Stage(3)
    stage.elect(1)
    for _ in range(4):  # promises, their answers, writes, their answers
        stage.drop_all()
        stage.fire(1, Timer.RESEND)
        stage.deliver(1, 2)
        stage.deliver(2, 1)
    assert stage.nodes[1].coordinator is not None
    stage.append(1, "a")
    stage.drop_all()
    stage.fire(1, Timer.RESEND)
    stage.run()
    assert stage.learned(1) == {0: "barrier", 1: "a"}


def test_e4_a_caller_can_give_up_and_start_over() -> None:
    stage = Stage(3)
    stage.elect(1)
    assert stage.demote(1) == [Lost(make_number(1, 1), make_number(1, 1))]
    stage.elect(1)
    stage.run()
    assert "1 elected 2.1, barrier 0, next offset 0" in stage.news()


def test_e5_two_of_four_are_no_quorum() -> None:
    stage = Stage(4)
    stage.elect(1)
    stage.run(1, 2)
    assert stage.nodes[1].coordinator is None
    stage.run(1, 2, 3)
    assert stage.nodes[1].coordinator is not None


def test_e6_a_value_whose_choice_only_a_dead_coordinator_knew_is_found_again(stage: Stage) -> None:
    stage.append(1, "a")
    stage.deliver(1, 2)
    stage.drop(1, 3)
    stage.deliver(2, 1)
    assert stage.learned(1) == {0: "barrier", 1: "a"}
    stage.crash(1)
    stage.drop_all()
    stage.elect(3)
    stage.run()
    assert stage.learned(3) == {0: "barrier", 1: "a", 2: "barrier"}


def test_e7_a_disk_that_fails_is_not_silent(stage: Stage) -> None:
    stage.slow.add(1)
    stage.append(1, "a")
    stage.news()
    stage.do(1, StoreFailed())
    assert stage.news() == ["1 lost 1.1, highest 1.1", "1 halted"]
    refused = [effect for effect in stage.elect(1) if isinstance(effect, Refused)]
    assert [effect.reason.name for effect in refused] == ["STORAGE_ERROR"]
    assert not [effect for effect in stage.fire(1, Timer.RESEND) if isinstance(effect, Persist)]


def test_e8_positions_are_as_wide_as_the_format() -> None:
    """Mesos' keys were decimals of a fixed width, and overflowed."""
    far = 2**63 - 2
    floor = Prefix(far, make_number(3, 1), 2**62)
    disk = StoredLog(Metadata("1/1", Status.VOTING), floor)
    node = PaxosNode(1, Majority([1]), disk, window=1)
    actions = node.replica.learn(far, NOP, has_payload=True)
    assert actions
    assert node.replica.applied.position == far + 1
    request = WriteRequest(make_number(2**40, 65535), far, Value(Kind.APPEND, make_number(2**40, 1), 2**62, 5, b"d"))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=Message) == request


def test_e9_what_lies_below_the_floor_at_start_is_garbage() -> None:
    """Left over, because a crash came between a floor and the deletion."""
    floor = Prefix(3, make_number(1, 1), 2)
    slots = (Slot(1, 5, NOP, learned=True), Slot(2, 9, Value(Kind.APPEND, 9, 0, 1, b"x")), Slot(4, 5, NOP))
    node = PaxosNode(1, Majority([1]), StoredLog(Metadata("1/1", Status.VOTING), floor, slots), window=1)
    assert sorted(node.replica.slots) == [4]
    assert (node.replica.begin, node.replica.end) == (3, 5)


@pytest.mark.parametrize("open_slots", [0, 1, 50])
def test_e10_an_election_takes_two_round_trips_however_much_is_open(open_slots: int) -> None:
    stage = Stage(3, window=64)
    stage.elect(1)
    stage.run()
    for number in range(open_slots):
        stage.append(1, str(number))
    stage.drop(1, 3)
    stage.deliver(1, 2)
    stage.crash(1)
    stage.drop_all()
    stage.elect(2)
    trips = 0
    while stage.nodes[2].coordinator is None:
        trips += 1
        stage.deliver(2, 3)
        stage.deliver(3, 2)
    assert trips == 2


def test_e11_position_0_can_be_dropped_and_is_no_hole_then(stage: Stage) -> None:
    stage.truncate(1, 1)
    stage.run()
    replica = stage.nodes[3].replica
    assert (replica.begin, sorted(replica.slots)) == (1, [1])
    requests = [e.message for e in stage.elect(3) if isinstance(e, Send) and isinstance(e.message, PromiseRequest)]
    stage.run()
    assert not requests, "they are sent when the number is durable"
    assert stage.learned(3) == {1: "truncate", 2: "barrier"}
