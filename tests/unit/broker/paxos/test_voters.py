"""Changes of who votes in a Paxos partition, told as stories on a stage of three brokers."""

from __future__ import annotations

import asyncio

import msgspec

from tests.unit.broker.isr.stage import PARTITION, until
from tests.unit.broker.paxos.stage import Stage, play
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.messages import PartitionFrame
from tidelog.model.errors import ControllerLost, TimedOutAfterAppend
from tidelog.replication.paxos.messages import PromiseResponse, WriteResponse


def test_a_voter_takes_the_place_of_another_while_producers_go_on() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        for number in range(10):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        await stage.quiet()
        meanwhile = [asyncio.ensure_future(stage.produce(1, b"m%d" % number)) for number in range(20)]
        await stage.change(1, add=4, remove=3)
        for outcome in await asyncio.gather(*meanwhile):
            assert isinstance(outcome, ProduceReceipt)
        assert stage.sites[1].replica.voters.ids == (1, 2, 4)
        await until(lambda: stage.sites[1].replica.voting.is_settled)
        assert not stage.sites[2].replica.voting.is_settled
        stage.sites[2].pause()
        stage.sites[3].pause()
        receipt = await stage.produce(1, b"new")
        assert isinstance(receipt, ProduceReceipt) and receipt.acked_by == [1, 4]
        await stage.quiet([1, 4])
        assert stage.sites[4].content() == stage.sites[1].content()

    play(story, spares=1)


def test_a_leader_that_is_removed_leads_no_more_and_the_others_go_on_without_it() -> None:
    async def story(stage: Stage) -> None:
        partition = await stage.lead(1)
        assert isinstance(await stage.produce(1, b"a"), ProduceReceipt)
        await stage.change(1, remove=1)
        assert not partition.is_serving and stage.sites[1].replica.is_deposed
        await stage.lead(2)
        await stage.sites[1].crash()
        receipt = await stage.produce(2, b"b")
        assert isinstance(receipt, ProduceReceipt) and receipt.acked_by == [2, 3]

    play(story)


def test_the_only_voter_is_the_only_candidate_until_another_one_is_asked_for_its_vote() -> None:
    async def story(stage: Stage) -> None:
        stage.elect(1)
        await until(lambda: stage.sites[1].replica.leader is not None)
        first = stage.sites[1].replica.leader
        assert first is not None and not first.is_only_candidate, "it is not elected yet"
        await until(lambda: first.is_serving)
        assert first.is_only_candidate

        answers: list[bool] = []

        def note(sender: int, to: int, frame: msgspec.Struct) -> bool:
            votes = isinstance(frame, PartitionFrame) and isinstance(
                frame.frame.message, PromiseResponse | WriteResponse
            )
            if sender == 2 and votes:
                answers.append(first.is_only_candidate)
            return True

        stage.on_frame = note
        await stage.change(1, add=2)
        await until(lambda: first.is_serving)
        assert answers and not any(answers) and not first.is_only_candidate
        second = await stage.lead(2)
        assert not first.is_only_candidate and not second.is_only_candidate
        await stage.change(2, remove=1)
        await until(lambda: second.is_only_candidate)
        assert not first.is_only_candidate

    play(story, replicas=1, spares=1)


def test_voters_are_remembered_over_a_truncation_and_a_loss_of_power() -> None:
    async def story(stage: Stage) -> None:
        await stage.restart(JournalBounds(bytes_max=1 << 30, slots_max=20))
        await stage.lead(1)
        await stage.change(1, add=4, remove=3)
        for number in range(60):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        await until(lambda: stage.sites[4].replica.engine.node.replica.begin > 20)
        await stage.quiet()
        for site in stage.sites.values():
            await site.crash()
        await stage.boot()
        await stage.sites[3].crash()
        await stage.lead(4)
        assert stage.sites[4].replica.voters.ids == (1, 2, 4)
        receipt = await stage.produce(4, b"more")
        assert isinstance(receipt, ProduceReceipt) and receipt.base_offset == 60

    play(story, spares=1)


def test_a_change_that_the_new_voter_does_not_join_is_given_up_in_time() -> None:
    """No election is there to end the attempt: the old voters would be held up for ever."""

    async def story(stage: Stage) -> None:
        await stage.lead(1)
        stage.cut = {(1, 2)}
        try:
            await stage.change(1, add=2)
        except ControllerLost:
            pass
        else:
            raise AssertionError("nobody can have agreed")
        await until(lambda: stage.sites[1].replica.leader is not None and stage.sites[1].replica.leader.is_serving)
        assert stage.sites[1].replica.voters.ids == (1,) and stage.sites[1].replica.voting.is_settled
        assert isinstance(await stage.produce(1, b"a"), ProduceReceipt)

    play(story, replicas=1, spares=1)


