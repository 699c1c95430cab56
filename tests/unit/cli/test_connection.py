"""Ctrl-C and SIGTERM end a command's event loop in order."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tidelog.cli.connection import ENDING, Terminated, run
from tidelog.cli.terminal import EXIT_TERMINATED

ENDINGS = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]


@pytest.mark.parametrize(("number", "ending"), ENDINGS)
def test_a_signal_cancels_in_a_turn_of_the_loop(number: signal.Signals, ending: type[BaseException]) -> None:
    ended: list[str] = []
    before = [signal.getsignal(number) for number in ENDING]

    async def wait() -> None:
        task = asyncio.current_task()
        assert task is not None
        os.kill(os.getpid(), number)
        assert task.cancelling() == 0, "not between two instructions"
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("in order")

    with pytest.raises(ending):
        run(wait())
    assert ended == ["in order"]
    assert [signal.getsignal(number) for number in ENDING] == before


@pytest.mark.parametrize("first", ENDING)
def test_a_second_ctrl_c_does_not_wait(first: signal.Signals) -> None:
    async def linger() -> None:
        try:
            os.kill(os.getpid(), first)
            await asyncio.sleep(30)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("it waits for the end")

    with pytest.raises(KeyboardInterrupt):
        run(linger())


def test_sigterm_has_a_status_of_its_own() -> None:
    assert Terminated().code == EXIT_TERMINATED == 128 + signal.SIGTERM


def test_whoever_cancels_else_is_told_so() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(cancelled())
