"""Classic groups on three brokers: the coordinator's broker ends in each phase, and the next one goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.groups.test_coordinators import play, soon
from tests.integration.replication.three_brokers import NODES, ThreeBrokers, until
from tests.unit.broker.groups.classic_member import ClassicMember
from tidelog.broker.broker import Broker
from tidelog.model.classic_groups import ClassicHeartbeat
from tidelog.model.errors import CoordinatorNotAvailable, NotCoordinator, UnknownMember
from tidelog.model.groups import DescribeGroup, FetchOffsets

SETTINGS: dict[str, Any] = {"group_min_session_timeout_ms": 1_000, "group_initial_rebalance_delay_ms": 500}


class Coordinated:
    """The broker that coordinates, as its members would find it."""

    def __init__(self, three: ThreeBrokers) -> None:
        self._three = three

    @property
    def node(self) -> int:
        live = next(iter(self._three.brokers.values()))
        return live.face.groups.coordinator_node("g")

    @property
    def broker(self) -> Broker:
        return self._three.brokers[self.node]

    async def until_moved(self, was: int) -> None:
        """Another broker coordinates, and answers."""

        def is_moved() -> bool:
            found = self._three.brokers.get(self.node) if self.node != was else None
            coordinator = None if found is None else found.groups.local("g")
            return coordinator is not None and coordinator.is_loaded

        await until(is_moved)


async def two_in_a_group(three: ThreeBrokers) -> tuple[Coordinated, ClassicMember, ClassicMember]:
    place = Coordinated(three)
    await three.brokers[1].face.groups.found(soon())
    await until(lambda: place.broker.groups.local("g") is not None)
    members = ClassicMember(place), ClassicMember(place)
    await asyncio.gather(*(one.join() for one in members))
    await asyncio.gather(*(one.sync() for one in members))
    return place, *members


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("phase", "ends"),
    [
        ("sync", "stops"),
        pytest.param("join", "stops", marks=SLOW),
        pytest.param("stable", "stops", marks=SLOW),
        ("join", "is cut off"),
        pytest.param("sync", "is cut off", marks=SLOW),
        pytest.param("stable", "is cut off", marks=SLOW),
    ],
)
def test_the_next_coordinator_goes_on(phase: str, ends: str) -> None:
    async def story(three: ThreeBrokers) -> None:
        place, first, second = await two_in_a_group(three)
        await first.commit(7)
        waiting: asyncio.Task[object] | None = None
        if phase == "sync":
            await asyncio.gather(first.join(), second.join())
            waiting = asyncio.create_task(second.sync())
        elif phase == "join":
            waiting = asyncio.create_task(ClassicMember(place).join())
        await asyncio.sleep(0.1)
        generation, was = first.joined.generation, place.node
        if ends == "stops":
            await three.stop(was)
        else:
            three.cut_off(was)
        if waiting is not None:
            await asyncio.wait((waiting,))
            assert isinstance(waiting.exception(), NotCoordinator | CoordinatorNotAvailable)
        await place.until_moved(was)
        if phase == "sync":
            await asyncio.gather(first.sync(), second.sync())
        await first.beat()
        await second.commit(9)
        assert first.joined.generation == generation
        offsets = await place.broker.groups.ask(FetchOffsets(group="g"), deadline_s=soon())
        assert [one.offset for one in offsets.offsets] == [9]

    play(story, **SETTINGS)


def test_only_the_coordinator_answers_members_and_any_broker_shows_their_group() -> None:
    async def story(three: ThreeBrokers) -> None:
        place, first, _ = await two_in_a_group(three)
        beat = ClassicHeartbeat(group="g", member_id=first.member_id, generation=first.joined.generation)
        for node in NODES:
            groups = three.brokers[node].groups
            described = await groups.ask(DescribeGroup(group="g"), deadline_s=soon())
            assert (described.kind, described.coordinator, len(described.members)) == ("classic", place.node, 2)
            assert {one.metadata for one in described.members} == {b"m"}
            (listed,) = await groups.list_groups(deadline_s=soon())
            assert (listed.kind, listed.state, listed.members) == ("classic", "Stable", 2)
            if node != place.node:
                with pytest.raises(NotCoordinator):
                    await groups.classic.heartbeat(beat, soon())
        with pytest.raises(UnknownMember):
            stranger = ClassicHeartbeat(group="g", member_id="nobody", generation=1)
            await place.broker.groups.classic.heartbeat(stranger, soon())

    play(story, **SETTINGS)