def test_a_change_without_a_majority_comes_to_nothing_and_ends_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        stage.cut = {(1, 4), (2, 4), (3, 4), (1, 3)}
        stage.sites[2].pause()
        try:
            await stage.change(1, add=4)
        except ControllerLost:
            pass
        else:
            raise AssertionError("nobody can have agreed")
        stage.sites[2].resume()
        stage.cut = set()
        await until(lambda: stage.sites[1].replica.leader is not None and stage.sites[1].replica.leader.is_serving)
        assert isinstance(await stage.produce(1, b"a"), ProduceReceipt)

    play(story, spares=1)


def test_who_jumps_over_a_change_of_voters_is_told_of_it_and_remembers() -> None:
    async def story(stage: Stage) -> None:
        await stage.restart(JournalBounds(bytes_max=1 << 30, slots_max=20))
        await stage.lead(1)
        await stage.produce(1, b"first")
        await stage.quiet()
        await stage.sites[3].crash()
        await stage.change(1, add=4, remove=2)
        changed_at = stage.sites[1].replica.voting.membership.position
        for number in range(60):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        await until(lambda: stage.sites[1].replica.engine.node.replica.begin > changed_at)
        await stage.sites[3].boot()
        third = stage.sites[3].replica
        await stage.quiet([1, 3, 4])
        assert third.engine.node.replica.begin > changed_at and third.voters.ids == (1, 3, 4)
        await asyncio.sleep(1.0)
        for site in stage.sites.values():
            await site.crash()
        for node in (1, 3):
            await stage.sites[node].boot()
        assert stage.sites[3].replica.voters.ids == (1, 3, 4)
        await stage.lead(3)
        receipt = await stage.produce(3, b"more")
        assert isinstance(receipt, ProduceReceipt) and receipt.acked_by == [1, 3]

    play(story, spares=1)


def test_who_copies_a_log_that_is_further_than_its_own_jump_learns_the_voters_when_it_has_come_so_far() -> None:
    """It has jumped once, and while it copies the others change who votes, and truncate that as well."""

    async def story(stage: Stage) -> None:
        await stage.restart(JournalBounds(bytes_max=1 << 30, slots_max=20))
        await stage.lead(1)
        await stage.produce(1, b"first")
        await stage.quiet()
        site, node = stage.sites[3], stage.sites[1].replica.engine.node
        await site.crash()
        for number in range(60):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        await until(lambda: node.replica.begin > 5)
        stage.asks_answered = False
        await site.boot()
        await until(lambda: site.replica.engine.node.replica.begin > 5)
        stage.on_frame = lambda sender, to, message: to != 3
        await stage.change(1, add=4, remove=2)
        changed_at = stage.sites[1].replica.voting.membership.position
        for number in range(100):
            assert isinstance(await stage.produce(1, b"w%d" % number), ProduceReceipt)
        await until(lambda: node.replica.begin > changed_at)
        stage.asks_answered = True
        await asyncio.sleep(1.0)
        stage.on_frame = lambda sender, to, message: True
        await stage.quiet([1, 3, 4])
        await until(lambda: site.replica.voters.ids == (1, 3, 4))
        assert site.content() == stage.sites[1].content()

    play(story, spares=1)


def test_a_disk_that_was_given_another_id_still_votes_under_the_one_that_the_log_names() -> None:
    """A move may be called off and ordered again, while the log makes the replica a voter for the first order."""

    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await stage.change(1, add=4, remove=3)
        await stage.sites[2].crash()
        site = stage.sites[4]
        site.engine_id = 9
        site.act(lambda: site.replica.set_engine_id(9))
        receipt = await stage.produce(1, b"a")
        assert isinstance(receipt, ProduceReceipt) and receipt.acked_by == [1, 4]
        await site.crash()
        await site.boot()
        await stage.lead(1)
        receipt = await stage.produce(1, b"b")
        assert isinstance(receipt, ProduceReceipt) and receipt.acked_by == [1, 4]

    play(story, spares=1)


def test_a_replica_that_lost_its_journal_is_mute_until_it_has_another_id() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        assert isinstance(await stage.produce(1, b"a"), ProduceReceipt)
        await stage.quiet()
        await stage.sites[3].crash()
        stage.sites[3].disk.remove_tree(f"topics/{PARTITION.topic_id}/0/journal")
        for _ in range(2):
            await stage.sites[3].boot()
            third = stage.sites[3].replica
            assert isinstance(await stage.produce(1, b"b"), ProduceReceipt)
            await stage.quiet()
            assert third.lost_engine_id == 3
            assert not third.is_voting and stage.sites[3].content() == stage.sites[1].content()
            await stage.sites[3].crash()
        stage.sites[2].pause()
        await stage.sites[3].boot()
        assert isinstance(await stage.produce(1, b"c", wait_s=1.0), TimedOutAfterAppend)
        stage.sites[2].resume()
        stage.sites[3].act(lambda: stage.sites[3].replica.set_engine_id(9))
        await until(lambda: stage.sites[3].replica.is_voting)
        assert stage.sites[3].replica.lost_engine_id == 0

    play(story)
