"""The change of voters, step by step: what it leaves when it ends early, and that nobody decides otherwise."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.consensus.stage import Site, Stage, play
from tests.unit.broker.isr.stage import until
from tidelog.model.errors import ControllerLost, NotController
from tidelog.replication.paxos.voters import Phase


def phase(site: Site) -> Phase | None:
    return None if site.log is None else site.log.membership.phase


def test_a_voter_is_added_and_another_removed() -> None:
    async def story(stage: Stage) -> None:
        leader = await stage.found()
        added = await stage.enlist(stage.sites[4], 4)
        await leader.run(leader.running.change_voters(add=added))
        assert leader.running.is_leading, "it returns when the new voters have elected this broker"
        await stage.agree(1, 2, 3, 4)
        gone = next(site for site in stage.sites.values() if site is not leader)
        await leader.run(leader.running.change_voters(remove=gone.node_id))
        await stage.agree(*sorted({1, 2, 3, 4} - {gone.node_id}))
        await stage.check_serves()

    play(story, founders=3, spares=1)


def test_one_voter_takes_the_place_of_another() -> None:
    """No majority of the old meets one of the new."""

    async def story(stage: Stage) -> None:
        leader = await stage.found()
        added = await stage.enlist(stage.sites[2], 2)
        await leader.run(leader.running.change_voters(add=added, remove=1))
        await stage.agree(2)
        await stage.sites[1].crash()
        await stage.check_serves()

    play(story, founders=1, spares=1)


def test_a_leader_that_is_removed_returns_when_the_others_are_in_force() -> None:
    async def story(stage: Stage) -> None:
        leader = await stage.found()
        await leader.run(leader.running.change_voters(remove=leader.node_id))
        assert not leader.running.is_leading
        await stage.agree(*sorted({1, 2, 3} - {leader.node_id}))
        await stage.check_serves()

    play(story, founders=3)


def test_no_change_begins_while_an_entry_is_in_flight_or_voters_change() -> None:
    async def story(stage: Stage) -> None:
        leader = await stage.found()
        append = leader.run(leader.running.append(b"entry", 1))
        await asyncio.sleep(0)
        with pytest.raises(NotController):
            await leader.run(leader.running.change_voters(remove=2))
        await append
        first = leader.run(leader.running.change_voters(remove=leader.node_id % 3 + 1))
        await until(lambda: phase(leader) is not None)
        with pytest.raises(NotController):
            await leader.run(leader.running.change_voters(remove=2))
        with pytest.raises(NotController):
            await leader.run(leader.running.append(b"entry", 1))
        await first
        await stage.check_serves()

    play(story, founders=3)


def test_two_at_a_time_are_refused() -> None:
    async def story(stage: Stage) -> None:
        leader = await stage.found()
        log, changer = leader.running, leader.running.leadership.voter_changer
        twice = log.membership.voters.with_change(remove=1).with_change(remove=2)
        with pytest.raises(NotController, match="one at a time"):
            await leader.run(changer.change(twice, log.leadership.number))
        assert phase(leader) is None and log.is_leading
        await stage.check_serves()

    play(story, founders=4)


def test_a_change_that_the_new_voters_do_not_join_is_given_up() -> None:
    """The old voters go on, and the change may be tried again."""

    async def story(stage: Stage) -> None:
        leader = await stage.found()
        added = await stage.enlist(stage.sites[2], 2)
        stage.silent.add(2)
        with pytest.raises(ControllerLost):
            await leader.run(leader.running.change_voters(add=added))
        await until(lambda: leader.running.is_leading)
        assert leader.voter_ids == (1,) and phase(leader) is None
        await leader.run(leader.running.append(b"entry", 1))
        stage.silent.clear()
        await leader.run(leader.running.change_voters(add=added))
        await stage.agree(1, 2)
        await stage.check_serves()

    play(story, founders=1, spares=1)


def test_a_change_whose_caller_has_gone_is_given_up_until_it_is_written() -> None:
    async def story(stage: Stage) -> None:
        leader = await stage.found()
        added = await stage.enlist(stage.sites[2], 2)
        stage.silent.add(2)
        change = leader.run(leader.running.change_voters(add=added))
        await until(lambda: phase(leader) is Phase.JOINING)
        change.cancel()
        await asyncio.wait([change])
        await until(lambda: leader.running.is_leading)
        assert leader.voter_ids == (1,) and phase(leader) is None

        stage.silent.clear()
        change = leader.run(leader.running.change_voters(add=added))
        await watch(leader, Phase.WRITING)
        change.cancel()
        await stage.agree(1, 2)
        await stage.check_serves()

    play(story, founders=1, spares=1)


def test_a_change_is_given_up_if_another_candidates_number_came_between() -> None:
    """The voters would be written by a term that asked the old ones alone."""

    async def story(stage: Stage) -> None:
        leader = await stage.found()
        added = await stage.enlist(stage.sites[2], 2)
        stage.silent.add(2)
        change = leader.run(leader.running.change_voters(add=added))
        await until(lambda: phase(leader) is Phase.JOINING)
        joined_under = leader.running.membership.changing_under
        changer = leader.running.leadership.voter_changer
        assert not changer.is_overtaken(joined_under)
        leader.act(lambda: verdicts.append(changer.is_overtaken(joined_under + (1 << 16))))
        await asyncio.wait([change])
        assert isinstance(change.exception(), ControllerLost) and verdicts == [True]
        await until(lambda: leader.running.is_leading)
        assert leader.running.membership.quorum().members == (1,)

    verdicts: list[bool] = []
    play(story, founders=1, spares=1)


async def watch(site: Site, wanted: Phase) -> None:
    """Waits, by the smallest steps, for a phase that lasts but a moment."""
    async with asyncio.timeout(60):
        while phase(site) is not wanted:
            await asyncio.sleep(0.0001)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("step", [Phase.JOINING, Phase.WRITING])
def test_a_leader_that_dies_at_a_step_leaves_one_set_of_voters(step: Phase, seed: int) -> None:
    """The others finish what was chosen and know nothing of what was not; the dead one comes to the same."""

    async def story(stage: Stage) -> None:
        leader = await stage.found()
        await leader.run(leader.running.append(b"before", 1))
        added = await stage.enlist(stage.sites[4], 4)
        change = leader.run(leader.running.change_voters(add=added))
        await watch(leader, step)
        await asyncio.sleep(stage.rng.uniform(0, 0.005))
        await leader.crash()
        await asyncio.wait([change])
        await stage.check_serves()
        await leader.boot()
        await stage.check_serves()
        voters = {site.voter_ids for site in stage.sites.values()}
        assert voters in ({(1, 2, 3)}, {(1, 2, 3, 4)})

    play(story, founders=3, spares=1, seed=seed)


@pytest.mark.parametrize("seed", range(6))
def test_a_leader_that_dies_once_its_change_is_chosen_cannot_take_it_back(seed: int) -> None:
    async def story(stage: Stage) -> None:
        leader = await stage.found()
        added = await stage.enlist(stage.sites[4], 4)
        change = leader.run(leader.running.change_voters(add=added, remove=leader.node_id % 3 + 1))
        async with asyncio.timeout(60):
            while 4 not in leader.voter_ids:
                await asyncio.sleep(0.0001)
        now = leader.voter_ids
        await leader.crash()
        await asyncio.wait([change])
        await stage.agree(*now)
        await leader.boot()
        await stage.agree(*now)
        await stage.check_serves()

    play(story, founders=3, spares=1, seed=seed)
