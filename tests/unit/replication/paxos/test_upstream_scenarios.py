"""The scenarios of Mesos' own log tests, by their stories; first those whose tests are empty there."""

from __future__ import annotations

import pytest

from tests.golden.paxos.stage import Stage
from tidelog.replication.paxos.events import Timer
from tidelog.replication.paxos.messages import PromiseRequest
from tidelog.replication.paxos.numbers import make_number
from tidelog.replication.paxos.state import Status


def elected(window: int = 4) -> Stage:
    """Three nodes; node 1 is coordinator, and everybody has applied its barrier at position 0."""
    stage = Stage(3, window=window)
    stage.elect(1)
    stage.run()
    stage.news()
    return stage


# -- named upstream, and empty ---------------------------------------------------------------------------------------


def test_racing_elections_end_with_one_coordinator() -> None:
    stage = Stage(3)
    for node in (1, 2, 3):
        stage.elect(node)
    stage.run()
    assert [node for node in (1, 2, 3) if stage.nodes[node].coordinator is not None] == [3]
    assert stage.learned(1) == stage.learned(2) == stage.learned(3) == {0: "barrier"}


def test_a_fill_without_a_quorum_settles_nothing() -> None:
    stage = elected()
    stage.append(1, "a")
    stage.deliver(1, 2)
    stage.crash(1)
    stage.drop_all()
    stage.elect(2)
    stage.drop(2, 3)
    stage.fire(2, Timer.RESEND)
    assert stage.learned(2) == {0: "barrier"}
    assert stage.nodes[2].coordinator is None
    stage.run()
    assert stage.learned(3) == {0: "barrier", 1: "a", 2: "barrier"}


def test_an_inconsistent_fill_takes_the_value_of_the_largest_number() -> None:
    """Two values were accepted at one position, each by one replica."""
    stage = elected()
    stage.append(1, "old")  # only node 1 has it
    stage.drop_all()
    stage.elect(2)
    stage.run(2, 3)
    stage.append(2, "new")
    stage.drop_all()
    stage.crash(2)
    stage.start(2)
    assert stage.nodes[1].replica.slots[1].value.digest == b"old"
    assert stage.nodes[2].replica.slots[2].value.digest == b"new"
    stage.elect(3)
    stage.run(1, 3)
    assert stage.learned(3) == {0: "barrier", 1: "barrier", 2: "barrier"}, "new was not chosen, and nobody saw it"
    stage.fire(2, Timer.CATCHUP)
    stage.run()
    assert stage.learned(2) == stage.learned(3)


def test_of_two_values_at_one_position_the_chosen_one_stays() -> None:
    stage = elected()
    stage.append(1, "old")
    stage.drop_all()
    stage.elect(2)
    stage.run(2, 3)  # the barrier of node 2 takes position 1 at nodes 2 and 3
    stage.crash(2)
    stage.drop_all()
    stage.elect(3)
    stage.run(1, 3)
    for _ in range(2):
        stage.fire(1, Timer.CATCHUP)
    stage.run(1, 3)
    assert stage.learned(1) == stage.learned(3) == {0: "barrier", 1: "barrier", 2: "barrier"}


def test_what_one_replica_only_has_learned_is_copied_by_the_next_coordinator() -> None:
    stage = elected()
    stage.append(1, "a")
    stage.deliver(1, 2)
    stage.deliver(2, 1)
    stage.drop_all()  # the notices are lost: only node 1 knows
    stage.elect(3)
    stage.run(1, 3)
    assert stage.learned(3) == {0: "barrier", 1: "a", 2: "barrier"}


# -- election --------------------------------------------------------------------------------------------------------


def test_an_election_needs_no_clock() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.run()
    assert stage.nodes[1].coordinator is not None


def test_a_single_node_elects_itself_and_writes() -> None:
    stage = Stage(1)
    stage.elect(1)
    stage.append(1, "a")
    assert stage.learned(1) == {0: "barrier", 1: "a"}


def test_nobody_is_elected_without_a_quorum() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.crash(2)
    stage.crash(3)
    stage.run()
    assert stage.news()[-1:] == []
    assert stage.nodes[1].coordinator is None


def test_nothing_is_appended_without_a_quorum() -> None:
    stage = elected()
    stage.append(1, "a")
    stage.crash(2)
    stage.crash(3)
    stage.run()
    assert stage.learned(1) == {0: "barrier"}


