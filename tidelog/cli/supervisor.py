"""Child processes of `tidelog dev`: started together, announced, watched, and stopped together.

Nothing is restarted: the user may want to see what the death of a broker does, and restarts it by hand.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from shlex import join
from typing import Any, Final, TypeAlias

import aiofiles

from tidelog.cli.terminal import EXIT_DONE, EXIT_ERROR, CommandError
from tidelog.testing.commands import READY

STOP_S: Final = 45.0
"""Seconds until a child that was told to stop is killed: longer than the time after which a broker breaks off its own
shutdown and says why."""
NOTICE_S: Final = 20.0
COMMAND_MARK: Final = "$ "
IN_ORDER: Final = "exit status 0"

Wait: TypeAlias = asyncio.Future[Any]


class Child:
    """A broker process: its command, and the file for its standard error."""

    def __init__(self, node_id: int, command: list[str], log: Path) -> None:
        self.node_id = node_id
        self.log = log
        self.is_ready = False
        self._command = command
        self._process: Process | None = None

    async def start(self) -> None:
        async with aiofiles.open(self.log, "ab") as log:
            await log.write(f"{COMMAND_MARK}{join(self._command)}\n".encode())
            await log.flush()
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=DEVNULL, stdout=PIPE, stderr=log, start_new_session=True
            )

    async def ready_line(self) -> str:
        """Waits for and returns the line that the broker prints when it is ready. Raises `CommandError` if it exits
        before."""
        assert self._process is not None and self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode(errors="replace").rstrip("\n")
        if READY.fullmatch(line):
            self.is_ready = True
            return line
        await self._process.wait()
        said = await self._last_words()
        raise CommandError(f"broker {self.node_id} did not start, {self.ending}: {said} (see {self.log})")

    async def ended(self) -> None:
        """Waits until the process has exited."""
        assert self._process is not None
        await self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def ending(self) -> str:
        """Returns a text about how the process exited."""
        assert self._process is not None and self._process.returncode is not None
        status = self._process.returncode
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process, if it still runs."""
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(number)

    async def _last_words(self) -> str:
        async with aiofiles.open(self.log, errors="replace") as log:
            lines = (await log.read()).splitlines()
        return "nothing was said" if lines[-1].startswith(COMMAND_MARK) else lines[-1]


async def supervise(children: list[Child]) -> int:
    """Starts all children, announces when they are ready, waits for a signal, and stops them. Returns the exit
    status."""
    stop = _on_signal()
    try:
        for child in children:
            await child.start()
        if await _announce(children, stop):
            await _watch(children, stop)
    finally:
        is_clean = await _stop(children)
    return EXIT_DONE if is_clean and stop.done() else EXIT_ERROR


def _on_signal() -> Wait:
    """Returns a future that is done on SIGINT or SIGTERM. The terminal's Ctrl-C reaches only this process: children
    have sessions of their own."""
    loop = asyncio.get_running_loop()
    stop: Wait = loop.create_future()

    def end() -> None:
        if not stop.done():
            stop.set_result(None)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end)
    return stop


async def _announce(children: list[Child], stop: Wait) -> bool:
    """Prints the ready lines, in order, once all have arrived; returns False if `stop` was done before."""
    waits: list[Wait] = [asyncio.ensure_future(child.ready_line()) for child in children]
    try:
        while not all(wait.done() for wait in waits):
            pending = [wait for wait in waits if not wait.done()]
            done, _ = await asyncio.wait([stop, *pending], timeout=NOTICE_S, return_when=asyncio.FIRST_COMPLETED)
            if stop in done:
                return False
            for wait in waits:
                if wait.done():
                    wait.result()
            if not done:
                late = [child for child, wait in zip(children, waits, strict=True) if not wait.done()]
                _say(f"still waiting for {', '.join(f'broker {child.node_id} ({child.log})' for child in late)}")
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    for wait in waits:
        print(wait.result(), flush=True)
    return True


async def _watch(children: list[Child], stop: Wait) -> None:
    """Reports children that exit, until `stop` is done or no child is left."""
    ends: dict[Child, Wait] = {child: asyncio.ensure_future(child.ended()) for child in children}
    waiting = dict(ends)
    try:
        while waiting and not stop.done():
            await asyncio.wait([stop, *waiting.values()], return_when=asyncio.FIRST_COMPLETED)
            for child in [child for child, end in waiting.items() if end.done() and not stop.done()]:
                del waiting[child]
                _say(f"broker {child.node_id} died, {child.ending}; its log and its command are in {child.log}")
    finally:
        for end in ends.values():
            end.cancel()


async def _stop(children: list[Child]) -> bool:
    """Stops all running children, even paused ones. Returns True if they exited in time with status 0; children that
    were not ready yet may exit in any way."""
    running = [child for child in children if child.is_running]
    for child in running:
        # SIGTERM last: to send a signal, `subprocess` looks whether the child still runs, and so may take its exit
        # status from asyncio, which then tells 255 for a broker that has stopped in order.
        child.send(signal.SIGCONT)
        child.send(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_S):
            await asyncio.gather(*(child.ended() for child in running))
    except TimeoutError:
        for child in running:
            if child.is_running:
                child.send(signal.SIGKILL)
        await asyncio.gather(*(child.ended() for child in running))
    failed = [child for child in running if child.is_ready and child.ending != IN_ORDER]
    for child in failed:
        _say(f"broker {child.node_id} did not stop in order, {child.ending}; see {child.log}")
    return not failed


def _say(text: str) -> None:
    print(f"tidelog: {text}", file=sys.stderr, flush=True)
