"""Histories in which the naive way loses data, told by hand: with the cores and the controller that ship they end well,
and each without its rule does not.

T5 and so on are the names under which they are known. T1 to T4 are about logs of quorums: the simulator of Paxos finds
them, T1 and T6 are told by hand there (tests/sim/paxos), and the sweep of corruption patterns has whatever is on disks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from tests.sim.isr.mutants import MUTANTS, Mutant, planted
from tests.sim.isr.story import Story
from tidelog.controller.partition_commands import AlterReassignments, NewReplicas
from tidelog.sim.isr.controller import TOPIC_ID
from tidelog.sim.isr.parts import Parts
from tidelog.sim.isr.truth import Violation
from tidelog.sim.isr.world import LAG_MS_MAX


def a_committed_last_batch_rots(parts: Parts) -> None:
    """T5. It is no torn tail: the catalog has its row."""
    story = Story(parts, replicas=2, is_fsynced=True)
    story.commit(2)
    story.end(story.node(2))
    story.rot(story.node(2).disk, 0)
    follower = story.restart(2)
    story.ask(follower, 1)
    assert not follower.disk.faulty
    story.kill_leader(1)
    story.learn_newest(2)
    assert story.node(2).leading is not None
    assert story.node(2).disk.log == story.truth.committed


def a_follower_loses_power_before_anybody_notices(parts: Parts) -> None:
    """T12. It acknowledged from memory, and comes back before its session has ended; then the leader dies."""
    story = Story(parts, replicas=2, is_fsynced=False)
    story.commit(2, syncing=False)
    story.lose_power(2)
    story.restart(2)
    story.kill_leader(1)
    assert story.controller.now.leader != 2, "nobody leads without what was acknowledged"


def a_follower_restarts_with_an_old_high_watermark(parts: Parts) -> None:
    """T13, KIP-101. What it has beyond is committed, and it is the only one left."""
    story = Story(parts, replicas=2, is_fsynced=True)
    story.commit(2)
    story.end(story.node(2))
    follower = story.restart(2)
    assert follower.high_watermark == 0
    story.fetch(follower)
    story.deliver()
    story.kill_leader(1)
    story.learn_newest(2)
    assert story.node(2).disk.log == story.truth.committed


def somebody_out_of_sync_denies(parts: Parts) -> None:
    """T14. A new leader's end is damaged, and a replica that was never in sync lacks it."""
    story = Story(parts, replicas=3, is_fsynced=True)
    story.fence(3)
    story.learn_newest(1, 2)
    story.commit(2)
    story.rot(story.node(2).disk, 0)
    story.fence(1)
    story.learn_newest(1, 2, 3)
    heir = story.node(2)
    story.ask(heir, 3)
    assert heir.leading is None, "it still has to be settled"
    story.ask(heir, 1)
    assert heir.leading is not None
    assert heir.disk.log == story.truth.committed


def a_checkpoint_is_lost(parts: Parts) -> None:
    """T15. A high watermark that is not known is no reason to cut."""
    story = Story(parts, replicas=2, is_fsynced=True)
    story.commit(2)
    story.end(story.node(2))
    story.node(2).disk.high_watermark = 0
    story.restart(2)
    story.kill_leader(1)
    story.learn_newest(2)
    assert story.node(2).disk.log == story.truth.committed


def an_fsync_fails_once(parts: Parts) -> None:
    """T16. What it was to make durable is gone from the system's memory, and another fsync says that all is well."""
    story = Story(parts, replicas=2, is_fsynced=True)
    story.produce(story.node(1))
    story.sync(story.node(1), story.dice, is_all=True)
    story.fetch_all(2, syncing=False)
    story.node(2).disk.fail_sync()
    story.sync(story.node(2), story.dice, is_all=True)
    story.deliver()
    assert story.truth.committed == []
    story.end(story.node(2))
    story.restart(2)
    story.settle_down()
    assert len(story.truth.committed) == 1


def an_answer_about_the_set_is_lost(parts: Parts) -> None:
    """T18. The controller has taken a replica in, and its leader does not know."""
    story = Story(parts, replicas=3, is_fsynced=True)
    story.fence(3)
    story.learn_newest(1, 2)
    story.heartbeat(story.node(3))
    story.deliver()
    story.learn_newest(1, 3)
    story.report(3)
    story.fetch(story.node(3))
    story.wire.messages.pop().deliver(story.dice)
    story.tick(story.node(1))
    asked = [message for message in story.wire.messages if message.receiver == 0]
    assert not asked, "it has been asked already, and both messages are lost"
    story.give_up(story.node(1))
    story.now_ms += LAG_MS_MAX
    story.tick(story.node(1))
    story.wire.messages.pop().deliver(story.dice)
    assert story.controller.now.isr == (1, 2, 3)
    story.wire.messages.clear()
    story.give_up(story.node(1))
    story.produce(story.node(1))
    story.sync(story.node(1), story.dice, is_all=True)
    story.fetch_all(2)
    assert story.truth.committed == [], "the third is waited for"


