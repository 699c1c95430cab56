"""A directory shows how recent it is, and the metadata remember: what shows less is an old copy."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import Cluster, IsrCluster, PaxosCluster, newest, registration
from tidelog.controller.commands import BrokerAdmitted, NoteStamps, Stamped
from tidelog.controller.sessions import Sessions
from tidelog.controller.upkeep import fresh_stamps
from tidelog.model.errors import OldDirectory
from tidelog.model.ids import NodeId


def register(cluster: Cluster, process: str, starts: int, stamp: int = 0, *, storage: str = "", node: int = 1) -> None:
    known = newest(cluster.image, node)
    command = registration(node, process=process, storage=storage, replaces=known, starts=starts, stamp=stamp)
    assert isinstance(cluster.do(command), BrokerAdmitted)


@pytest.fixture
def cluster() -> Cluster:
    """Broker 1 has started twice, and its directory has shown the stamp 7."""
    made = Cluster()
    register(made, "a", 1)
    register(made, "b", 2)
    made.do(NoteStamps([Stamped(1, made.image.brokers[NodeId(1)].epoch, 7)]))
    assert (made.image.brokers[NodeId(1)].starts, made.image.brokers[NodeId(1)].stamp) == (2, 7)
    return made


def test_a_directory_that_has_counted_on_is_admitted(cluster: Cluster) -> None:
    register(cluster, "c", 3, 7)
    register(cluster, "d", 5, 9)
    assert (cluster.image.brokers[NodeId(1)].starts, cluster.image.brokers[NodeId(1)].stamp) == (5, 9)


@pytest.mark.parametrize(("starts", "stamp"), [(2, 7), (2, 9), (1, 0), (3, 6)])
def test_a_directory_that_shows_less_is_refused(cluster: Cluster, starts: int, stamp: int) -> None:
    before = cluster.image
    with pytest.raises(OldDirectory):
        register(cluster, "c", starts, stamp)
    assert cluster.image is before


def test_the_process_that_is_registered_may_say_it_again(cluster: Cluster) -> None:
    register(cluster, "b", 2)


def test_an_old_copy_begins_anew_on_another_disk(cluster: Cluster) -> None:
    cluster.start(2)
    cluster.heartbeat(1, wants_shutdown=True)
    register(cluster, "c", 1, 0, storage="anew")
    assert cluster.image.brokers[NodeId(1)].starts == 1


def test_a_disk_that_was_replaced_and_may_vote_does_not_come_back() -> None:
    made = PaxosCluster()
    made.crash(3, new_disk=True)
    with pytest.raises(OldDirectory):
        made.register(3, process="back", storage="disk-3")


def test_a_disk_that_was_replaced_and_votes_nowhere_is_a_new_one() -> None:
    made = IsrCluster()
    made.crash(3, new_disk=True)
    made.register(3, process="back", storage="disk-3")
    assert 3 not in made.partition.isr


def test_stamps_of_another_life_or_a_step_back_change_nothing(cluster: Cluster) -> None:
    epoch = cluster.image.brokers[NodeId(1)].epoch
    before = cluster.image
    cluster.do(NoteStamps([Stamped(1, epoch - 1, 9), Stamped(1, epoch, 6), Stamped(5, epoch, 9)]))
    assert cluster.image is before


def test_the_controller_notes_all_stamps_that_are_news_at_once(cluster: Cluster) -> None:
    cluster.start(2)
    sessions = Sessions(9_000, 1_000)
    sessions.begin(cluster.image, 0.0)
    for node, stamp in ((1, 7), (2, 3)):
        epoch = cluster.image.brokers[NodeId(node)].epoch
        sessions.heard(node, epoch, 1.0, position=cluster.image.position, stamp=stamp)
    command = fresh_stamps(cluster.image, sessions)
    assert command is not None
    assert [stamped.node_id for stamped in command.stamps] == [2]
    cluster.do(command)
    assert fresh_stamps(cluster.image, sessions) is None
