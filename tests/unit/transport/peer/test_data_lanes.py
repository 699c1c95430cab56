"""Several connections to each peer for batches (`PeerBounds.data_lanes`)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.unit.transport.peer.brokers import BOUNDS, Broker, Echo, World, in_world
from tidelog.transport.peer import Lane, PeerBounds, PeerUnreachable

FOUR = replace(BOUNDS, data_lanes=4)
DATA = [Lane.DATA, 2, 3, 4]


async def start_pair(world: World, *, other: PeerBounds = FOUR) -> tuple[Broker, Broker]:
    """Broker 1 with four lanes, and broker 2, connected both ways."""
    one, two = await world.start(1, bounds=FOUR), await world.start(2, bounds=other)
    one.know(two)
    two.know(one)
    await asyncio.sleep(1)
    return one, two


async def heard_by(two: Broker, one: Broker, lanes: list[int]) -> list[str]:
    """Sends a notification by each of these lanes, and returns those that arrive."""
    two.handler.notes.clear()
    sent = [one.node.notify(2, Echo(f"by {lane}"), lane=lane) for lane in lanes]
    await asyncio.sleep(1)
    assert sent.count(True) == len(two.handler.notes)
    return sorted(two.handler.notes)


def test_frames_go_by_each_lane() -> None:
    async def scenario(world: World) -> None:
        one, two = await start_pair(world)
        assert one.node.data_lanes(2) == DATA
        assert one.node.data_lanes(3) == []
        assert one.node.statistics.connects == 1 + len(DATA)
        assert await heard_by(two, one, DATA) == [f"by {lane}" for lane in DATA]

    in_world(scenario)


def test_a_broker_with_one_lane_opens_as_many_connections_as_ever_and_hears_all() -> None:
    async def scenario(world: World) -> None:
        one, two = await start_pair(world, other=BOUNDS)
        assert two.node.data_lanes(1) == [Lane.DATA]
        assert two.node.statistics.connects == len(Lane)
        assert two.node.statistics.accepts == 1 + len(DATA)
        assert await heard_by(two, one, DATA) == [f"by {lane}" for lane in DATA]
        await two.echo(one)

    in_world(scenario)


def test_a_lane_that_breaks_is_left_out_until_it_is_open_again_and_the_peer_stays_up() -> None:
    async def scenario(world: World) -> None:
        one, two = await start_pair(world)
        await asyncio.sleep(2)
        broken = one.node._peers[2].lanes[3].end
        assert broken is not None
        broken.connection.reset()  # type: ignore[attr-defined]  # a simulated one
        while one.node.data_lanes(2) == DATA:
            await asyncio.sleep(0.0001)
        assert one.node.data_lanes(2) == [1, 2, 4]
        assert await heard_by(two, one, [1, 2, 4]) == ["by 1", "by 2", "by 4"]
        assert one.node.data_lanes(2) == DATA
        assert (one.downs, one.node.silent) == ([], [])

    in_world(scenario)


def test_a_lane_that_stalls_makes_nobody_silent() -> None:
    async def scenario(world: World) -> None:
        one, two = await start_pair(world)
        stalled = one.node._peers[2].lanes[4].end
        assert stalled is not None
        stalled.connection.out.is_clogged = True  # type: ignore[attr-defined]  # a simulated one
        assert one.node.notify(2, Echo("never comes"), lane=4)
        for _ in range(10):
            await one.echo(two)
            await asyncio.sleep(0.5)
        assert (two.handler.notes, one.node.silent, one.downs) == ([], [], [])

    in_world(scenario)


def test_a_killed_process_with_several_lanes_is_down_once() -> None:
    async def scenario(world: World) -> None:
        one, two = await start_pair(world)
        await asyncio.sleep(2)
        two.host.kill()
        await asyncio.sleep(5)
        assert [node_id for node_id, _ in one.downs] == [2]
        assert one.node.data_lanes(2) == []

    in_world(scenario)


def test_an_earlier_process_is_refused_on_every_lane() -> None:
    async def scenario(world: World) -> None:
        one, two = await start_pair(world)
        one.node.accept_only(2, two.hello.incarnation, 5)
        one.node.accept_only(2, "a later life", 9)
        await asyncio.sleep(5)
        assert one.node.data_lanes(2) == two.node.data_lanes(1) == []
        with pytest.raises(PeerUnreachable):
            await one.node.request(2, Echo(""), deadline_s=1, lane=Lane.DATA)

    in_world(scenario)


@pytest.mark.parametrize(("lanes", "accepted"), [(1, 512), (2, 768), (8, 2304)])
def test_as_many_peers_are_accepted_with_more_lanes(lanes: int, accepted: int) -> None:
    assert PeerBounds(data_lanes=lanes).accepted_max == accepted
