"""Stopping children: no signal follows the one that ends them."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tidelog.cli import supervisor
from tidelog.cli.supervisor import Child

ENDS_IN_ORDER = """\
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("up", flush=True)
signal.pause()
"""


class Watched(Child):
    """A child that remembers what it was sent."""

    def __init__(self, log: Path) -> None:
        super().__init__(1, [sys.executable, "-c", ENDS_IN_ORDER], log)
        self.sent: list[signal.Signals] = []

    def send(self, number: signal.Signals) -> None:
        self.sent.append(number)
        super().send(number)


async def test_the_last_signal_is_the_one_that_ends_it(tmp_path: Path) -> None:
    """A later one could take the exit status from asyncio, which would then tell 255."""
    child = Watched(tmp_path / "log")
    await child.start()
    assert child._process is not None and child._process.stdout is not None
    assert await child._process.stdout.readline() == b"up\n"
    assert await supervisor._stop([child])
    assert child.sent == [signal.SIGCONT, signal.SIGTERM]
    assert child.ending == "exit status 0"
