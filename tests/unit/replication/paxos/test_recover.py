"""Who may vote: founding, and coming back from the loss of a disk."""

from __future__ import annotations

import pytest

from tests.golden.paxos.stage import Stage
from tidelog.replication.paxos.events import Persist, Reason, Received, Refused, Timer
from tidelog.replication.paxos.messages import RecoverResponse
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.numbers import make_number
from tidelog.replication.paxos.state import Metadata, Status, StoredLog

VOTING = Status.VOTING


def founded(stage: Stage) -> None:
    for node in stage.quorum.members:
        stage.found(node)
    stage.run()


def reason(effects: object) -> Reason | None:
    return next((e.reason for e in effects if isinstance(e, Refused)), None) if isinstance(effects, list) else None


# -- founding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [1, 3, 5])
def test_new_disks_found_a_group(members: int) -> None:
    stage = Stage(members, is_founded=False)
    founded(stage)
    assert {stage.status(node) for node in stage.quorum.members} == {VOTING}
    founders = {stage.disks[node].metadata.founders for node in stage.quorum.members}
    assert founders == {tuple((node, f"{node}/1") for node in stage.quorum.members)}


def test_nobody_is_founded_without_being_told() -> None:
    stage = Stage(3, is_founded=False)
    stage.found(1)
    stage.found(2)
    stage.run()
    stage.fire(1, Timer.RECOVER)
    stage.run()
    assert {stage.status(node) for node in (1, 2, 3)} == {Status.EMPTY}


def test_two_clusters_do_not_mix() -> None:
    stage = Stage(3, is_founded=False)
    for node, cluster_id in ((1, "tides"), (2, "tides"), (3, "waves")):
        stage.found(node, cluster_id)
    stage.run()
    assert {stage.status(node) for node in (1, 2, 3)} == {Status.EMPTY}


def test_founding_is_retried_until_everybody_answers() -> None:
    stage = Stage(3, is_founded=False)
    for node in (1, 2, 3):
        stage.found(node)
    stage.drop_all()
    for _ in range(3):
        for node in (1, 2, 3):
            stage.fire(node, Timer.RECOVER)
        stage.run()
    assert {stage.status(node) for node in (1, 2, 3)} == {VOTING}


def test_a_status_counts_when_it_is_durable() -> None:
    stage = Stage(1, is_founded=False)
    stage.slow.add(1)
    stage.found(1)
    assert (stage.status(1), stage.disks[1].metadata.status) == (Status.EMPTY, Status.EMPTY)
    stage.store(1)
    assert stage.status(1) is Status.STARTING
    stage.store(1)
    assert stage.status(1) is VOTING


def test_a_crash_between_the_phases_goes_on_with_the_second() -> None:
    stage = Stage(3, is_founded=False)
    stage.slow |= {1, 2, 3}
    founded(stage)
    stage.store(2)
    assert stage.status(2) is Status.STARTING
    stage.crash(2)
    stage.drop_all()
    stage.slow.clear()
    stage.start(2)
    for node in (1, 3):
        stage.store(node)
    stage.run()
    for node in (1, 2, 3):
        stage.fire(node, Timer.RECOVER)
    stage.run()
    assert {stage.status(node) for node in (1, 2, 3)} == {VOTING}


def test_a_late_founder_votes_when_it_sees_another_vote() -> None:
    """It has been there from the beginning and never voted; there is nothing that it could have forgotten."""
    stage = Stage(3, is_founded=False)
    founded(stage)
    metadata = stage.disks[3].metadata
    late = Metadata(metadata.incarnation, Status.STARTING, cluster_id="tides", founders=metadata.founders)
    stage.nodes[3] = PaxosNode(3, stage.quorum, StoredLog(late), window=4)
    stage.crash(2)
    stage.disks[3].metadata = late
    stage.start(3)
    stage.run()
    assert stage.status(3) is VOTING


def test_a_disk_lost_between_the_phases_is_not_one_of_the_founders() -> None:
    """Mesos would let it vote; it may have voted before."""
    stage = Stage(3, is_founded=False)
    stage.slow |= {1, 2}
    founded(stage)
    for node in (1, 2):
        stage.store(node)
    assert {stage.status(node) for node in (1, 2, 3)} == {Status.STARTING}
    stage.drop_all()
    stage.wipe(3)
    stage.start(3)
    stage.found(3)
    for _ in range(3):
        for node in (1, 2, 3):
            stage.fire(node, Timer.RECOVER)
        stage.run()
    assert [stage.status(node) for node in (1, 2, 3)] == [Status.STARTING, Status.STARTING, Status.EMPTY]


