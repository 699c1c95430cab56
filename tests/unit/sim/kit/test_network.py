"""The simulated network: what each condition does to frames, connections and machines."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from tidelog.model.ports import FrameConnection
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.network import SimHost, SimNetwork

T = TypeVar("T")

A, B = "10.0.0.1", "10.0.0.2"
WHOSE: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")


class End:
    """A receiver that keeps what came, and when."""

    def __init__(self, connection: FrameConnection) -> None:
        self.connection = connection
        self.frames: list[int] = []
        self.times: list[float] = []
        self.losses: list[Exception | None] = []
        self.lost_s = -1.0
        self.contexts: list[str] = [WHOSE.get()]

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(int.from_bytes(frame))
        self.times.append(now_s())
        self.contexts.append(WHOSE.get())

    def connection_lost(self, error: Exception | None) -> None:
        self.losses.append(error)
        self.lost_s = now_s()
        self.contexts.append(WHOSE.get())

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.connection.send([number.to_bytes(4)])


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def connect(network: SimNetwork, one: str = A, other: str = B) -> tuple[End, End]:
    """Both ends of a fresh connection; the first dialled."""
    made: list[End] = []

    def receiver(connection: FrameConnection) -> End:
        made.append(End(connection))
        return made[-1]

    listener = await network.host(other).listen("", 0, receiver)
    await network.host(one).connect(*listener.address, receiver, timeout_s=10)
    return made[1], made[0]


def play(scenario: Callable[[SimNetwork], Coroutine[Any, Any, T]], seed: int = 0) -> T:
    return run(lambda: scenario(SimNetwork(random.Random(seed))))


# -- the way ---------------------------------------------------------------------------------------------------------


def test_frames_stay_in_order_on_a_connection_whatever_their_delays() -> None:
    async def scenario(network: SimNetwork) -> None:
        one, other = await connect(network)
        link = network.link(A, B)
        link.delay_s_min, link.delay_s_mean, link.tail_rate = 0.01, 0.05, 0.2
        begun_s = now_s()
        one.send(*range(200))
        other.send(7)
        await asyncio.sleep(0.005)
        assert (one.frames, other.frames) == ([7], []), "each direction has its own conditions"
        await asyncio.sleep(60)
        assert other.frames == list(range(200))
        assert other.times[0] - begun_s > 0.01
        assert other.times[-1] - begun_s > 0.1, "the slowest holds up those behind it"

    play(scenario)


def test_connections_do_not_wait_for_each_other() -> None:
    async def scenario(network: SimNetwork) -> None:
        (one, other), (two, another) = await connect(network), await connect(network)
        network.link(A, B).tail_rate = 1.0
        one.send(1)
        network.link(A, B).tail_rate = 0.0
        two.send(2)
        await asyncio.sleep(10)
        assert (other.frames, another.frames) == ([1], [2])
        assert another.times < other.times

    play(scenario)


def test_what_waits_in_a_clog_arrives_after_it_however_long_it_took() -> None:
    async def scenario(network: SimNetwork) -> None:
        one, other = await connect(network)
        one.send(1)
        network.link(A, B).clog()
        one.send(2, 3)
        other.send(4)
        await asyncio.sleep(3600)
        assert (one.frames, other.frames) == ([4], [])
        network.link(A, B).unclog()
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        assert other.frames == [1, 2, 3]
        assert network.statistics["clogged"] == 1

    play(scenario)


def test_a_cut_that_heals_in_time_loses_nothing() -> None:
    async def scenario(network: SimNetwork) -> None:
        one, other = await connect(network)
        network.cut(A, B)
        one.send(1)
        other.send(2)
        await asyncio.sleep(14)
        assert (one.frames, other.frames) == ([], [])
        network.heal()
        await asyncio.sleep(1)
        assert (one.frames, other.frames) == ([2], [1])

    play(scenario)


def test_a_sender_loses_patience_with_a_cut_and_its_peer_hears_of_it_when_it_can() -> None:
    async def scenario(network: SimNetwork) -> None:
        one, other = await connect(network)
        network.link(A, B).cut()
        one.send(1)
        await asyncio.sleep(60)
        assert isinstance(one.losses[0], TimeoutError)
        assert one.lost_s == pytest.approx(15, abs=0.1)
        assert other.losses == [], "half a connection"
        network.heal()
        await asyncio.sleep(1)
        assert isinstance(other.losses[0], ConnectionResetError)
        assert other.frames == []

    play(scenario)


def test_a_silent_connection_survives_any_cut() -> None:
    async def scenario(network: SimNetwork) -> None:
        one, other = await connect(network)
        network.cut(A, B)
        await asyncio.sleep(3600)
        network.heal()
        one.send(1)
        await asyncio.sleep(1)
        assert other.frames == [1]

    play(scenario)


def test_a_connection_that_breaks_in_the_middle_of_a_frame_never_shows_it() -> None:
    async def scenario(network: SimNetwork) -> None:
        one, other = await connect(network)
        network.link(A, B).break_rate = 0.1
        one.send(*range(100))
        await asyncio.sleep(1)
        assert other.frames == list(range(len(other.frames))), "what was sent before arrives"
        assert 0 < len(other.frames) < 100
        assert isinstance(one.losses[0], ConnectionResetError)
        assert isinstance(other.losses[0], ConnectionResetError)
        assert network.statistics["broken in the middle of a frame"] == 1

    play(scenario)


def test_a_reset_breaks_all_connections_of_two_machines_and_no_others() -> None:
    async def scenario(network: SimNetwork) -> None:
        ends = [*await connect(network), *await connect(network, B, A)]
        bystanders = await connect(network, A, "10.0.0.3")
        ends[0].send(1)
        network.reset(A, B)
        await asyncio.sleep(1)
        assert [len(end.losses) for end in ends] == [1] * 4
        assert ends[1].frames == []
        assert [end.losses for end in bystanders] == [[], []]
        assert network.statistics["reset"] == 2
        assert network.statistics["frames lost in a reset"] == 1
        assert not network.link(A, B).pipes

    play(scenario)


# -- machines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_process_is_refused_and_never_runs_again(seed: int) -> None:
    async def scenario(network: SimNetwork) -> None:
        one, other = await connect(network)
        host = network.host(B)
        listener = await host.listen("", 9, End)
        one.send(1)
        other.send(2, 3)
        host.kill()
        await asyncio.sleep(1)
        assert one.frames == [2, 3][: len(one.frames)], "closed in order, or not"
        assert len(one.losses) == 1
        assert (other.frames, other.losses) == ([], [])
        other.send(4)
        with pytest.raises(ConnectionRefusedError):
            await network.host(A).connect(*listener.address, End, timeout_s=1)
        for call in (host.connect(A, 1, End, timeout_s=1), host.listen("", 1, End)):
            with pytest.raises(OSError, match="this machine is off"):
                await call
        again = network.host(B)
        assert again is not host
        assert network.host(B) is again
        with pytest.raises(ConnectionRefusedError):
            await network.host(A).connect(*listener.address, End, timeout_s=1)

    play(scenario, seed)


def test_a_machine_without_power_says_nothing_until_its_next_life() -> None:
    async def scenario(network: SimNetwork) -> None:
        quiet, _ = await connect(network)
        talking, _ = await connect(network)
        network.host(B).cut_power()
        talking.send(1)
        with pytest.raises(TimeoutError):
            await network.host(A).connect(B, 9, End, timeout_s=1)
        await asyncio.sleep(60)
        assert isinstance(talking.losses[0], TimeoutError)
        assert quiet.losses == []
        quiet.send(2)
        await asyncio.sleep(1)
        network.host(B)
        await asyncio.sleep(1)
        assert isinstance(quiet.losses[0], ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await network.host(A).connect(B, 9, End, timeout_s=1)

    play(scenario)


def test_what_waited_for_a_machine_that_lost_its_power_is_given_up() -> None:
    async def scenario(network: SimNetwork) -> None:
        one, _ = await connect(network)
        link = network.link(A, B)
        link.clog()
        one.send(1)
        await asyncio.sleep(3600)
        network.host(B).cut_power()
        await asyncio.sleep(10)
        assert one.losses == [], "it has waited for ten seconds, not for an hour"
        await asyncio.sleep(10)
        assert isinstance(one.losses[0], TimeoutError)

    play(scenario)


def test_what_was_sent_before_the_power_went_arrives() -> None:
    async def scenario(network: SimNetwork) -> None:
        one, other = await connect(network)
        other.send(1)
        network.host(B).cut_power()
        await asyncio.sleep(60)
        assert (one.frames, one.losses) == ([1], [])

    play(scenario)


def test_a_paused_machine_hears_everything_later() -> None:
    async def scenario(network: SimNetwork) -> None:
        one, other = await connect(network)
        host = network.host(B)
        host.pause()
        one.send(1)
        other.send(2)
        with pytest.raises(TimeoutError):
            await network.host(A).connect(B, 9, End, timeout_s=1)
        await asyncio.sleep(3600)
        assert (one.frames, other.frames) == ([], [])
        host.resume()
        await asyncio.sleep(1)
        assert (one.frames, other.frames) == ([2], [1])

    play(scenario)


def test_a_machine_may_refuse_one_of_the_others() -> None:
    async def scenario(network: SimNetwork) -> None:
        network.link(A, B).refuses = True
        with pytest.raises(ConnectionRefusedError):
            await connect(network)
        await connect(network, "10.0.0.3")

    play(scenario)


def test_a_connection_that_nobody_waits_for_any_more_is_broken() -> None:
    async def scenario(network: SimNetwork) -> None:
        made: list[End] = []

        def receiver(connection: FrameConnection) -> End:
            made.append(End(connection))
            return made[-1]

        listener = await network.host(B).listen("", 0, receiver)
        network.link(B, A).clog()
        with pytest.raises(TimeoutError):
            await network.host(A).connect(*listener.address, End, timeout_s=1)
        network.heal()
        await asyncio.sleep(1)
        assert len(made) == len(made[0].losses) == 1
        assert not network.host(A).connections

    play(scenario)


def test_receivers_run_in_the_context_of_their_machine() -> None:
    async def in_name_of(name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        context = contextvars.copy_context()
        context.run(WHOSE.set, name)
        return await asyncio.get_running_loop().create_task(work(), context=context)

    async def scenario(network: SimNetwork) -> None:
        made: list[End] = []

        def receiver(connection: FrameConnection) -> End:
            made.append(End(connection))
            return made[-1]

        listener = await in_name_of("B's", lambda: network.host(B).listen("", 0, receiver))
        await in_name_of("A's", lambda: network.host(A).connect(*listener.address, receiver, timeout_s=1))
        other, one = made
        one.send(1)
        other.send(2)
        await asyncio.sleep(1)
        one.connection.close()
        await asyncio.sleep(1)
        assert (one.contexts, other.contexts) == (["A's"] * 3, ["B's"] * 3)

    play(scenario)


# -- the same again ----------------------------------------------------------------------------------------------------


def test_one_seed_one_run() -> None:
    async def scenario(network: SimNetwork) -> str:
        ends = [*await connect(network), *await connect(network)]
        link = network.link(A, B)
        link.tail_rate, link.break_rate = 0.3, 0.01
        for number in range(100):
            for end in ends:
                end.send(number)
            await asyncio.sleep(0.001)
        await asyncio.sleep(5)
        return f"{[(end.frames, end.times, end.losses, end.lost_s) for end in ends]} {network.statistics}"

    runs = [play(scenario, seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


async def test_it_works_on_an_ordinary_loop() -> None:
    network = SimNetwork(random.Random(0))
    one, other = await connect(network)
    one.send(*range(10))
    one.connection.close()
    async with asyncio.timeout(30):
        while not other.losses:
            await asyncio.sleep(0.001)
    assert other.frames == list(range(10))
    assert isinstance(network.host(A), SimHost)
