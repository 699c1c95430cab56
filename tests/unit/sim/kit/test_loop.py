"""Virtual time: free, exact, the same every time; and no silence is mistaken for waiting."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.sim.kit.environment import WALL_START_MS, SimClock, SimEntropy, SimRunner
from tidelog.sim.kit.faults import Crashed
from tidelog.sim.kit.loop import Deadlock, run
from tidelog.sim.kit.seeds import stream


def test_sleeping_moves_the_clock_and_costs_nothing() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        await asyncio.sleep(86_400)
        times.append(loop.time())
        async with asyncio.timeout(10):
            await asyncio.sleep(9.5)
        times.append(loop.time())
        return times

    assert run(main) == pytest.approx([0, 86_400, 86_409.5])


def test_timers_fire_in_order_and_ready_callbacks_stay_first_in_first_out() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_later(2, seen.append, "two")
        loop.call_later(1, seen.append, "one")
        for name in "abc":
            loop.call_soon(seen.append, name)
        await asyncio.sleep(3)
        return seen

    assert run(main) == ["a", "b", "c", "one", "two"]


def test_a_timeout_strikes_at_its_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run(main) == pytest.approx(5)


def test_waiting_for_nothing_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(main)


def test_a_task_left_behind_is_a_failure() -> None:
    kept = []

    async def main() -> None:
        kept.append(asyncio.create_task(asyncio.sleep(1000)))

    with pytest.raises(AssertionError, match="1 tasks are left behind"):
        run(main)


def test_a_callback_that_fails_is_a_failure_of_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0.1)

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(main)


def test_executor_jobs_run_inline_after_a_latency_drawn_from_the_seed() -> None:
    async def main() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(None, sum, [1, 2, 3])
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        return result, loop.time()

    result, elapsed = run(main, seed=1)
    assert result == 6
    assert elapsed > 0
    assert run(main, seed=1) == (result, elapsed)
    assert run(main, seed=2) != (result, elapsed)


# -- the small ports -------------------------------------------------------------------------------------------------


def test_the_clock_follows_the_loop_and_the_wall_clock_may_jump() -> None:
    async def main() -> None:
        clock = SimClock(asyncio.get_running_loop())
        await asyncio.sleep(1.5)
        assert clock.monotonic_s() == pytest.approx(1.5)
        assert clock.wall_ms() == WALL_START_MS + 1500
        clock.wall_skew_ms = -3_600_000
        assert clock.wall_ms() == WALL_START_MS + 1500 - 3_600_000
        assert clock.monotonic_s() == pytest.approx(1.5)

    run(main)


def test_entropy_is_the_seeds() -> None:
    a, b = SimEntropy(stream(1)), SimEntropy(stream(1))
    assert a.token_hex(16) == b.token_hex(16)
    assert len(a.token_hex(16)) == 32
    assert a.token_hex(16) != a.token_hex(16)
    assert all(2 <= a.uniform(2, 3) < 3 for _ in range(100))


def test_the_runner_keeps_order_and_one_call_at_a_time() -> None:
    async def main() -> list[int]:
        runner, done = SimRunner(stream(3)), list[int]()

        async def call(number: int) -> None:
            await runner.run(lambda: done.append(number))

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(call(number))
        return done

    assert run(main) == list(range(20))


def test_things_happen_before_and_after_the_call_takes_effect() -> None:
    async def main() -> tuple[int, int]:
        runner = SimRunner(stream(1), mean_s=1.0)
        written: list[None] = []
        before = after = 0
        for _ in range(100):
            at_start = len(written)
            task = asyncio.create_task(runner.run(written.__len__))
            while not task.done():
                written.append(None)
                await asyncio.sleep(0.05)
            covered = await task
            before += covered - at_start
            after += len(written) - covered
        return before, after

    before, after = run(main)
    assert before > 100
    assert after > 100


def test_the_runner_passes_errors_on_and_outlives_whoever_stopped_waiting() -> None:
    async def main() -> list[str]:
        runner, done = SimRunner(stream(1), mean_s=1.0), list[str]()
        with pytest.raises(OSError, match="disk"):
            await runner.run(lambda: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1e-9):
                await runner.run(lambda: done.append("went through"))
        await runner.run(lambda: done.append("next"))
        return done

    assert run(main) == ["went through", "next"]


def test_nobody_hears_of_a_call_that_the_machine_did_not_survive() -> None:
    def die() -> None:
        raise Crashed

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await SimRunner(stream(1)).run(die)

    run(main)
