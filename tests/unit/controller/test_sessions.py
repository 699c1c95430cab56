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
    sessions = Sessions(9_000, 1_000)
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


def test_leases_count_from_the_end_of_the_controllers_before() -> None:
    cluster, sessions, epochs = silent_three()
    sessions.begin(cluster.image, 200.0)
    sessions.alone_since(199.2)
    sessions.alone_since(199.5)  # another answer knows less
    for witness in (1, 2):
        sessions.witnessed(3, epochs[3], witness, 200.1)
    assert silent_nodes(cluster, sessions, 200.19) == [], "a controller before may have given it a lease until 200.2"
    assert silent_nodes(cluster, sessions, 200.2) == [3]
    sessions.heard(3, epochs[3], 200.1, position=1)
    for witness in (1, 2):
        sessions.witnessed(3, epochs[3], witness, 200.3)
    assert silent_nodes(cluster, sessions, 201.0) == [], "this one has answered it"
    assert silent_nodes(cluster, sessions, 201.1) == [3]


def test_what_comes_late_takes_nothing_back() -> None:
    _, sessions, epoch = started()
    sessions.heard(1, epoch, 101.0, position=9, snapshot=(8, "b"))
    sessions.heard(1, epoch, 102.0, position=7, snapshot=(4, "a"))
    session = sessions.of(1)
    assert session is not None
    assert (session.position, session.snapshot_position, session.snapshot_hash) == (9, 8, "b")


def test_silence_of_who_never_registered_counts_from_the_term() -> None:
    _, sessions, epoch = started()
    sessions.heard(1, epoch, 130.0, position=1)
    assert (sessions.silent_ms(1, 131.0), sessions.silent_ms(7, 131.0)) == (1_000, 31_000)


# -- silence -----------------------------------------------------------------------------------------------------------


def silent_three() -> tuple[Cluster, Sessions, dict[int, int]]:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    sessions = Sessions(9_000, 1_000)
    sessions.begin(cluster.image, 100.0)
    return cluster, sessions, {int(node): broker.epoch for node, broker in cluster.image.brokers.items()}


def silent_nodes(cluster: Cluster, sessions: Sessions, now_s: float) -> list[int]:
    return [int(node) for node, _ in sessions.expired(cluster.image, now_s)]


def test_two_witnesses_end_a_session_once_the_lease_has_run_out() -> None:
    cluster, sessions, epochs = silent_three()
    sessions.witnessed(3, epochs[3], 1, 100.8)
    assert silent_nodes(cluster, sessions, 102.0) == [], "one witness may itself be cut off"
    sessions.witnessed(3, epochs[3], 2, 100.9)
    assert silent_nodes(cluster, sessions, 100.99) == [], "it may still serve as a leader"
    assert silent_nodes(cluster, sessions, 101.0) == [3]


def test_a_heartbeat_gives_a_new_lease_whatever_others_say() -> None:
    cluster, sessions, epochs = silent_three()
    sessions.heard(3, epochs[3], 100.9, position=1)
    for witness in (1, 2):
        sessions.witnessed(3, epochs[3], witness, 101.0)
    assert silent_nodes(cluster, sessions, 101.8) == []
    assert silent_nodes(cluster, sessions, 101.9) == [3]


def test_a_heartbeat_refutes_what_was_said_before_it() -> None:
    cluster, sessions, epochs = silent_three()
    for witness in (1, 2):
        sessions.witnessed(3, epochs[3], witness, 100.8)
    sessions.heard(3, epochs[3], 100.9, position=1)
    assert silent_nodes(cluster, sessions, 102.5) == []


def test_nobody_bears_witness_against_itself_nor_for_long_nor_fenced() -> None:
    cluster, sessions, epochs = silent_three()
    sessions.witnessed(3, epochs[3], 3, 101.0)
    sessions.witnessed(3, epochs[3], 1, 101.0)
    assert silent_nodes(cluster, sessions, 102.0) == []
    sessions.witnessed(3, epochs[3], 2, 102.0)
    assert silent_nodes(cluster, sessions, 102.5) == [3]
    assert silent_nodes(cluster, sessions, 103.1) == [], "the first word is too old"
    sessions.witnessed(3, epochs[3], 1, 103.1)
    assert silent_nodes(cluster, sessions, 103.2) == [3]
    cluster.do(FenceBroker(2, epochs[2]))
    assert silent_nodes(cluster, sessions, 103.2) == []


def test_words_about_an_earlier_life_and_of_another_term_count_for_nothing() -> None:
    cluster, sessions, epochs = silent_three()
    for witness in (1, 2):
        sessions.witnessed(3, epochs[3] - 1, witness, 101.0)
    assert silent_nodes(cluster, sessions, 102.0) == []
    for witness in (1, 2):
        sessions.witnessed(3, epochs[3], witness, 102.0)
    sessions.begin(cluster.image, 102.0)
    assert silent_nodes(cluster, sessions, 103.5) == []


# -- clocks ------------------------------------------------------------------------------------------------------------


def test_a_clock_is_compared_with_the_median_of_the_live_brokers() -> None:
    cluster, sessions, epochs = silent_three()
    assert sessions.clock_offset_ms(cluster.image, 1) is None
    for node, clock_ms in ((1, 0), (2, 40), (3, 3_600_000)):
        sessions.heard(node, epochs[node], 101.0, position=1, clock_ms=clock_ms)
    assert [sessions.clock_offset_ms(cluster.image, node) for node in (1, 2, 3)] == [-40, 0, 3_599_960]
    sessions.heard(3, epochs[3], 102.0, position=1)
    assert sessions.clock_offset_ms(cluster.image, 3) == 3_599_960, "a report without a time takes nothing back"
    cluster.do(FenceBroker(2, epochs[2]))
    assert sessions.clock_offset_ms(cluster.image, 1) == -1_800_000, "of two, nobody knows which one is right"
