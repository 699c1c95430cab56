"""Histories in which a log of a quorum loses data the naive way, told by hand: the rules that ship end them well, and
without its rule each goes wrong.

T1 and T6 are the names under which they are known, here as in tests/sim/isr/test_scenarios.py. Disks are damaged only
where others have copies, so nothing may be lost, and nobody may stay down for good.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.golden.paxos.stage import Stage, name_of
from tests.sim.paxos.mutants import (
    damaged_replica_does_not_vote,
    either_set_tells_for_the_other,
    emptied_replica_votes,
    faulty_told_as_no_value,
    mutated,
    old_voters_tell_for_the_new,
    voters_found_are_written_with_the_rest,
    who_is_only_asked_must_tell,
)
from tests.sim.planting import Patch
from tidelog.replication.paxos.events import Timer
from tidelog.replication.paxos.messages import Learned, WriteRequest
from tidelog.replication.paxos.numbers import make_number

Mutant = Callable[[], list[Patch]]
BATCHES = ("a", "b", "c")
"""At positions 1 to 3; at 0 is the barrier of who leads first."""
COMMITTED = {0: "barrier", 1: "a", 2: "b", 3: "c"}


def commit(stage: Stage, leader: int, *others: int) -> None:
    """Three batches that these accept. Only the leader hears of it, so only it knows that they are chosen."""
    stage.elect(leader)
    stage.run(leader, *others)
    for batch in BATCHES:
        stage.append(leader, batch)
    for node in others:
        stage.deliver(leader, node)
    for node in others:
        stage.deliver(node, leader)
    assert stage.learned(leader) == COMMITTED
    assert all(stage.learned(node) == {0: "barrier"} for node in others)
    stage.drop_all()


def ask_again(stage: Stage, candidate: int) -> None:
    stage.fire(candidate, Timer.RESEND)
    stage.run()


def first_of_log(stage: Stage, node: int) -> dict[int, str]:
    """Returns what it has learned of the first batches and what was before; nothing that it cannot read."""
    slots = stage.nodes[node].replica.slots
    return {p: name for p, name in stage.learned(node).items() if p in COMMITTED and not slots[p].faulty}


def is_elected(stage: Stage, node: int) -> bool:
    coordinator = stage.nodes[node].coordinator
    return coordinator is not None and coordinator.is_elected


def one_of_three_copies_is_all_that_a_quorum_sees(harm: Callable[[Stage], None]) -> Stage:
    """T1. Five nodes: 1 to 3 hold three batches, 4 and 5 nothing. Node 1 is harmed, 2 and 3 are down, 4 wants to lead:
    a quorum is there, and what it shows must not be taken for a log in which nothing was chosen."""
    stage = Stage(5)
    commit(stage, 2, 1, 3)
    for node in (1, 2, 3):
        stage.crash(node)
    harm(stage)
    stage.start(1)
    stage.elect(4)
    stage.run()
    ask_again(stage, 4)
    return stage


def rot_of_the_first_batch(stage: Stage) -> None:
    stage.damage(1, 1)


def loss_of_the_disk(stage: Stage) -> None:
    stage.disks[1].wipe()


@pytest.mark.parametrize("harm", [rot_of_the_first_batch, loss_of_the_disk], ids=lambda harm: harm.__name__)
def test_t1_a_quorum_that_has_lost_the_only_copy_waits_for_another(harm: Callable[[Stage], None]) -> None:
    stage = one_of_three_copies_is_all_that_a_quorum_sees(harm)
    assert not is_elected(stage, 4)
    assert set(stage.learned(4)) <= {0}, "nothing is put where the batches may be"
    stage.start(2)
    ask_again(stage, 4)
    assert is_elected(stage, 4)
    for node in (2, 4, 5):
        assert first_of_log(stage, node).items() >= {1: "a", 2: "b", 3: "c"}.items()


@pytest.mark.parametrize(
    ("harm", "mutant"),
    [(rot_of_the_first_batch, faulty_told_as_no_value), (loss_of_the_disk, emptied_replica_votes)],
    ids=lambda item: item.__name__,
)
def test_t1_is_lost_without_its_rule(harm: Callable[[Stage], None], mutant: Mutant) -> None:
    with mutated(mutant):
        stage = one_of_three_copies_is_all_that_a_quorum_sees(harm)
        assert is_elected(stage, 4)
        assert stage.learned(4).get(1) != "a"


def everybody_is_damaged_elsewhere() -> Stage:
    """T6. Three nodes hold three batches; of each batch another node's copy rots, while all are down."""
    stage = Stage(3)
    commit(stage, 1, 2, 3)
    for node in (1, 2, 3):
        stage.crash(node)
        stage.damage(node, position=node)
    for node in (1, 2, 3):
        stage.start(node)
    stage.elect(1)
    stage.run()
    for _ in BATCHES:
        ask_again(stage, 1)
    for node in (1, 2, 3):
        stage.fire(node, Timer.CATCHUP)
        stage.run()
    return stage