def test_answers_that_were_meant_for_a_lost_disk_found_nothing() -> None:
    stage = Stage(3, is_founded=False)
    for node in (1, 2, 3):
        stage.found(node)
    stage.deliver(3, 1)
    stage.deliver(3, 2)  # two answers "EMPTY" are on their way to node 3
    stage.run(1, 2)
    stale = {link: list(queue) for link, queue in stage.links.items() if link[1] == 3}
    stage.run()
    assert stage.status(3) is VOTING
    stage.wipe(3)
    stage.start(3)
    stage.drop_all()
    stage.found(3)
    for link, messages in stale.items():
        stage.links.setdefault(link, type(stage.links[3, 1])()).extendleft(reversed(messages))
    stage.run()
    assert stage.status(3) is not VOTING


def test_founding_is_for_empty_disks_of_members() -> None:
    stage = Stage(3)
    assert reason(stage.found(1)) is Reason.NOT_EMPTY
    stranger = PaxosNode(9, stage.quorum, StoredLog(Metadata("9/1")), window=4)
    stage.nodes[9], stage.disks[9] = stranger, stage.disks[1]
    assert reason(stage.found(9)) is Reason.NOT_MEMBER


# -- rejoining -------------------------------------------------------------------------------------------------------


def lost_disk() -> Stage:
    """Node 1 is coordinator, a and b are chosen, and node 3 has a new, empty disk."""
    stage = Stage(3)
    stage.elect(1)
    stage.run()
    for digest in ("a", "b"):
        stage.append(1, digest)
    stage.run()
    stage.wipe(3)
    stage.start(3)
    stage.news()
    return stage


def test_a_lost_disk_comes_back_with_everything_behind_a_fence() -> None:
    stage = lost_disk()
    stage.rejoin(3, make_number(5, 3))
    stage.run()
    assert stage.learned(3) == {0: "barrier", 1: "a", 2: "b"}
    metadata = stage.disks[3].metadata
    assert (metadata.status, metadata.promised, metadata.issued) == (VOTING, make_number(5, 3), make_number(5, 3))
    assert sorted(stage.disks[3].slots) == [0, 1, 2], "on its disk before it votes"
    assert all(stage.nodes[node].replica.metadata.promised == make_number(5, 3) for node in (1, 2))


def test_a_lost_disk_is_mute_until_then() -> None:
    stage = lost_disk()
    stage.rejoin(3, make_number(5, 3))
    stage.drop_all()
    stage.elect(1)
    stage.drop(1, 2)
    stage.run(1, 3)
    assert stage.nodes[1].coordinator is None
    assert stage.nodes[3].replica.metadata.promised == 0


def test_the_fence_is_of_others_and_needs_a_quorum_of_them() -> None:
    stage = lost_disk()
    stage.crash(2)
    stage.rejoin(3, make_number(5, 3))
    stage.run()
    assert stage.status(3) is Status.RECOVERING
    stage.start(2)
    stage.fire(3, Timer.RESEND)
    stage.run()
    assert stage.status(3) is VOTING


def test_what_is_open_is_settled_under_the_fence() -> None:
    stage = lost_disk()
    stage.append(1, "c")
    stage.drop_all()
    stage.rejoin(3, make_number(5, 3))
    stage.run()
    assert stage.learned(3) == {0: "barrier", 1: "a", 2: "b", 3: "c"}
    assert stage.nodes[2].replica.slots[3].number == make_number(5, 3)


def test_a_number_that_is_too_small_is_refused_by_the_others() -> None:
    stage = lost_disk()
    stage.elect(2)
    stage.run()
    stage.rejoin(3, make_number(1, 3) - 2)  # not its own
    assert "3 refused rejoin 1.1: number_used" in stage.news()
    stage.elect(1)
    stage.run()
    stage.rejoin(3, make_number(1, 3))
    stage.run()
    assert "3 lost 1.3, highest 2.1" in stage.news()
    assert stage.status(3) is Status.RECOVERING