def test_failing_over_to_another_coordinator() -> None:
    stage = elected()
    stage.append(1, "a")
    stage.run()
    stage.elect(2)
    stage.run()
    stage.append(2, "b")
    stage.run()
    for node in (1, 2, 3):
        assert stage.learned(node) == {0: "barrier", 1: "a", 2: "barrier", 3: "b"}


def test_a_demoted_writer_is_refused_and_knows_it() -> None:
    stage = elected()
    stage.elect(2)
    stage.run()
    assert "1 lost 1.1, highest 1.2" in stage.news()
    stage.append(1, "a")
    assert stage.news() == ["1 refused append a of 1: not_coordinator"]


def test_a_writer_that_gave_up_on_a_batch_is_elected_again_and_finds_it() -> None:
    stage = elected()
    stage.append(1, "a")
    stage.demote(1)
    stage.drop_all()
    stage.elect(1)
    stage.run()
    assert stage.learned(2) == {0: "barrier", 1: "a", 2: "barrier"}
    assert "1 elected 2.1, barrier 2, next offset 1" in stage.news()


def test_an_election_races_a_recovery() -> None:
    """The coordinator's promises come from before the fence; its writes after it are refused."""
    stage = elected()
    stage.wipe(3)
    stage.start(3)
    stage.elect(2)
    stage.deliver(2, 1)
    stage.rejoin(3, make_number(9, 3))
    stage.run(1, 3)
    stage.run()
    assert stage.status(3) is Status.VOTING
    assert "2 lost 1.2, highest 9.3" in stage.news()
    stage.elect(2)
    stage.run()
    assert stage.nodes[2].coordinator is not None


def test_a_replica_that_does_not_vote_ignores_and_says_so() -> None:
    stage = Stage(3, is_founded=False)
    stage.nodes[1] = Stage(3).nodes[1]
    stage.elect(1)
    stage.run()
    assert stage.nodes[1].coordinator is None
    assert any("IGNORED" in line for line in stage.transcript())


# -- filling ---------------------------------------------------------------------------------------------------------


def test_a_hole_that_is_learned_elsewhere_is_filled() -> None:
    stage = elected()
    stage.append(1, "a")
    stage.drop(1, 3)
    stage.run(1, 2)
    stage.crash(1)
    stage.elect(3)
    stage.run(2, 3)
    assert stage.learned(3) == {0: "barrier", 1: "a", 2: "barrier"}


def test_a_slot_that_is_written_and_not_learned_is_filled() -> None:
    stage = elected()
    stage.append(1, "a")
    stage.deliver(1, 3)
    stage.crash(1)
    stage.drop_all()
    stage.elect(2)
    stage.run()
    assert stage.learned(2) == {0: "barrier", 1: "a", 2: "barrier"}


def test_several_batches_that_were_written_and_not_learned_are_filled() -> None:
    stage = elected()
    for digest in ("a", "b", "c"):
        stage.append(1, digest)
    stage.deliver(1, 3)
    stage.crash(1)
    stage.drop_all()
    stage.elect(2)
    stage.run()
    assert stage.learned(2) == {0: "barrier", 1: "a", 2: "b", 3: "c", 4: "barrier"}


# -- truncating ------------------------------------------------------------------------------------------------------


def truncated(*, learned_at: tuple[int, ...]) -> Stage:
    """Batches at 1 to 3, and a truncation to 2 at position 4, whose notice reached these nodes besides node 1."""
    stage = elected()
    for digest in ("a", "b", "c"):
        stage.append(1, digest)
    stage.run()
    stage.truncate(1, 2)
    for node in (2, 3):
        stage.deliver(1, node)
    for node in (2, 3):
        stage.deliver(node, 1)
    for node in (2, 3):
        if node in learned_at:
            stage.deliver(1, node)
        else:
            stage.drop(1, node)
    stage.news()
    return stage


def test_a_truncation_drops_the_head_everywhere() -> None:
    stage = truncated(learned_at=(2, 3))
    for node in (1, 2, 3):
        assert stage.learned(node) == {2: "b", 3: "c", 4: "truncate"}


def test_a_truncation_that_the_next_coordinator_has_not_learned_is_filled() -> None:
    stage = truncated(learned_at=())
    stage.crash(1)
    stage.drop_all()
    stage.elect(2)
    stage.run()
    assert stage.learned(2) == stage.learned(3) == {2: "b", 3: "c", 4: "truncate", 5: "barrier"}


