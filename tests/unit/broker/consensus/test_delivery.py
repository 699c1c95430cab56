"""What is chosen reaches the state machine in order, with its payload, or through a snapshot."""

from __future__ import annotations

from tidelog.broker.consensus.delivery import Delivery
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Kind, Value


class Log:
    """Payloads that can be read here, where the log begins, and what was delivered."""

    def __init__(self) -> None:
        self.payloads: dict[int, bytes] = {}
        self.floor = 0
        self.lost: set[int] = set()
        self.delivered: list[int] = []
        self.delivery = Delivery(
            0,
            lambda position, value: self.payloads.get(position),
            lambda applied, payload: self.delivered.append(applied.position if payload else -applied.position),
            lambda: self.floor,
            lambda applied: applied.position in self.lost,
        )

    def apply(self, position: int, *, is_here: bool = True, verdict: Verdict = Verdict.APPLIED) -> None:
        if is_here:
            self.payloads[position] = b"records"
        value = Value(Kind.APPEND, birth=1, base_offset=position, count=1, digest=b"digest")
        self.delivery.applied(Applied(position, value, verdict))


def test_a_payload_that_is_lacking_holds_up_those_behind_it() -> None:
    log = Log()
    log.apply(0, is_here=False)
    log.apply(1)
    assert log.delivered == []
    assert log.delivery.needs_snapshot is None, "a peer may send it yet"
    assert log.delivery.is_held_up
    log.payloads[0] = b"records"
    log.delivery.advance()
    assert log.delivered == [0, 1]
    assert not log.delivery.is_held_up


def test_what_is_void_waits_for_nothing() -> None:
    log = Log()
    log.apply(0)
    log.apply(1, is_here=False, verdict=Verdict.VOID)
    log.apply(2)
    assert log.delivered == [0, -1, 2]
    assert not log.delivery.is_held_up


def test_one_that_is_lost_is_delivered_without_in_its_turn() -> None:
    log = Log()
    log.apply(0, is_here=False)
    log.apply(1, is_here=False)
    log.apply(2)
    log.lost = {1}
    log.delivery.advance()
    assert log.delivered == []
    log.payloads[0] = b"records"
    log.delivery.advance()
    assert log.delivered == [0, -1, 2]


def test_a_payload_that_the_log_has_dropped_is_in_a_snapshot_only() -> None:
    log = Log()
    log.apply(0)
    log.apply(1, is_here=False)
    log.apply(2)
    log.floor = 2
    assert log.delivery.needs_snapshot == 2
    log.delivery.installed(2)
    assert log.delivery.needs_snapshot is None
    assert log.delivered == [0, 2]


def test_a_gap_is_bridged_by_a_snapshot() -> None:
    log = Log()
    log.delivery.jumped(5)
    assert log.delivery.needs_snapshot == 5 and log.delivery.is_held_up
    log.apply(5)
    assert log.delivered == []
    log.delivery.installed(5)
    assert log.delivered == [5]
