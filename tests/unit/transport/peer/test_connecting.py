"""Connections that come, go, and come again; and how soon the death of a peer is known."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.transport.peer.brokers import PORT, Echo, World, in_world, now_s
from tidelog.transport.peer import Lane, PeerUnreachable

# -- down ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_process_is_known_within_milliseconds_and_once(seed: int) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        await asyncio.sleep(2)
        killed_s = now_s()
        two.host.kill()
        await asyncio.sleep(5)
        assert [node_id for node_id, _ in one.downs] == [2]
        assert one.downs[0][1] - killed_s < 0.01

    in_world(scenario, seed)


def test_a_process_that_dies_young_is_known_soon_too() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        two.host.kill()
        await asyncio.sleep(0.1)
        assert [node_id for node_id, _ in one.downs] == [2]

    in_world(scenario)


def test_a_peer_that_leaves_in_order_is_down_as_well() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        await asyncio.sleep(2)
        await two.node.close()
        await asyncio.sleep(0.1)
        assert [node_id for node_id, _ in one.downs] == [2]

    in_world(scenario)


def test_a_peer_is_in_doubt_from_its_last_connection_until_it_is_known_to_be_down_or_back() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        await asyncio.sleep(2)
        assert (one.node.in_doubt, [*one.node.down]) == ([], [])
        two.host.kill()
        states = []
        for _ in range(1000):
            await asyncio.sleep(0.00001)
            states.append((one.node.in_doubt, [*one.node.down]))
        seen = [state for state, before in zip(states, [None, *states], strict=False) if state != before]
        assert seen == [([], []), ([2], []), ([], [2])]
        await asyncio.sleep(30)
        assert one.node.in_doubt == []
        assert {node_id: round(down_s) for node_id, down_s in one.node.down.items()} == {2: 30}
        await world.start(2)
        await asyncio.sleep(5)
        assert (one.node.in_doubt, [*one.node.down]) == ([], [])

    in_world(scenario)


def test_a_peer_behind_a_cut_is_not_in_doubt_for_long_and_not_down() -> None:
    async def scenario(world: World) -> None:
        one, _ = await world.start_pair()
        await asyncio.sleep(2)
        world.network.reset("10.0.0.1", "10.0.0.2")
        while not one.node.in_doubt:
            await asyncio.sleep(0.00001)
        world.network.cut("10.0.0.1", "10.0.0.2")
        await asyncio.sleep(0.01)
        assert (one.node.in_doubt, [*one.node.down]) == ([2], [])
        await asyncio.sleep(60)
        assert (one.node.in_doubt, [*one.node.down]) == ([], [])

    in_world(scenario)


def test_silence_confirms_nothing() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        await asyncio.sleep(2)
        two.host.cut_power()
        for lane in Lane:
            one.node.notify(2, Echo("is anybody there?"), lane=lane)
        await asyncio.sleep(60)
        assert one.downs == []
        with pytest.raises(PeerUnreachable):
            await one.node.request(2, Echo(""), deadline_s=10)

    in_world(scenario)


def test_a_cut_confirms_nothing_and_a_break_is_mended_without_a_word() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        await asyncio.sleep(2)
        world.network.cut("10.0.0.1", "10.0.0.2")
        for lane in Lane:
            one.node.notify(2, Echo("is anybody there?"), lane=lane)
        await asyncio.sleep(60)
        assert one.node.hello_of(2) is None
        world.network.heal()
        await asyncio.sleep(5)
        await one.echo(two)
        world.network.reset("10.0.0.1", "10.0.0.2")
        await asyncio.sleep(1)
        await one.echo(two)
        assert one.downs == two.downs == []

    in_world(scenario)


def test_a_peer_that_never_was_there_is_not_down() -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        world.network.host("10.0.0.2")
        one.node.know(2, "10.0.0.2", PORT)
        await asyncio.sleep(10)
        assert one.downs == []

    in_world(scenario)


def test_one_lost_connection_of_two_is_not_a_death() -> None:
    async def scenario(world: World) -> None:
        one, _ = await world.start_pair()
        await asyncio.sleep(2)
        world.network.link("10.0.0.1", "10.0.0.2").refuses = True
        next(end for end in one.host.connections if not end.is_accepted).reset()
        await asyncio.sleep(5)
        assert one.downs == []
        world.network.reset("10.0.0.1", "10.0.0.2")
        await asyncio.sleep(5)
        assert [node_id for node_id, _ in one.downs] == [2]

    in_world(scenario)


def test_a_restarted_peer_is_found_again_and_may_die_again() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        for round_ in range(1, 4):
            await asyncio.sleep(2)
            two.host.kill()
            await asyncio.sleep(0.5)
            assert len(one.downs) == round_
            two = await world.start(2)
            await asyncio.sleep(1.5)
            await one.echo(two)

    in_world(scenario)


# -- again and again -------------------------------------------------------------------------------------------------


def test_attempts_come_less_often_and_out_of_step() -> None:
    async def scenario(world: World) -> list[int]:
        one = await world.start(1)
        world.network.host("10.0.0.2")
        one.node.know(2, "10.0.0.2", PORT)
        attempts = []
        for _ in range(6):
            before = one.node.statistics.failed_connects
            await asyncio.sleep(10)
            attempts.append(one.node.statistics.failed_connects - before)
        return attempts

    runs = [in_world(scenario, seed) for seed in (1, 2)]
    for attempts in runs:
        assert 20 <= attempts[0] <= 60, "two lanes, quick at first"
        assert all(20 <= count <= 42 for count in attempts[1:]), "then each at most every half second"
    assert runs[0] != runs[1]


def test_a_sign_of_life_ends_the_waiting() -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        world.network.host("10.0.0.2")
        one.node.know(2, "10.0.0.2", PORT)
        await asyncio.sleep(60)
        two = await world.start(2)
        two.know(one)
        begun_s = now_s()
        await two.echo(one)
        await one.echo(two)
        assert now_s() - begun_s < 0.05

    in_world(scenario)


def test_a_peer_that_hangs_up_at_once_is_not_dialled_without_end() -> None:
    class Rude:
        def __init__(self, connection: object) -> None:
            connection.close()  # type: ignore[attr-defined]  # a FrameConnection

        def frame_received(self, frame: memoryview) -> None:
            pass

        def connection_lost(self, error: Exception | None) -> None:
            pass

    async def scenario(world: World) -> None:
        one = await world.start(1)
        await world.network.host("10.0.0.2").listen("", PORT, Rude)
        one.node.know(2, "10.0.0.2", PORT)
        await asyncio.sleep(60)
        assert 100 <= one.node.statistics.failed_connects <= 300
        assert one.downs == []

    in_world(scenario)


def test_a_peer_that_greets_and_hangs_up_is_not_dialled_without_end_either() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2, broker_epoch=5)
        one.know(two)
        for _ in range(600):
            await asyncio.sleep(0.1)
            for end in list(two.host.connections):
                end.close()
        assert 60 <= one.node.statistics.connects <= 300
        assert one.downs == []

    in_world(scenario)


def test_patience_grows_anew_after_a_connection_that_lasted() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        for _ in range(2):
            two.host.kill()
            before = one.node.statistics.failed_connects
            await asyncio.sleep(0.2)
            assert one.node.statistics.failed_connects - before >= 6, "three quick attempts of each lane"
            await asyncio.sleep(60)
            two = await world.start(2)
            await asyncio.sleep(3)

    in_world(scenario)


def test_a_request_right_after_a_break_waits_for_the_next_connection() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        await asyncio.sleep(2)
        for end in list(one.host.connections):
            end.lose(ConnectionResetError("unplugged"))
        await one.echo(two)

    in_world(scenario)


def test_a_peer_that_moved_is_followed_and_one_that_left_is_forgotten() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        moved = await world.start(2, address="10.0.0.12")
        one.know(two)
        await asyncio.sleep(1)
        assert one.node.statistics.connects == 2
        one.know(moved)
        await one.echo(moved)
        assert not [end for end in two.host.connections if end.is_accepted]
        one.node.forget(2)
        one.node.forget(2)
        with pytest.raises(PeerUnreachable, match="not known"):
            await one.node.request(2, Echo(""), deadline_s=1)
        assert not one.node.notify(2, Echo(""))
        await asyncio.sleep(1)
        assert not [end for end in one.host.connections if not end.is_accepted]
        assert one.downs == []

    in_world(scenario)


def test_who_waits_for_a_peer_that_is_forgotten_is_told() -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        one.node.know(2, "10.0.0.2", PORT)
        waiting = asyncio.create_task(one.node.request(2, Echo(""), deadline_s=60))
        await asyncio.sleep(0.1)
        one.node.forget(2)
        with pytest.raises(PeerUnreachable, match="is not a peer any more"):
            await waiting
        assert now_s() < 1

    in_world(scenario)