def a_replica_is_taken_away_and_given_back(parts: Parts) -> None:
    """T19. Its broker has deleted the log in between, and the leader learns of both at once. It was about to join."""
    story = Story(parts, replicas=3, is_fsynced=True)
    story.fence(3)
    story.learn_newest(1, 2, 3)
    story.commit(2)
    story.heartbeat(story.node(3))
    story.deliver()
    story.fetch_all(3)
    story.report(3)
    for replicas in ([1, 2], [1, 2, 3]):
        story.controller.submit(AlterReassignments([NewReplicas(TOPIC_ID, 0, replicas)]))
        story.learn_newest(3)
    assert story.node(3).disk.log == []
    story.learn_newest(1, 2)
    story.now_ms += 1
    story.tick(story.node(1))
    story.deliver()
    assert 3 not in story.controller.now.isr, "it has not fetched a thing"
    story.settle_down()
    assert story.controller.now.isr == (1, 2, 3)


def a_member_denies_in_another_life(parts: Parts) -> None:
    """It had acknowledged what is damaged at the new leader, and has lost it with its power."""
    story = Story(parts, replicas=3, is_fsynced=False)
    story.commit(2, 3, syncing=False)
    story.rot(story.node(2).disk, 0)
    story.kill_leader(1)
    story.learn_newest(2, 3)
    heir = story.node(2)
    story.lose_power(3)
    story.restart(3)
    story.learn_newest(2, 3)
    story.ask(heir, 3)
    assert heir.leading is None
    story.restart(1)
    story.learn_newest(2)
    story.ask(heir, 1)
    assert heir.disk.log == story.truth.committed


def a_member_denies_in_an_earlier_epoch(parts: Parts) -> None:
    """It lacks what is damaged at the new leader, and acknowledges it a moment later to the old one."""
    story = Story(parts, replicas=3, is_fsynced=False)
    story.produce(story.node(1))
    story.fetch_all(2, syncing=False)
    story.report(2)
    story.rot(story.node(2).disk, 0)
    story.fence(1)
    story.learn_newest(2)
    heir = story.node(2)
    story.ask(heir, 3)
    story.fetch_all(3, syncing=False)
    story.report(3)
    assert len(story.truth.committed) == 1, "by the leader that nobody has told"
    story.learn_newest(3)
    story.ask(heir, 3)
    assert heir.leading is not None
    assert heir.disk.log == story.truth.committed


def some_have_damaged_what_another_lacks(parts: Parts) -> None:
    """A power cut tears a batch on the leader and on one follower; the other never had it. It is not committed."""
    story = Story(parts, replicas=3, is_fsynced=True, min_isr=3)
    story.commit(2, 3)
    story.produce(story.node(1))
    story.fetch_all(2, syncing=False)
    for node in (1, 2, 3):
        story.tear(node)
    for node in (1, 2, 3):
        story.restart(node)
    story.learn_newest(1, 2, 3)
    heir = next(process for process in story.running() if process.settling is not None)
    story.ask(heir, 3 - heir.node)
    if heir.leading is None:
        story.ask(heir, 3)
    assert heir.leading is not None
    assert heir.disk.log == story.truth.committed


def a_torn_copy_is_not_acknowledged(parts: Parts) -> None:
    """A follower has a batch's row, and the batch itself no more: the leader's is the only copy."""
    story = Story(parts, replicas=2, is_fsynced=True)
    story.produce(story.node(1))
    story.sync(story.node(1), story.dice, is_all=True)
    story.fetch_all(2, syncing=False)
    story.tear(2)
    follower = story.restart(2)
    story.fetch(follower)
    story.deliver()
    assert story.truth.committed == []
    story.ask(follower, 1)
    story.settle_down()
    assert len(story.truth.committed) == 1


def a_high_watermark_is_of_another_log(parts: Parts) -> None:
    """While a leader looks into its damaged end, another one leads, and commits another batch there."""
    story = Story(parts, replicas=3, is_fsynced=True, min_isr=1)
    story.produce(story.node(1))
    story.fetch_all(2)
    story.node(2).disk.faulty[0] = None
    story.kill_leader(1)
    story.learn_newest(2)
    heir = story.node(2)
    assert heir.settling is not None
    story.fence(2)
    story.learn_newest(3)
    story.produce(story.node(3))
    story.sync(story.node(3), story.dice, is_all=True)
    assert len(story.truth.committed) == 1
    story.ask(heir, 3)
    assert heir.leading is not None and heir.leading.high_watermark == 0