def test_every_attempt_needs_a_number_of_its_own_also_after_a_crash() -> None:
    stage = lost_disk()
    stage.rejoin(3, make_number(5, 3))
    stage.drop_all()
    stage.crash(3)
    stage.start(3)
    assert stage.status(3) is Status.RECOVERING
    assert reason(stage.rejoin(3, make_number(5, 3))) is Reason.NUMBER_USED
    stage.rejoin(3, make_number(6, 3))
    stage.run()
    assert stage.status(3) is VOTING


def test_a_vote_is_not_durable_before_all_that_it_knows() -> None:
    """Else a crash could leave a voter with half a memory."""
    stage = lost_disk()
    stage.rejoin(3, make_number(5, 3))
    stage.slow.add(3)
    stage.run()
    pending = [p for p in stage.disks[3].pending if p.is_urgent]
    assert [p.records for p in pending] == [()], "first everything learned is to be on disk"
    stage.store(3)
    last = stage.disks[3].pending[-1].records[0]
    assert isinstance(last, Metadata)
    assert last.status is VOTING
    assert stage.status(3) is Status.RECOVERING
    stage.store(3)
    assert stage.status(3) is VOTING


def test_a_rejoin_that_is_about_to_succeed_is_not_begun_again() -> None:
    """Found by simulation: a second attempt took back the vote, and the number, of a first whose write was on its way
    to the disk."""
    stage = lost_disk()
    stage.rejoin(3, make_number(5, 3))
    stage.slow.add(3)
    stage.run()
    stage.store(3)
    effects = stage.rejoin(3, make_number(6, 3))
    assert reason(effects) is Reason.CHANGING
    assert not [effect for effect in effects if isinstance(effect, Persist)]
    stage.store(3)
    assert stage.status(3) is VOTING


def test_only_what_lost_its_disk_rejoins() -> None:
    assert reason(Stage(3).rejoin(1, make_number(5, 1))) is Reason.NOT_EMPTY
    starting = Stage(1, is_founded=False)
    starting.slow.add(1)
    starting.found(1)
    assert reason(starting.rejoin(1, make_number(5, 1))) is Reason.CHANGING
    starting.store(1)
    starting.slow.clear()
    assert reason(starting.rejoin(1, make_number(6, 1))) is not None


def test_a_lost_disk_jumps_to_where_the_others_begin() -> None:
    stage = lost_disk()
    stage.truncate(1, 2)
    stage.run()
    stage.rejoin(3, make_number(5, 3))
    stage.run()
    assert stage.status(3) is VOTING
    assert stage.nodes[3].replica.floor == stage.nodes[1].replica.floor
    assert stage.disks[3].floor.position == 2


def test_a_group_of_one_has_nobody_to_ask() -> None:
    stage = Stage(1)
    stage.elect(1)
    stage.append(1, "a")
    stage.wipe(1)
    stage.start(1)
    stage.rejoin(1, make_number(5, 1))
    stage.fire(1, Timer.RESEND)
    assert stage.status(1) is Status.RECOVERING


def test_a_stranger_founds_nothing() -> None:
    """Two founders of three have answered, so a third answer would found the log, but not a stranger's."""
    stage = Stage(3, is_founded=False)
    for node in (1, 2):
        stage.found(node)
    stage.run(1, 2)
    stage.do(1, Received(9, RecoverResponse(Status.EMPTY, "9/1", "tides", ())))
    assert stage.status(1) is Status.EMPTY


def test_answers_found_nothing_where_nobody_has_said_that_the_disk_is_new() -> None:
    """Three disks without a cluster agree about it, and on nothing else."""
    stage = Stage(3, is_founded=False)
    for node in (1, 2, 3):
        stage.do(1, Received(node, RecoverResponse(Status.EMPTY, f"{node}/1", "", ())))
    assert stage.status(1) is Status.EMPTY


def test_an_answer_that_comes_again_while_the_disk_works_founds_nothing_twice() -> None:
    stage = Stage(3, is_founded=False)
    stage.slow.add(1)
    founded(stage)
    assert (stage.status(1), len(stage.disks[1].pending)) == (Status.EMPTY, 1)
    assert stage.do(1, Received(2, RecoverResponse(Status.EMPTY, "2/1", "tides", ()))) == []
    stage.store(1)
    assert stage.status(1) is Status.STARTING


def test_a_fence_that_waits_for_its_disk_alone_asks_nobody() -> None:
    stage = lost_disk()
    stage.rejoin(3, make_number(5, 3))
    stage.slow.add(3)
    stage.run()
    assert stage.fire(3, Timer.RESEND) == []
