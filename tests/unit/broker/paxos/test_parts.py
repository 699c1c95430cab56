"""The parts of a Paxos partition that decide by themselves: numbers, journal space, who voted where, who waits."""

from __future__ import annotations

import msgspec
import pytest

from tidelog.broker.consensus.inflight import InFlightProposal, InFlightProposals
from tidelog.broker.partitions.proposals import Proposal
from tidelog.broker.paxos.ballots import ATTEMPTS_MAX, epoch_of, number_of
from tidelog.broker.paxos.journal import VoterHistory, decode_floor
from tidelog.broker.paxos.journal_truncation import JournalBounds, JournalTruncation, JournalUsage
from tidelog.model.cluster import Voter
from tidelog.model.errors import LeaderNotAvailable
from tidelog.replication.paxos.numbers import owner_of
from tidelog.replication.paxos.state import Kind, Prefix, Value
from tidelog.replication.paxos.voters import VoterSet
from tidelog.replication.quorum import Majority

ALL = Majority((1, 2, 3))
SMALL = JournalUsage(0, 0)


def voters(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(one, one, "", "", 0) for one in ids), max(ids) + 1)


def test_a_later_epoch_makes_every_number_larger() -> None:
    assert number_of(5, ATTEMPTS_MAX, 9) < number_of(6, 1, 1)
    assert number_of(5, 1, 9) < number_of(5, 2, 1)
    assert epoch_of(number_of(7, 3, 2)) == 7 and owner_of(number_of(7, 3, 2)) == 2
    assert epoch_of(number_of(0, 1, 1)) == 0


@pytest.mark.parametrize(
    ("durable", "live", "usage", "covered"),
    [
        ({1: 30, 2: 20, 3: 10}, [1, 2, 3], SMALL, 10),
        ({1: 30, 2: 20, 3: 10}, [1, 2], SMALL, 20),
        ({1: 30, 2: 20, 3: 10}, [1], SMALL, 20),
        ({1: 30, 2: 20}, [1, 2, 3], SMALL, 0),
        ({1: 30, 2: 20}, [1, 2, 3], JournalUsage(4_001, 0), 20),
        ({1: 30, 2: 20}, [1, 2, 3], JournalUsage(0, 401), 20),
        ({1: 30}, [1], SMALL, 0),
    ],
)
def test_no_more_may_go_than_a_quorum_and_all_live_ones_have(
    durable: dict[int, int], live: list[int], usage: JournalUsage, covered: int
) -> None:
    truncation = JournalTruncation(JournalBounds(bytes_max=1_000, slots_max=100))
    for engine_id, offset in durable.items():
        truncation.heard(engine_id, offset)
    assert truncation.covered(ALL, live, usage) == covered


def test_what_a_truncate_could_not_give_back_is_not_asked_for_again_at_once() -> None:
    truncation = JournalTruncation(JournalBounds(bytes_max=1_000, slots_max=100))
    assert not truncation.is_due(JournalUsage(1_000, 100))
    assert truncation.is_due(JournalUsage(1_001, 0)) and truncation.is_due(JournalUsage(0, 101))
    truncation.truncated(JournalUsage(0, 200))
    assert not truncation.is_due(JournalUsage(0, 300)) and truncation.is_due(JournalUsage(0, 301))
    assert truncation.is_worth_it(25, JournalUsage(0, 100)) and not truncation.is_worth_it(24, JournalUsage(0, 100))


def test_a_floor_names_who_voted_there_and_nobody_if_that_was_not_seen() -> None:
    history = VoterHistory(0, voters(1, 2, 3), -1)
    membership = history.membership(voters(1, 2, 3))
    for position in range(10):
        history.seen(position)
    membership.on_snapshot(voters(1, 2, 4), 5, 6)
    history.note(membership)
    before = history.floor(Prefix(5, 1, 4))
    assert before.voters_position == -1 and before.voters
    behind = history.floor(Prefix(6, 1, 4))
    assert behind.voters_position == 5
    jumped = history.floor(Prefix(11, 1, 9))
    assert not jumped.voters and jumped.next_offset == 9
    history.installed(voters(1, 5, 6), 10, 11)
    assert history.floor(Prefix(11, 1, 9)).voters_position == 10


def test_who_does_not_know_the_voters_is_no_candidate() -> None:
    assert VoterHistory(0, voters(1, 2, 3), -1).membership(voters(9)).is_known
    for floor in (0, 7):
        membership = VoterHistory(floor, None, -1).membership(voters(1, 2, 3))
        assert not membership.is_known
        membership.on_snapshot(voters(1, 2, 3), -1, max(1, floor))
        assert membership.is_known


def test_a_floor_without_voters_can_be_read() -> None:
    floor = decode_floor(msgspec.msgpack.encode(Prefix(3, 2, 1)))
    assert (floor.position, floor.next_offset, floor.voters, floor.voters_position) == (3, 1, b"", -1)


def test_a_repeat_waits_with_the_original() -> None:
    in_flight = InFlightProposals[Proposal]()
    for position, base_offset in ((4, 10), (5, 12)):
        in_flight.add(position, InFlightProposal(Value(Kind.APPEND, 1, base_offset, 2)))
    repeat = Proposal([], -1, 1.0, None)
    original = in_flight.reaching(12)
    assert original is not None
    original.waiters.append(repeat)
    first = in_flight.take(4)
    assert first is original and first.take_waiters() == [repeat] and not first.waiters
    assert in_flight.reaching(15) is None and in_flight.take(4) is None and len(in_flight) == 1


def test_values_in_flight_are_counted_until_they_are_chosen_or_applied() -> None:
    in_flight = InFlightProposals[Proposal]()
    for position in (4, 5, 6):
        in_flight.add(position, InFlightProposal(Value(Kind.APPEND, 1, position, 1), size=100))
    in_flight.chosen(5, (1, 2))
    in_flight.chosen(5, (1, 2, 3))
    assert (in_flight.unchosen, in_flight.size) == (2, 300)
    in_flight.take(4)
    in_flight.take(5)
    assert (in_flight.unchosen, in_flight.size, len(in_flight)) == (1, 100, 1)
    in_flight.fail(LeaderNotAvailable("over"))
    assert (in_flight.unchosen, in_flight.size, len(in_flight)) == (0, 0, 0)