def test_t6_three_damaged_logs_repair_each_other() -> None:
    stage = everybody_is_damaged_elsewhere()
    assert is_elected(stage, 1)
    for node in (1, 2, 3):
        assert first_of_log(stage, node) == COMMITTED


def test_t6_is_down_for_good_without_its_rule() -> None:
    with mutated(damaged_replica_does_not_vote):
        stage = everybody_is_damaged_elsewhere()
        assert not any(is_elected(stage, node) for node in (1, 2, 3))
        assert all(first_of_log(stage, node) != COMMITTED for node in (1, 2, 3))


# -- voters that change: 1, 2 and 3 decide, and node 4 is to be one of them --------------------------------------------


def elected_for_new_voters(leader: int, voters: str) -> Stage:
    """Old and new voters have elected a leader to write who they are, at position 2."""
    stage = Stage(3, learners=1)
    stage.elect(leader)
    stage.run()
    stage.fire(4, Timer.CATCHUP)
    stage.enlist(4)
    stage.reconfigure(leader, "1,2,3", voters)
    stage.elect(leader)
    stage.run()
    return stage


def the_voter_to_be_added_has_lost_what_it_accepted() -> Stage:
    """VOTERS that put node 4 in the place of node 3 reach nodes 2 and 4 only. Node 1 sees them at node 2, which then
    stays down; node 4 forgets which they were. Two of the old three have accepted nothing, so nothing is chosen there:
    only the new ones, of whom one of three denies, cannot tell."""
    stage = elected_for_new_voters(3, "1,2,4")
    stage.slow.add(3)
    stage.append_voters(3, "1,2,4")
    stage.deliver(3, 2)
    stage.deliver(3, 4)
    for node in (3, 4):
        stage.crash(node)
    stage.lose_name(4, 2)
    stage.drop_all()
    stage.slow.clear()
    stage.elect(1)
    stage.run(1, 2)
    stage.reconfigure(1, "1,2,3", "1,2,4", settling=2)
    stage.crash(2)
    for node in (3, 4):
        stage.start(node)
    stage.elect(1)
    stage.run()
    return stage


def test_a_voter_to_be_added_holds_up_nobody_by_what_it_has_lost() -> None:
    stage = the_voter_to_be_added_has_lost_what_it_accepted()
    assert stage.learned(1)[2] == "nop"
    assert is_elected(stage, 1)


def test_a_voter_to_be_added_holds_up_all_without_that_rule() -> None:
    with mutated(who_is_only_asked_must_tell):
        stage = the_voter_to_be_added_has_lost_what_it_accepted()
        assert stage.nodes[1].unsettled == (2,)


def new_voters_have_decided_and_a_disk_lost_it() -> Stage:
    """Node 4 takes the place of node 3; nodes 2 and 4 alone choose the voters' first batch, at position 4. Node 2 is
    down, and node 4 loses that batch, and what told who votes. Of the old voters, 1 has VOTERS as accepted, and 3
    nothing at all. Neither has accepted the batch, and both asked together are a majority of the old."""
    stage = elected_for_new_voters(2, "1,2,4")
    stage.append_voters(2, "1,2,4")
    stage.deliver(2, 1)
    stage.deliver(1, 2)
    stage.run(2, 4)
    for node in (2, 4):
        stage.reconfigure(node, "1,2,4", position=2)
    stage.elect(2)
    stage.run(2, 4)
    stage.append(2, "a")
    stage.run(2, 4)
    assert stage.learned(2)[4] == "a"
    stage.drop_all()
    stage.crash(2)
    stage.crash(4)
    stage.lose_name(4, 2)
    stage.damage(4, 4)
    stage.elect(3)
    stage.run(1, 3)
    stage.reconfigure(3, "1,2,3", "1,2,4", settling=2)
    stage.start(4)
    stage.elect(3)
    stage.run()
    return stage


def accepted(stage: Stage, node: int, position: int) -> str:
    return name_of(stage.nodes[node].replica.slots[position].value)


def test_what_only_the_new_voters_can_know_is_not_for_the_old_to_deny() -> None:
    stage = new_voters_have_decided_and_a_disk_lost_it()
    assert stage.nodes[3].unsettled == (4,)
    stage.start(2)
    ask_again(stage, 3)
    ask_again(stage, 3)
    assert stage.nodes[3].is_idle, "node 2 has told it who votes"
    assert [accepted(stage, node, 4) for node in (2, 4)] == ["a", "a"]