STORIES: dict[Callable[[Parts], None], str] = {
    a_committed_last_batch_rots: "logs truncated at their first damaged batch",
    a_follower_loses_power_before_anybody_notices: "unclean restart not noticed",
    a_follower_restarts_with_an_old_high_watermark: "truncate to the high watermark",
    somebody_out_of_sync_denies: "denials of any replica",
    a_checkpoint_is_lost: "logs truncated at their checkpoint",
    an_fsync_fails_once: "failed fsyncs are repeated",
    an_answer_about_the_set_is_lost: "revert on an ambiguous answer",
    a_replica_is_taken_away_and_given_back: "no new term when a replica goes",
    a_member_denies_in_another_life: "denials of any life",
    a_member_denies_in_an_earlier_epoch: "denials of any epoch",
    some_have_damaged_what_another_lacks: "one damaged copy more is all",
    a_torn_copy_is_not_acknowledged: "torn copies are acknowledged",
    a_high_watermark_is_of_another_log: "anybody's high watermark is the leader's",
}
"""With the rule that each is about."""


@pytest.mark.parametrize("story", STORIES)
def test_it_ends_well(story: Callable[[Parts], None]) -> None:
    with planted(Mutant()) as parts:
        story(parts)


@pytest.mark.parametrize("story", STORIES)
def test_without_its_rule_it_does_not(story: Callable[[Parts], None]) -> None:
    with planted(MUTANTS[STORIES[story]]) as parts, pytest.raises(Violation):
        story(parts)


def test_what_a_power_cut_has_torn_on_all_members_holds_nobody_up() -> None:
    """It keeps its offset, damaged, and all goes on behind it."""
    story = Story(Parts(), replicas=3, is_fsynced=True, min_isr=3)
    story.commit(2, 3)
    story.produce(story.node(1))
    story.fetch_all(2, 3, syncing=False)
    for node in (1, 2, 3):
        story.tear(node)
    for node in (1, 2, 3):
        story.restart(node)
    story.learn_newest(1, 2, 3)
    heir = next(process for process in story.running() if process.settling is not None)
    for other in {1, 2, 3} - {heir.node}:
        assert heir.leading is None, "a silent member may have it whole"
        story.ask(heir, other)
    assert heir.leading is not None and heir.leading.high_watermark == 2
    story.settle_down()
    story.produce(heir)
    story.settle_down()
    assert len(story.truth.committed) == 3
    assert [[*story.node(node).disk.faulty] for node in (1, 2, 3)] == [[1], [1], [1]]


def test_what_an_outsider_knows_to_be_committed_is_not_forgotten() -> None:
    """The new leader, and the only replica that has heard of the commit, have the batch damaged; who has it is away."""
    story = Story(Parts(), replicas=3, is_fsynced=True)
    story.commit(2, 3)
    outsider = story.node(3)
    story.fetch(outsider)
    story.deliver()
    assert outsider.high_watermark_now == 1
    for node in (3, 2, 1):
        story.fence(node)
    for node in (2, 3):
        story.node(node).disk.faulty[0] = None
    story.end(story.node(1))
    story.end(story.node(2))
    heir = story.restart(2)
    assert 3 not in (*story.controller.now.isr, *story.controller.now.elr)
    story.heartbeat(outsider)
    story.learn_newest(2, 3)
    assert heir.settling is not None and heir.high_watermark == 0
    story.ask(heir, 3)
    assert heir.leading is not None and heir.leading.high_watermark == 1
    story.fetch(outsider)
    story.deliver()
    assert outsider.high_watermark_now == 1


def test_who_comes_back_damaged_joins_when_it_is_repaired() -> None:
    """From then on the leader's disk may be the one that is lost."""
    story = Story(Parts(), replicas=2, is_fsynced=True, min_isr=1)
    story.commit(2)
    story.end(story.node(2))
    story.fence(2)
    story.learn_newest(1)
    story.rot(story.node(2).disk, 0)
    follower = story.restart(2)
    story.settle_down()
    assert story.controller.now.isr == (1,)
    story.ask(follower, 1)
    story.settle_down()
    assert story.controller.now.isr == (1, 2)


def test_who_comes_back_with_what_its_leader_has_lost_too_joins() -> None:
    """A damaged offset keeps down only itself."""
    story = Story(Parts(), replicas=2, is_fsynced=True, min_isr=1)
    story.commit(2)
    story.end(story.node(2))
    story.fence(2)
    story.learn_newest(1)
    for node in (1, 2):
        story.node(node).disk.faulty[0] = None
    story.restart(2)
    story.settle_down()
    assert story.controller.now.isr == (1, 2)


def test_what_is_damaged_apart_is_all_repaired() -> None:
    """T6. Each replica has lost another batch, and nobody has all."""
    story = Story(Parts(), replicas=3, is_fsynced=True)
    for _ in range(3):
        story.commit(2, 3)
    for node in (1, 2, 3):
        story.rot(story.node(node).disk, node - 1)
        assert story.node(node).disk.faulty
    for node in (1, 2, 3):
        story.end(story.node(node))
    for node in (1, 2, 3):
        story.restart(node)
    for _ in range(3):
        story.settle_down()
        for process, other in product(story.running(), (1, 2, 3)):
            if process.node != other and process.disk.faulty:
                story.ask(process, other)
    assert not any(process.disk.faulty for process in story.running())
    assert all(process.disk.log == story.truth.committed for process in story.running())
