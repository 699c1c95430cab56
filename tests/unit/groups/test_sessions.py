"""Deadlines of members."""

from __future__ import annotations

from random import Random

from tests.unit.groups.desk import Desk, Member, replayed, settle
from tidelog.groups.sessions import Sessions
from tidelog.model.groups import TopicPartitions


def test_who_is_not_heard_of_for_its_session_expires() -> None:
    sessions = Sessions()
    sessions.heard("g", "m1", 10_000, 0.0)
    sessions.heard("g", "m2", 20_000, 0.0)
    sessions.heard("h", "m1", 10_000, 5.0)
    assert sessions.next_s() == 10.0
    assert sessions.expired(9.9) == []
    sessions.heard("g", "m1", 10_000, 9.9)
    assert sessions.next_s() == 15.0
    assert sessions.expired(20.0) == [("g", "m1"), ("g", "m2"), ("h", "m1")]
    assert sessions.next_s() is None
    assert sessions.expired(99.0) == []


def test_who_is_forgotten_does_not_expire_and_may_come_back() -> None:
    sessions = Sessions()
    sessions.heard("g", "m1", 10_000, 0.0)
    sessions.forget("g", "m1")
    sessions.forget("g", "m2")
    assert sessions.next_s() is None
    sessions.heard("g", "m1", 10_000, 1.0)
    assert sessions.expired(10.5) == []
    assert sessions.expired(11.0) == [("g", "m1")]


def test_a_session_may_become_shorter() -> None:
    sessions = Sessions()
    sessions.heard("g", "m1", 60_000, 0.0)
    sessions.heard("g", "m1", 10_000, 1.0)
    assert sessions.next_s() == 11.0
    assert sessions.expired(11.0) == [("g", "m1")]
    assert sessions.expired(60.0) == []


def test_who_keeps_what_it_was_told_to_give_up_expires_though_it_is_heard(desk: Desk) -> None:
    sessions = Sessions()

    def beat(at_s: float, epoch: int, **more: object) -> None:
        desk.beat("m1", epoch, **more)
        sessions.follow(desk.shard, "g", "m1", desk.settings, at_s)

    everything = (TopicPartitions("t", (0, 1, 2, 3)),)
    beat(0.0, 0, topics=("t",), rebalance_timeout_ms=20_000)
    desk.join("m2", "t")
    beat(1.0, 1, owned=everything)
    beat(15.0, 2, owned=everything)
    assert sessions.next_s() == 21.0
    assert sessions.expired(21.0) == [("g", "m1")]
    assert sessions.next_s() is None

    beat(22.0, 2, owned=everything)
    beat(23.0, 2, owned=(TopicPartitions("t", (0, 1)),))
    assert sessions.next_s() == 68.0, "it has given up, and only its session counts"


def test_another_revocation_has_its_own_time(desk: Desk) -> None:
    sessions = Sessions()
    sessions.giving_up("g", "m1", 2, 10_000, 0.0)
    sessions.giving_up("g", "m1", 2, 10_000, 5.0)
    sessions.giving_up("g", "m1", 3, 10_000, 6.0)
    assert sessions.next_s() == 16.0
    sessions.gave_up("g", "m1")
    sessions.giving_up("g", "m1", 3, 10_000, 7.0)
    assert sessions.next_s() == 17.0


def test_who_leaves_is_forgotten(desk: Desk) -> None:
    sessions = Sessions()
    desk.join("m1", "t")
    sessions.follow(desk.shard, "g", "m1", desk.settings, 0.0)
    assert sessions.next_s() == 45.0
    desk.leave("m1")
    sessions.follow(desk.shard, "g", "m1", desk.settings, 1.0)
    assert sessions.next_s() is None
    sessions.follow(desk.shard, "no group", "m1", desk.settings, 1.0)


def test_a_coordinator_that_takes_over_gives_everybody_a_full_session(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t", session_timeout_ms=6_000)
    settle(m1)
    Member(desk, "m2", "t", rebalance_timeout_ms=1)
    m1.beat()
    sessions = Sessions.of(replayed(desk.log), desk.settings, 100.0)
    assert sessions.expired(105.9) == []
    assert sessions.expired(106.0) == [("g", "m1")]
    assert sessions.expired(145.0) == [("g", "m2")]


def test_as_a_list_of_deadlines_would() -> None:
    """The heap against the plain thing."""
    dice = Random(7)
    for _ in range(50):
        sessions, plain, now_s = Sessions(), dict[tuple[str, str], float](), 0.0
        for _ in range(200):
            now_s += dice.random()
            key = "g", f"m{dice.randrange(5)}"
            if dice.random() < 0.6:
                timeout_ms = dice.choice([500, 1_000, 3_000])
                sessions.heard(*key, timeout_ms, now_s)
                plain[key] = now_s + timeout_ms / 1000
            elif dice.random() < 0.3:
                sessions.forget(*key)
                plain.pop(key, None)
            assert sessions.next_s() == min(plain.values(), default=None)
            due = sorted(key for key, due_s in plain.items() if due_s <= now_s)
            if dice.random() < 0.5:
                assert sessions.expired(now_s) == due
                for key in due:
                    del plain[key]