def test_a_truncation_that_only_the_next_coordinator_has_learned_spreads() -> None:
    stage = truncated(learned_at=(2,))
    stage.crash(1)
    stage.drop_all()
    stage.elect(2)
    stage.run()
    stage.fire(3, Timer.CATCHUP)
    stage.fire(3, Timer.CATCHUP)
    stage.run()
    assert stage.learned(3) == {2: "b", 3: "c", 4: "truncate", 5: "barrier"}


@pytest.mark.parametrize("begin", [-1, 6])
def test_a_truncation_to_what_is_not_applied_is_refused(begin: int) -> None:
    stage = truncated(learned_at=(2, 3))
    stage.truncate(1, begin)
    assert stage.news() == [f"1 refused truncate {begin}: out_of_range"]


# -- catching up -----------------------------------------------------------------------------------------------------


def behind(*, batches: int) -> Stage:
    """Node 3 has heard nothing since the first barrier."""
    stage = elected(window=64)
    for number in range(batches):
        stage.append(1, f"b{number}")
    stage.drop(1, 3)
    stage.run(1, 2)
    stage.drop(1, 3)
    stage.news()
    return stage


def test_two_replicas_catch_up_at_once_from_each_other_and_a_third() -> None:
    stage = behind(batches=3)
    stage.wipe(2)
    stage.start(2)
    for _ in range(4):
        stage.fire(2, Timer.CATCHUP)
        stage.fire(3, Timer.CATCHUP)
        stage.run()
    assert stage.learned(2) == stage.learned(3) == stage.learned(1)


def test_catching_up_goes_on_after_a_lost_message() -> None:
    stage = behind(batches=3)
    for _ in range(2):
        stage.fire(3, Timer.CATCHUP)
        stage.drop_all()
    stage.fire(3, Timer.CATCHUP)
    stage.run()
    assert stage.learned(3) == stage.learned(1)


def test_catching_up_follows_more_than_one_answer_can_carry() -> None:
    stage = elected(window=8)
    for number in range(150):
        stage.append(1, f"b{number}")
        stage.drop(1, 3)
        stage.run(1, 2)
        stage.drop(1, 3)
    stage.fire(3, Timer.CATCHUP)
    stage.run()
    assert stage.learned(3) == stage.learned(1)


def test_catching_up_from_below_a_truncation_begins_where_the_others_do() -> None:
    """Upstream's begin 5 and end 10, also after the log is opened again."""
    stage = behind(batches=8)
    stage.truncate(1, 5)
    stage.drop(1, 3)
    stage.run(1, 2)
    stage.drop(1, 3)
    stage.fire(3, Timer.CATCHUP)
    stage.run()
    assert (stage.nodes[3].replica.begin, stage.nodes[3].replica.end) == (5, 10)
    stage.slow.add(3)
    stage.nodes[3].replica.journal.persist()
    list(stage.disks[3].sync(1 << 30))
    stage.crash(3)
    stage.start(3)
    assert (stage.nodes[3].replica.begin, stage.nodes[3].replica.end) == (5, 10)
    assert stage.nodes[3].replica.floor == stage.nodes[1].replica.floor


def test_a_voting_replica_catches_up_and_demotes_nobody() -> None:
    stage = behind(batches=3)
    stage.fire(3, Timer.CATCHUP)
    assert not any("promise?" in line for line in stage.transcript())
    stage.run()
    assert stage.learned(3) == stage.learned(1)
    assert stage.nodes[1].coordinator is not None


def test_a_voting_replica_with_a_gap_catches_up() -> None:
    stage = elected()
    for digest in ("a", "b", "c"):
        stage.append(1, digest)
    stage.drop(1, 3, 2)
    stage.run()
    assert stage.learned(3) == {0: "barrier", 3: "c"}
    stage.fire(3, Timer.CATCHUP)
    stage.run()
    assert stage.learned(3) == stage.learned(1)


def test_catching_up_on_a_single_position_works_if_anybody_has_learned_it() -> None:
    """Upstream this must fail: the last position is left out, lest the coordinator be demoted."""
    stage = behind(batches=1)
    stage.fire(3, Timer.CATCHUP)
    stage.run()
    assert stage.learned(3) == {0: "barrier", 1: "b0"}


def test_what_nobody_has_learned_stays_open_for_who_catches_up() -> None:
    stage = elected()
    stage.append(1, "a")
    stage.deliver(1, 2)
    stage.drop(2, 1)
    stage.drop(1, 3)
    for _ in range(2):
        stage.fire(3, Timer.CATCHUP)
        stage.run(2, 3)
    assert stage.learned(3) == {0: "barrier"}
    assert PromiseRequest not in {type(m) for queue in stage.links.values() for m in queue}
