"""The classic groups of a coordinator: who waits, what is told when, and what becomes of them with the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.broker.groups.classic_member import SETTINGS, ClassicMember
from tests.unit.broker.groups.stage import Stage, play, soon, until
from tidelog.broker.groups import classics
from tidelog.broker.groups.classics import Classics
from tidelog.groups.records import CLASSIC_LEVEL
from tidelog.model.classic_groups import CommitAsMember, LeaveGroup, Leaving
from tidelog.model.errors import (
    CoordinatorLost,
    CoordinatorNotAvailable,
    GroupNotEmpty,
    InvalidGroupName,
    NotCoordinator,
    Overloaded,
    RebalanceInProgress,
    TooLarge,
    UnknownMember,
    UnsupportedLevel,
)
from tidelog.model.groups import CommittedOffset, DeleteGroup
from tidelog.sim.kit.patching import patched


def classics_of(stage: Stage) -> Classics:
    found = stage.coordinator._classics
    assert found is not None
    return found


async def two_in_a_group(stage: Stage) -> tuple[ClassicMember, ClassicMember]:
    first, second = ClassicMember(stage), ClassicMember(stage)
    await first.enter()
    joining = asyncio.create_task(second.join())
    await until(lambda: bool(second.member_id) and classics_of(stage).waiting == 1)
    await asyncio.gather(first.join(), joining)
    await asyncio.gather(first.sync(), second.sync())
    return first, second


def told(task: asyncio.Task[Any], kind: type[BaseException]) -> bool:
    return isinstance(task.exception(), kind)


def test_two_members_share_a_group_and_go_on_after_their_broker_comes_back() -> None:
    async def story(stage: Stage) -> None:
        first, second = await two_in_a_group(stage)
        assert (first.joined.leader, first.joined.generation) == (second.joined.leader, 2)
        assert second.assignment == f"of {second.member_id}".encode()
        await second.commit(5)
        await stage.restart()
        await first.beat()
        await second.commit(6)
        assert await stage.offsets() == {0: 6}
        assert (await second.sync()).assignment == second.assignment
        await second.leave()
        await first.join()
        assert first.joined.generation == 3
        assert (await stage.replayed()).groups["g"].classic_record == stage.state.shard.groups["g"].classic_record

    play(story, **SETTINGS)


def test_a_generation_and_its_assignment_are_told_when_they_are_committed() -> None:
    async def story(stage: Stage) -> None:
        member = ClassicMember(stage)
        await stage.commit(0, 1)
        for step in (member.join, member.sync):
            stage.writing.clear()
            task = asyncio.create_task(step())
            await asyncio.sleep(1)
            assert not task.done()
            stage.writing.set()
            await task
        assert member.assignment == f"of {member.member_id}".encode()

    play(story, **SETTINGS)


def test_an_assignment_that_may_be_lost_is_told_to_nobody() -> None:
    """The follower has written nothing itself, and must not be told either."""

    async def story(stage: Stage) -> None:
        first, second = await two_in_a_group(stage)
        await asyncio.gather(first.join(), second.join())
        waiting = asyncio.create_task(second.sync())
        await until(lambda: classics_of(stage).waiting == 1)
        stage.writing.clear()
        leading = asyncio.create_task(first.sync())
        await asyncio.wait((waiting, leading))
        assert told(waiting, NotCoordinator)
        assert told(leading, NotCoordinator)
        stage.writing.set()
        await until(lambda: stage.coordinator.is_loaded)
        await asyncio.gather(first.sync(), second.sync())
        assert second.assignment == f"of {second.member_id}".encode()

    play(story, **SETTINGS)


@pytest.mark.parametrize("phase", ["join", "sync"])
@pytest.mark.parametrize("ends", ["closed", "failed"])
def test_who_waits_is_told_that_the_coordinator_is_none_any_more(phase: str, ends: str) -> None:
    async def story(stage: Stage) -> None:
        first, second = await two_in_a_group(stage)
        if phase == "join":
            await stage.commit(0, 1, "other")
            newcomer = ClassicMember(stage)
            task: asyncio.Task[object] = asyncio.create_task(newcomer.join())
            await until(lambda: bool(newcomer.member_id))
        else:
            await asyncio.gather(first.join(), second.join())
            task = asyncio.create_task(second.sync())
        await until(lambda: classics_of(stage).waiting == 1)
        if ends == "closed":
            stage.coordinator.close()
        else:
            stage.writing.clear()
            with pytest.raises(CoordinatorLost):
                await stage.commit(0, 1, "other")
            stage.writing.set()
        await asyncio.wait((task,))
        assert told(task, NotCoordinator)

    play(story, **SETTINGS)


def test_a_commit_of_unknown_fate_is_told_as_that() -> None:
    async def story(stage: Stage) -> None:
        member = ClassicMember(stage)
        await member.enter()
        stage.writing.clear()
        with pytest.raises(CoordinatorLost):
            await member.commit(1)
        stage.writing.set()

    play(story, **SETTINGS)


def test_time_goes_on_by_itself() -> None:
    """The wait for more members, a session, and the wait for those that do not join again."""

    async def story(stage: Stage) -> None:
        loop = asyncio.get_running_loop()
        first, second = ClassicMember(stage), ClassicMember(stage, session_timeout_ms=60_000)
        began_s = loop.time()
        await asyncio.gather(first.join(), second.join())
        assert loop.time() - began_s == pytest.approx(4, abs=0.3), "the second one made it longer"
        await asyncio.gather(first.sync(), second.sync())
        await until(lambda: stage.state.shard.groups["g"].state.value == "PreparingRebalance")
        assert loop.time() - began_s == pytest.approx(9, abs=0.4)
        await second.join()
        assert [one.member_id for one in second.joined.members] == [second.member_id]

    play(story, **SETTINGS | {"group_initial_rebalance_delay_ms": 2_000})


def test_a_caller_that_goes_away_or_waits_no_longer_leaves_nothing_behind() -> None:
    async def story(stage: Stage) -> None:
        first = ClassicMember(stage)
        await first.enter()
        second = ClassicMember(stage)
        with pytest.raises(RebalanceInProgress):
            await second.join(wait_s=1)
        gone = asyncio.create_task(second.join())
        await until(lambda: classics_of(stage).waiting == 1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert classics_of(stage).waiting == 0
        await first.join()
        assert (await second.join()).generation == 2
        assert len(stage.state.shard.groups["g"].classic_record.members) == 2  # type: ignore[union-attr]  # there is one

    play(story, **SETTINGS)


def test_bounds_are_told_as_not_now() -> None:
    async def story(stage: Stage) -> None:
        member = ClassicMember(stage)
        await member.enter()
        with patched(classics, "WAITS_MAX", 0), pytest.raises(CoordinatorNotAvailable):
            await ClassicMember(stage).join()
        with patched(classics, "BYTES_MAX", 10), pytest.raises(CoordinatorNotAvailable):
            await ClassicMember(stage, group="h").join()
        assert (await member.sync()).assignment

    play(story, **SETTINGS)


def test_assignments_that_no_record_holds_are_refused_and_nothing_has_changed() -> None:
    async def story(stage: Stage) -> None:
        member = ClassicMember(stage)
        await member.join()
        honest = member.joined.members
        with patched(Classics, "_carry_out", _too_large), pytest.raises(TooLarge):
            await member.sync()
        assert member.joined.members == honest
        await member.sync()
        assert stage.state.shard.groups["g"].state.value == "Stable"

    play(story, **SETTINGS)


def _too_large(*_: object) -> None:
    raise TooLarge("it is")


def test_what_cannot_be_written_now_is_done_a_little_later() -> None:
    async def story(stage: Stage) -> None:
        member = ClassicMember(stage)
        await member.enter()
        carry_out: Callable[..., None] = Classics._carry_out
        refused = 0

        def at_first_not(self: Classics, turn: object) -> None:
            nonlocal refused
            refused += 1
            if refused == 1:
                raise Overloaded("not now")
            carry_out(self, turn)

        with patched(Classics, "_carry_out", at_first_not):
            await until(lambda: stage.state.shard.groups["g"].state.value == "Empty")
        assert refused == 2

    play(story, **SETTINGS)


def test_nobody_joins_before_all_brokers_can_load_such_a_group() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        with pytest.raises(UnsupportedLevel, match="upgrade"):
            await ClassicMember(stage).join()

    play(story, **SETTINGS, feature_level_max=CLASSIC_LEVEL - 1)


def test_another_brokers_group_is_not_spoken_of_here() -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(NotCoordinator):
            await stage.broker.groups.classic.leave(LeaveGroup(group="g", members=(Leaving("m"),)), soon())
        with pytest.raises(InvalidGroupName):
            await stage.broker.groups.classic.leave(LeaveGroup(group="", members=()), soon())

    play(story, **SETTINGS)


def test_who_is_no_member_commits_and_a_group_with_members_is_not_deleted() -> None:
    async def story(stage: Stage) -> None:
        groups = stage.broker.groups
        await stage.commit(0, 1)
        free = CommitAsMember(group="g", offsets=(CommittedOffset("t", 1, 2),))
        await groups.classic.commit(free, soon())
        assert await stage.offsets() == {0: 1, 1: 2}
        member = ClassicMember(stage)
        await member.enter()
        with pytest.raises(UnknownMember):
            await groups.classic.commit(free, soon())
        with pytest.raises(GroupNotEmpty):
            await groups.ask(DeleteGroup(group="g"), deadline_s=soon())
        await member.leave()
        await groups.ask(DeleteGroup(group="g"), deadline_s=soon())
        assert await stage.offsets() == {}

    play(story, **SETTINGS)
