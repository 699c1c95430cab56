"""What a member says, what it makes of the answers, and how long it relies on them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tidelog.consumer.membership import LEASE_SHARE, Changes, Membership
from tidelog.model.errors import (
    CoordinatorNotAvailable,
    FencedMember,
    InstanceIdInUse,
    TidelogError,
    UnknownMember,
    UnsupportedAssignor,
)
from tidelog.model.groups import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    CommittedOffset,
    Heartbeat,
    HeartbeatAnswer,
    TopicPartitions,
    grouped,
)
from tidelog.model.ids import TopicPartition
from tidelog.transport.errors import NoAnswer

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
WAIT_MS = 5000


def member(**options: Any) -> Membership:
    return Membership("g", "m", topics=["t"], rebalance_timeout_ms=300_000, **options)


def answer(
    *partitions: TopicPartition, epoch: int = 1, same: bool = False, session_ms: int = 45_000
) -> HeartbeatAnswer:
    return HeartbeatAnswer("m", epoch, 5000, session_ms, None if same else grouped(partitions), coordinator=1)


def beat(it: Membership, now_s: float, *partitions: TopicPartition, epoch: int = 1, same: bool = False) -> Changes:
    it.heartbeat(now_s, WAIT_MS)
    return it.answered(answer(*partitions, epoch=epoch, same=same), now_s)


def joined(*partitions: TopicPartition, **options: object) -> Membership:
    """At time 0, with the coordinator told of all."""
    it = member(**options)
    beat(it, 0, *partitions)
    beat(it, 0, same=True)
    return it


def test_a_join_says_everything_and_does_not_wait() -> None:
    it = Membership(
        "g",
        "m",
        topics=["u", "t", "t"],
        pattern="x.*",
        instance_id="i",
        client_id="c",
        rack="r",
        assignor="range",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
    )
    assert it.heartbeat(0, WAIT_MS) == Heartbeat(
        group="g",
        member_id="m",
        member_epoch=JOIN,
        instance_id="i",
        client_id="c",
        topics=("t", "u"),
        pattern="x.*",
        rack="r",
        assignor="range",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        owned=(),
        wait_ms=0,
    )


def test_what_is_assigned_is_owned_said_once_and_then_polled_for() -> None:
    it = member()
    assert beat(it, 0, T0, T1) == Changes(assigned=(T0, T1))
    assert it.owned == [T0, T1]
    assert it.due_s == -math.inf
    said = it.heartbeat(1, WAIT_MS)
    assert said.owned == (TopicPartitions("t", (0, 1)),)
    assert (said.topics, said.wait_ms, said.member_epoch) == (None, WAIT_MS, 1)
    assert not it.answered(answer(same=True), 1)
    assert it.heartbeat(6, WAIT_MS).owned is None


def test_a_poll_does_not_outlast_the_lease_of_who_is_quick_to_give_up() -> None:
    it = Membership("g", "m", topics=["t"], session_timeout_ms=10_000, rebalance_timeout_ms=600)
    beat(it, 0, T0)
    assert it.heartbeat(0, WAIT_MS).wait_ms == 200


def test_what_is_revoked_is_owned_until_it_is_given_up() -> None:
    it = joined(T0, T1)
    assert beat(it, 1, T0, epoch=2) == Changes(revoked=(T1,))
    assert it.owned == [T0, T1]
    assert it.to_give_up == [T1]
    assert it.due_s == 6, "nothing to say yet, and nothing to poll for"
    assert not beat(it, 6, T0, epoch=2), "it was told once"
    said = it.heartbeat(11, WAIT_MS)
    assert said.wait_ms == 0, "to give it up must not wait for the end of a poll"
    it.answered(answer(T0, epoch=2), 11)
    it.gave_up([T1])
    assert it.due_s == -math.inf
    assert it.heartbeat(12, WAIT_MS).owned == (TopicPartitions("t", (0,)),)


def test_what_was_said_with_an_epoch_of_the_past_is_said_again_and_prolongs_nothing() -> None:
    """The coordinator is in another epoch, and has not taken it for the answer to what it asked to be given up."""
    it = Membership("g", "m", topics=["t"], rebalance_timeout_ms=20_000)
    beat(it, 0, T0, T1)
    beat(it, 0, same=True)
    beat(it, 10, T0, epoch=2)
    it.gave_up([T1])
    beat(it, 11, T0, epoch=3)
    assert it.lease_end_s == 18
    said = it.heartbeat(12, WAIT_MS)
    assert (said.member_epoch, said.owned) == (3, (TopicPartitions("t", (0,)),))
    it.answered(answer(epoch=3, same=True), 12)
    assert it.lease_end_s == 30


def test_what_is_given_back_while_it_is_given_up_is_assigned_anew() -> None:
    it = joined(T0, T1)
    beat(it, 1, T0, epoch=2)
    it.heartbeat(2, WAIT_MS)
    it.gave_up([T1])
    assert it.answered(answer(T0, T1, epoch=3), 2) == Changes(assigned=(T1,))
    assert it.owned == [T0, T1]
    assert not it.to_give_up


def test_giving_up_during_a_heartbeat_is_said_by_the_next() -> None:
    it = joined(T0, T1)
    beat(it, 1, T0, epoch=2)
    it.heartbeat(2, WAIT_MS)
    it.gave_up([T1])
    assert not it.answered(answer(T0, epoch=2), 2)
    assert it.due_s == -math.inf
    assert it.heartbeat(2, WAIT_MS).owned == (TopicPartitions("t", (0,)),)


def test_after_a_lost_answer_all_that_is_owned_is_said_and_nothing_new() -> None:
    it = joined(T0)
    it.heartbeat(1, WAIT_MS)
    it.subscribe(["u"])
    again = it.heartbeat(2, WAIT_MS)
    assert (again.topics, again.pattern, again.owned) == (None, None, (TopicPartitions("t", (0,)),))
    assert again.member_epoch == 1
    assert not it.answered(answer(T0, T1, epoch=2), 1), "an answer to the lost one says nothing any more"
    assert it.owned == [T0]
    assert it.answered(answer(T0, T1, epoch=2), 2) == Changes(assigned=(T1,))
    assert not it.answered(answer(epoch=2), 2), "nor does a second one"
    assert it.heartbeat(3).topics == ("u",)


def test_a_lost_join_is_said_again_as_it_was() -> None:
    it = member(client_id="c")
    assert it.heartbeat(0) == it.heartbeat(1)


def test_a_subscription_is_said_at_once_and_until_it_was_heard() -> None:
    it = joined(T0)
    it.subscribe(["u"], "v.*")
    assert it.due_s == -math.inf
    said = it.heartbeat(1)
    assert (said.topics, said.pattern) == (("u",), "v.*")
    assert it.heartbeat(2).topics is None, "the lost one may have moved the epoch"
    it.answered(answer(T0, epoch=2), 2)
    assert it.due_s == -math.inf
    assert it.heartbeat(3).topics == ("u",)
    it.subscribe(["w"])
    it.answered(answer(T0, epoch=2), 3)
    assert it.due_s == -math.inf
    said = it.heartbeat(4)
    assert (said.topics, said.pattern) == (("w",), "")
    it.answered(answer(T0, epoch=2), 4)
    assert it.heartbeat(5).topics is None


def test_a_poll_that_ends_early_for_nothing_is_not_repeated_at_once() -> None:
    it = joined(T0)
    beat(it, 10, same=True)
    assert it.due_s == 15
    beat(it, 15, same=True, epoch=2)
    assert it.due_s == -math.inf, "a new epoch is news"
    it.heartbeat(20)
    it.answered(answer(same=True, epoch=2), 20)
    assert it.due_s == 25, "who does not poll beats at intervals"


def test_an_assignment_that_is_what_was_said_is_not_answered_for_ever() -> None:
    it = joined(T0)
    beat(it, 1, T0)
    assert it.due_s == 6
    assert it.heartbeat(6, WAIT_MS).owned == (TopicPartitions("t", (0,)),)
    it.answered(answer(T0), 6)
    assert it.heartbeat(11, WAIT_MS).owned is None


# -- the lease ---------------------------------------------------------------------------------------------------


def test_the_lease_counts_from_when_the_last_answered_heartbeat_was_sent() -> None:
    it = member()
    it.heartbeat(0)
    assert not it.may_deliver(0)
    it.answered(answer(T0), 0)
    assert it.lease_end_s == pytest.approx(45 * LEASE_SHARE)
    it.heartbeat(10)
    assert it.lease_end_s == pytest.approx(45 * LEASE_SHARE), "sent is not heard"
    it.failed(NoAnswer("lost"), 20)
    it.heartbeat(30)
    it.answered(answer(same=True), 30)
    assert it.may_deliver(70)
    assert not it.may_deliver(71)


def test_the_lease_ends_before_the_coordinators_patience_with_what_is_not_given_up() -> None:
    it = Membership("g", "m", topics=["t"], rebalance_timeout_ms=60_000)
    beat(it, 0, T0, T1)
    beat(it, 5, same=True)
    for now_s in (10, 30, 50):
        beat(it, now_s, T0, epoch=2)
    assert it.lease_end_s == pytest.approx(5 + 60 * LEASE_SHARE)
    it.gave_up([T1])
    beat(it, 55, same=True, epoch=2)
    assert it.lease_end_s == pytest.approx(55 + 45 * LEASE_SHARE)


def test_a_repeated_join_has_no_lease_before_the_coordinator_has_counted_what_is_owned() -> None:
    """It may have been told to give something up meanwhile, and not have heard it."""
    it = Membership("g", "m", topics=["t"], rebalance_timeout_ms=60_000)
    it.heartbeat(0, WAIT_MS)
    beat(it, 5, T0)
    assert not it.may_deliver(5)
    said = it.heartbeat(6, WAIT_MS)
    assert (said.owned, said.wait_ms) == (grouped([T0]), 0), "which is asked for at once"
    it.answered(answer(same=True), 6)
    assert it.lease_end_s == pytest.approx(6 + 45 * LEASE_SHARE)
    assert it.heartbeat(6, WAIT_MS).wait_ms == WAIT_MS


# -- failures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [UnknownMember("who?"), FencedMember("too old")])
def test_who_was_expelled_has_lost_everything_and_joins_as_somebody_else(error: TidelogError) -> None:
    it = joined(T0, T1)
    beat(it, 1, T0, epoch=2)
    it.commit([CommittedOffset("t", 0, 5)])
    it.heartbeat(2, WAIT_MS)
    assert it.failed(error, 3) == Changes(lost=(T0, T1))
    assert it.is_out
    assert not it.owned
    assert not it.may_deliver(3)
    assert it.leave() is None
    it.rejoin("m2")
    join = it.heartbeat(4, WAIT_MS)
    assert (join.member_id, join.member_epoch, join.topics, join.owned) == ("m2", JOIN, ("t",), ())


@pytest.mark.parametrize("error", [CoordinatorNotAvailable("not now"), NoAnswer("lost")])
def test_what_passes_changes_nothing(error: TidelogError) -> None:
    it = joined(T0)
    it.heartbeat(1, WAIT_MS)
    assert not it.failed(error, 2)
    assert not it.is_out
    assert it.owned == [T0]
    assert it.may_deliver(2)


def test_a_lasting_error_ends_the_membership() -> None:
    it = member()
    it.heartbeat(0)
    assert not it.failed(UnsupportedAssignor("no such"), 1)
    assert it.is_out


def test_a_predecessor_that_crashed_is_outlived() -> None:
    it = member(instance_id="i", session_timeout_ms=9000)
    it.heartbeat(0)
    it.failed(InstanceIdInUse("it is"), 1)
    assert not it.is_out
    it.heartbeat(10)
    it.failed(InstanceIdInUse("it is"), 10.9)
    assert not it.is_out
    it.heartbeat(11)
    it.failed(InstanceIdInUse("it is"), 11.1)
    assert it.is_out


# -- leaving and committed offsets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, LEAVE), ("i", LEAVE_STATIC)])
def test_leaving_is_said_once_and_owns_nothing(instance_id: str | None, epoch: int) -> None:
    it = joined(T0, instance_id=instance_id)
    assert it.leave() == Heartbeat(group="g", member_id="m", member_epoch=epoch, instance_id=instance_id)
    assert not it.owned
    assert it.is_out
    assert it.leave() is None


def test_who_never_asked_to_join_has_nothing_to_leave() -> None:
    assert member().leave() is None


def test_who_is_out_is_asked_to_rejoin_first() -> None:
    it = joined()
    it.leave()
    with pytest.raises(AssertionError, match="rejoin"):
        it.heartbeat(1)


def test_commits_are_numbered_and_carry_the_epoch() -> None:
    it = joined(T0)
    committed = CommittedOffset("t", 0, 7)
    first, second = it.commit([committed]), it.commit([committed])
    assert (first.sequence, second.sequence) == (1, 2)
    assert (second.group, second.member_id, second.member_epoch, second.offsets) == ("g", "m", 1, (committed,))
    asked = it.fetch(grouped([T1, T0]))
    assert (asked.member_id, asked.member_epoch, asked.partitions) == ("m", 1, (TopicPartitions("t", (0, 1)),))