@pytest.mark.parametrize(
    "mutant", [old_voters_tell_for_the_new, either_set_tells_for_the_other], ids=lambda mutant: mutant.__name__
)
def test_what_the_new_voters_chose_is_lost_without_that_rule(mutant: Mutant) -> None:
    with mutated(mutant):
        stage = new_voters_have_decided_and_a_disk_lost_it()
        assert [accepted(stage, node, 4) for node in (1, 4)] == ["nop", "nop"], "most of the new voters"


# -- voters that change: of 1 to 5, and node 6 is to take the place of node 5 ------------------------------------------

OLD, NEW = "1,2,3,4,5", "1,2,3,4,6"


def deliver_about(stage: Stage, position: int, source: int, target: int) -> None:
    """Of what waits on this link, what is to be written there or was chosen; all else is lost."""
    for message in tuple(stage.links.get((source, target), ())):
        is_wanted = isinstance(message, WriteRequest | Learned) and message.position == position
        (stage.deliver if is_wanted else stage.drop)(source, target, 1)


def the_old_have_chosen_behind_voters_that_hang() -> Stage:
    """Node 5 leads, and has four batches on its own disk alone, at positions 1 to 4. Node 2 is elected without it, by
    the old and then by old and new; its VOTERS, at position 3, reach node 3. Then node 5 is elected by 1 and 4, which
    know nothing of that, and proposes its old batches anew, as it must. The last of them, at position 4, is accepted by
    2, 4 and 5, and so is chosen; the one at position 3 by itself alone. Then it is down."""
    stage = Stage(5, learners=1)
    stage.elect(5)
    stage.run()
    stage.fire(6, Timer.CATCHUP)
    stage.enlist(6)
    stage.run()
    for batch in "abcd":
        stage.append(5, batch)
    stage.drop_all()
    stage.elect(2)
    stage.run(2, 3, 4)
    stage.reconfigure(2, OLD, NEW)
    stage.elect(2)
    stage.run(2, 3, 4, 6)
    stage.append_voters(2, NEW)
    stage.deliver(2, 3)
    stage.drop_all()
    stage.elect(5, make_number(9, 5))
    for _ in range(2):  # their promises, and what they have learned
        for node in (1, 4):
            stage.deliver(5, node)
            stage.deliver(node, 5)
    for node in (2, 4):
        deliver_about(stage, 4, 5, node)
        stage.deliver(node, 5)
    assert stage.learned(5)[4] == "d"
    stage.drop_all()
    stage.crash(5)
    return stage


def old_and_new_elect(stage: Stage, candidate: int) -> None:
    stage.elect(candidate)
    stage.run(1, 2, 3)
    stage.drop_all()
    stage.reconfigure(candidate, OLD, NEW, settling=3)
    stage.elect(candidate)


def the_voters_are_chosen_and_nothing_else_arrives() -> Stage:
    """Node 2 finds its VOTERS again, and settles them; but what it writes at position 4 is lost, and it goes down."""
    stage = the_old_have_chosen_behind_voters_that_hang()
    old_and_new_elect(stage, 2)
    for node in (1, 3):
        stage.deliver(2, node)
        stage.deliver(node, 2)
    for node in (1, 3):
        deliver_about(stage, 3, 2, node)
        stage.deliver(node, 2)
    for node in (1, 3, 6):
        deliver_about(stage, 3, 2, node)
    stage.crash(2)
    stage.drop_all()
    return stage


def test_what_the_old_chose_behind_voters_is_chosen_by_the_new_before_they_decide() -> None:
    stage = the_voters_are_chosen_and_nothing_else_arrives()
    assert 3 not in stage.learned(3)
    stage.reconfigure(3, OLD, NEW, settling=3)
    stage.elect(3)
    stage.run()
    assert (stage.learned(3)[3], stage.learned(3)[4]) == (NEW, "d")


def test_what_the_old_chose_behind_voters_is_lost_without_that_rule() -> None:
    with mutated(voters_found_are_written_with_the_rest):
        stage = the_voters_are_chosen_and_nothing_else_arrives()
        for node in (1, 6) * 5:  # from each peer in turn
            stage.fire(node, Timer.CATCHUP)
            stage.run(1, 3, 6)
        for node in (1, 3, 6):
            stage.reconfigure(node, NEW, position=3)
        stage.elect(1)
        stage.run(1, 3, 6)
        assert stage.learned(1)[4] == "barrier", "and node 5 has learned a batch there"
