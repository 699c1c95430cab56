"""Who was heard when."""

from __future__ import annotations

from tests.unit.controller.cluster import Cluster
from tidelog.controller.commands import FenceBroker
from tidelog.controller.sessions import Sessions
from tidelog.controller.upkeep import overdue
from tidelog.model.ids import NodeId

ONE = NodeId(1)


def started() -> tuple[Cluster, Sessions, int]:
    cluster = Cluster()
    cluster.start(1, 2)
    sessions = Sessions(9_000)
    sessions.begin(cluster.image, 100.0)
    return cluster, sessions, cluster.image.brokers[ONE].epoch


def test_a_session_ends_when_nothing_was_heard_for_its_time() -> None:
    cluster, sessions, epoch = started()
    sessions.heard(1, epoch, 105.0, position=1)
    assert sessions.expired(cluster.image, 108.9) == []
    assert [node for node, _ in sessions.expired(cluster.image, 109.0)] == [2]
    assert overdue(cluster.image, sessions, 114.0) == [FenceBroker(1, epoch), FenceBroker(2, epoch + 2)]


def test_a_fenced_broker_has_no_session_to_lose() -> None:
    cluster, sessions, epoch = started()
    cluster.do(FenceBroker(1, epoch))
    assert [node for node, _ in sessions.expired(cluster.image, 200.0)] == [2]


def test_a_new_registration_begins_a_session_and_the_old_process_cannot_feed_it() -> None:
    cluster, sessions, old = started()
    new = cluster.register(1, process="q")
    sessions.follow(cluster.image, 107.0)
    sessions.heard(1, old, 110.0, position=50)
    session = sessions.of(1)
    assert session is not None
    assert (session.broker_epoch, session.heard_s, session.position) == (new, 107.0, 0)


def test_a_new_controller_gives_everybody_a_whole_session() -> None:
    cluster, sessions, _ = started()
    sessions.begin(cluster.image, 500.0)
    assert sessions.expired(cluster.image, 508.0) == []


def test_what_comes_late_takes_nothing_back() -> None:
    _, sessions, epoch = started()
    sessions.heard(1, epoch, 101.0, position=9, snapshot=(8, "b"))
    sessions.heard(1, epoch, 102.0, position=7, snapshot=(4, "a"))
    session = sessions.of(1)
    assert session is not None
    assert (session.position, session.snapshot_position, session.snapshot_hash) == (9, 8, "b")


def test_silence_of_who_never_registered_counts_from_the_reign() -> None:
    _, sessions, epoch = started()
    sessions.heard(1, epoch, 130.0, position=1)
    assert (sessions.silent_ms(1, 131.0), sessions.silent_ms(7, 131.0)) == (1_000, 31_000)
