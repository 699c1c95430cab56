"""Ctrl-C and a command's event loop."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tidelog.cli.connection import run


def test_ctrl_c_cancels_in_a_turn_of_the_loop() -> None:
    ended: list[str] = []

    async def wait() -> None:
        task = asyncio.current_task()
        assert task is not None
        os.kill(os.getpid(), signal.SIGINT)
        assert task.cancelling() == 0, "not between two instructions"
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("in order")

    with pytest.raises(KeyboardInterrupt):
        run(wait())
    assert ended == ["in order"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_does_not_wait() -> None:
    async def linger() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(30)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("it waits for the end")

    with pytest.raises(KeyboardInterrupt):
        run(linger())


def test_whoever_cancels_else_is_told_so() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(cancelled())
