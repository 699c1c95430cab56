"""Sets of voters, their bytes, and who decides while they change."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.cluster import Voter
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import VotersFound
from tidelog.replication.paxos.numbers import NODE_MAX
from tidelog.replication.paxos.state import Kind, Value
from tidelog.replication.paxos.voters import (
    VOTER_ID_MAX,
    InvalidVoters,
    Membership,
    Phase,
    VoterSet,
    decode_voters,
    encode_voters,
    learner_id,
)
from tidelog.replication.quorum import Joint, Majority, Unanimous


def voter(number: int, node: int | None = None) -> Voter:
    return Voter(number, number if node is None else node, f"disk-{number}", "host", 9000 + number)


def voters(*numbers: int, following: int | None = None) -> VoterSet:
    return VoterSet(tuple(map(voter, numbers)), following if following is not None else max(numbers) + 1)


THREE = voters(1, 2, 3)
FOUR = voters(1, 2, 3, 4)
FOUND = Value(Kind.VOTERS, 7, digest=b"1,2,3,4")


# -- sets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "following", "complaint"),
    [
        ((), 1, "at least one"),
        ((voter(2), voter(1)), 3, "in order"),
        ((voter(1), voter(1, node=2)), 3, "distinct"),
        ((voter(1), voter(2, node=1)), 3, "one voter only"),
        ((voter(0),), 3, "from 1"),
        ((voter(3),), 3, "below 3"),
        ((voter(1, node=-1),), 3, "must be"),
        ((voter(VOTER_ID_MAX + 1),), VOTER_ID_MAX + 2, "voter ids"),
    ],
)
def test_what_is_no_set_of_voters(members: tuple[Voter, ...], following: int, complaint: str) -> None:
    with pytest.raises(InvalidVoters, match=complaint):
        VoterSet(members, following)


def test_a_voter_is_one_disk_of_one_node() -> None:
    assert THREE.find(2, "disk-2") == voter(2)
    assert THREE.find(2, "disk-9") is None
    assert THREE.majority.members == (1, 2, 3)
    assert learner_id(0) > NODE_MAX > VOTER_ID_MAX


def test_one_more_one_less_one_for_another() -> None:
    assert THREE.with_change(add=voter(4)) == FOUR
    assert FOUR.with_change(remove=4) == voters(1, 2, 3, following=5), "an id is never given again"
    swapped = THREE.with_change(add=voter(5, node=3), remove=3)
    assert (swapped.ids, swapped.next_voter_id) == ((1, 2, 5), 6)


@pytest.mark.parametrize(
    ("add", "remove", "complaint"),
    [
        (voter(9, node=1), None, "one voter only"),
        (voter(3), 3, "may have been another's"),
        (None, 9, "not among"),
    ],
)
def test_what_is_no_change(add: Voter | None, remove: int | None, complaint: str) -> None:
    with pytest.raises(InvalidVoters, match=complaint):
        THREE.with_change(add=add, remove=remove)
    with pytest.raises(InvalidVoters, match="at least one"):
        voters(1).with_change(remove=1)


@pytest.mark.parametrize(
    ("to", "complaint"),
    [
        (voters(1, 2, 3, 4, 5), "one at a time"),
        (voters(1), "one at a time"),
        (voters(1, 4, 5), "one at a time"),
        (THREE, "already"),
        (VoterSet((voter(1), voter(2), voter(9, node=3)), 10).with_change(remove=2), "one at a time"),
        (VoterSet((voter(1), voter(2), Voter(3, 3, "another disk", "host", 1)), 4), "another disk"),
        (voters(1, 2, following=3), "not given again"),
    ],
)
def test_what_is_no_step(to: VoterSet, complaint: str) -> None:
    with pytest.raises(InvalidVoters, match=complaint):
        THREE.check_step(to)


def test_a_new_voter_has_a_new_id() -> None:
    present = voters(1, 2, following=4)
    with pytest.raises(InvalidVoters, match="4 or larger"):
        present.check_step(voters(1, 2, 3))
    present.check_step(voters(1, 2, 4))


def test_a_voter_may_move() -> None:
    THREE.check_step(VoterSet((voter(1), voter(2), Voter(3, 3, "disk-3", "elsewhere", 1)), 4))


# -- bytes -----------------------------------------------------------------------------------------------------------

sets = st.builds(
    lambda numbers, gap, host: VoterSet(
        tuple(Voter(n, n * 3, f"d{n}", host, n) for n in sorted(numbers)), max(numbers) + 1 + gap
    ),
    st.sets(st.integers(1, 1000), min_size=1, max_size=7),
    st.integers(0, 9),
    st.text(max_size=20),
)


@given(sets)
def test_bytes_come_back_as_the_same_voters(some: VoterSet) -> None:
    assert decode_voters(encode_voters(some)) == some


@given(sets, st.data())
def test_damaged_bytes_are_refused_or_are_other_voters(some: VoterSet, data: st.DataObject) -> None:
    content = bytearray(encode_voters(some))
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(InvalidVoters):
        assert encode_voters(decode_voters(bytes(content))) == bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"voters",
        encode_voters(THREE) + b"\0",
        encode_voters(THREE)[:-1],
        msgspec.msgpack.encode((2, THREE)),
        msgspec.msgpack.encode((1, ([], 4))),
        msgspec.msgpack.encode((1, ([[1, 1, "d", "h", 1, "more"]], 4))),
        msgspec.msgpack.encode((1, ([[1, 1, "d", "h", "1"]], 4))),
        b"\x92\xcc\x01" + encode_voters(THREE)[2:],
    ],
    ids=["empty", "text", "longer", "shorter", "format", "nobody", "field", "type", "not canonical"],
)
def test_what_is_no_encoding(content: bytes) -> None:
    with pytest.raises(InvalidVoters):
        decode_voters(content)


# -- who decides -----------------------------------------------------------------------------------------------------


def groups(membership: Membership) -> list[tuple[int, ...]]:
    quorum = membership.quorum()
    if isinstance(quorum, Joint):
        return [part.members for part in quorum.quorums]
    assert isinstance(quorum, Majority)
    return [quorum.members]


def test_the_newest_voters_applied_decide() -> None:
    membership = Membership(THREE)
    assert (groups(membership), membership.position, membership.is_settled) == ([(1, 2, 3)], -1, True)
    assert not membership.on_applied(4, None, Verdict.APPLIED)
    assert membership.on_applied(5, FOUR, Verdict.APPLIED)
    assert (groups(membership), membership.position, membership.voters) == ([(1, 2, 3, 4)], 5, FOUR)
    told = membership.reconfigure(2)
    assert (told.node, told.quorum.members, told.position, told.settling) == (2, (1, 2, 3, 4), 5, ())
    assert not membership.on_applied(5, THREE, Verdict.APPLIED), "a position is applied once"


def test_an_id_is_used_up_when_other_voters_have_come_after_it() -> None:
    membership = Membership(THREE)
    assert not membership.is_used_up(4, 4, "another disk"), "it is the next one's"
    assert membership.is_used_up(2, 2, "another disk")
    assert not membership.is_used_up(2, 2, "disk-2"), "it is in force"


def test_void_voters_decide_nothing() -> None:
    membership = Membership(THREE)
    assert not membership.on_applied(5, FOUR, Verdict.VOID)
    assert (groups(membership), membership.position) == ([(1, 2, 3)], -1)


def test_voters_found_decide_with_the_old_until_their_position_is_applied() -> None:
    membership = Membership(THREE)
    assert membership.on_found(5, FOUND, FOUR)
    assert not membership.on_found(5, FOUND, FOUR), "once is enough"
    assert groups(membership) == [(1, 2, 3), (1, 2, 3, 4)]
    assert membership.reconfigure(1).settling == (VotersFound(5, FOUND),)
    assert (membership.reconfigure(1).position, membership.is_settled) == (-1, False)
    assert not membership.on_applied(4, None, Verdict.APPLIED)
    assert membership.on_applied(5, None, Verdict.NOTHING), "something else was chosen there"
    assert (groups(membership), membership.is_settled) == ([(1, 2, 3)], True)


def test_several_that_are_found_decide_together() -> None:
    membership = Membership(THREE)
    other = Value(Kind.VOTERS, 9, digest=b"1,2")
    membership.on_found(5, FOUND, FOUR)
    membership.on_found(6, other, voters(1, 2, following=5))
    assert groups(membership) == [(1, 2, 3), (1, 2, 3, 4), (1, 2)]
    assert membership.on_applied(5, FOUR, Verdict.APPLIED)
    assert groups(membership) == [(1, 2, 3, 4), (1, 2)]
    assert membership.reconfigure(1).settling == (VotersFound(6, other),)


def test_voters_that_are_found_twice_decide_once() -> None:
    membership = Membership(THREE)
    membership.on_found(5, FOUND, FOUR)
    membership.on_found(6, Value(Kind.VOTERS, 9, digest=b"1,2,3"), voters(1, 2, 3, following=5))
    assert groups(membership) == [(1, 2, 3), (1, 2, 3, 4)]


def test_all_who_are_left_decide_together_until_they_have_agreed_on_voters() -> None:
    membership = Membership(THREE, since=50)
    assert (membership.is_union, membership.is_settled) == (True, False)
    assert isinstance(membership.quorum(), Unanimous)
    told = membership.reconfigure(1)
    assert not told.in_force.is_met({1, 2})
    assert told.in_force.is_met({1, 2, 3})
    assert membership.on_applied(5, FOUR, Verdict.APPLIED)
    assert (membership.is_union, groups(membership), membership.is_settled) == (False, [(1, 2, 3, 4)], True)


def test_what_was_applied_already_is_not_found() -> None:
    membership = Membership(FOUR, 5)
    assert not membership.on_found(5, FOUND, FOUR)


def test_voters_that_cannot_be_read_keep_everybody_from_being_elected() -> None:
    membership = Membership(THREE)
    membership.on_unread(5)
    assert not membership.is_known
    assert not membership.is_settled
    assert membership.on_applied(5, FOUR, Verdict.APPLIED), "the payload has come"
    assert membership.is_known


def test_a_jump_needs_a_snapshot() -> None:
    membership = Membership(THREE)
    membership.on_found(5, FOUND, FOUR)
    membership.on_jumped(10)
    assert not membership.is_known
    assert groups(membership) == [(1, 2, 3)], "what was found lies below"
    assert membership.on_snapshot(FOUR, 5, 10)
    assert (membership.is_known, groups(membership), membership.position) == (True, [(1, 2, 3, 4)], 5)
    membership.on_jumped(20)
    assert not membership.on_snapshot(FOUR, 5, 15), "older than the jump"
    assert not membership.is_known
    assert not membership.on_snapshot(FOUR, 5, 20), "nothing new"
    assert membership.is_known


# -- a change --------------------------------------------------------------------------------------------------------


def test_a_change_goes_step_by_step() -> None:
    membership = Membership(THREE)
    assert membership.changing_under == 0
    membership.begin(FOUR, 100)
    assert membership.changing_under == 100
    assert (membership.phase, groups(membership)) == (Phase.DRAINING, [(1, 2, 3)])
    assert membership.voter_of(4, "disk-4") == voter(4)
    assert membership.join(200) == FOUR
    assert membership.changing_under == 200
    assert (membership.phase, groups(membership)) == (Phase.JOINING, [(1, 2, 3), (1, 2, 3, 4)])
    assert not membership.on_lost(100), "the term that was drained ends, as it must"
    assert membership.write(150) is None, "another attempt's"
    assert membership.write(200) == FOUR
    assert membership.write(200) is None, "once"
    assert membership.phase is Phase.WRITING
    assert membership.on_applied(9, FOUR, Verdict.APPLIED)
    assert (membership.phase, groups(membership), membership.is_settled) == (None, [(1, 2, 3, 4)], True)
    assert not membership.on_lost(200)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_change_ends_with_its_leader(steps: int) -> None:
    membership = Membership(THREE)
    membership.begin(FOUR, 100)
    if steps > 1:
        membership.join(200)
    if steps > 2:
        membership.write(200)
    assert membership.on_lost(100 if steps == 1 else 200) == (steps > 1), "others decide again, if they did"
    assert (membership.phase, groups(membership)) == (None, [(1, 2, 3)])


def test_there_is_one_change_at_a_time() -> None:
    membership = Membership(THREE)
    membership.begin(FOUR, 100)
    with pytest.raises(InvalidVoters, match="not settled"):
        membership.begin(voters(1, 2, following=4), 100)
    found = Membership(THREE)
    found.on_found(5, FOUND, FOUR)
    with pytest.raises(InvalidVoters, match="not settled"):
        found.begin(FOUR, 100)
    unread = Membership(THREE)
    unread.on_unread(5)
    with pytest.raises(InvalidVoters, match="not settled"):
        unread.begin(FOUR, 100)


def test_a_change_is_one_step() -> None:
    membership = Membership(THREE)
    with pytest.raises(InvalidVoters, match="one at a time"):
        membership.begin(voters(1, 2, 3, 4, 5), 100)
    assert membership.phase is None
