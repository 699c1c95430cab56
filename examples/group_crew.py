"""The consumers of a group as processes, `group_member.py` each, and what they tell, line by line.

They are killed, stopped in their tracks and, once they have said that they are up, asked to leave; who ends in any
other way has failed, which fails the run. A line that was cut off by a kill is dropped: its records were in nobody's
hands yet, and nothing covers them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiofiles

PROGRAM = Path(__file__).with_name("group_member.py")
LINE_BYTES_MAX = 1 << 24
UP_S_MAX = 60.0
ENDED_S_MAX = 30.0
SHOWN_BYTES = 2_000

Line = dict[str, Any]


class MemberFailed(RuntimeError):
    """A consumer ended without being told to, or did not end when it was; the message shows what it printed."""


@dataclass(slots=True)
class Member:
    """One process. `pauses` are (from, to) of the times for which it was stopped."""

    name: str
    process: Process
    log: Path
    reading: asyncio.Task[None] = field(init=False)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has told something, or never will."""
    pauses: list[tuple[float, float]] = field(default_factory=list)
    is_busy: bool = False
    """True while something is done to it."""
    is_ending: bool = False


class Crew:
    """Those of one group. `on_line` is called with each line, for each process in its order."""

    def __init__(self, words: Sequence[str], directory: Path, on_line: Callable[[Member, Line], None]) -> None:
        """`words` are the program's options, but for the name."""
        self._words = tuple(words)
        self._directory = directory
        self._on_line = on_line
        self._names = count(1)
        self.members: list[Member] = []
        """All that live."""

    @property
    def idle(self) -> list[Member]:
        """Those to whom nothing is being done now."""
        return [member for member in self.members if not member.is_busy]

    async def start(self) -> Member:
        """One more. Every other one commits by itself."""
        number = next(self._names)
        name = f"c{number}"
        log = self._directory / f"{name}.log"
        words = [sys.executable, str(PROGRAM), *self._words, "--name", name, *(["--commits"] if number % 2 else [])]
        async with aiofiles.open(log, "wb") as errors:
            process = await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=errors, limit=LINE_BYTES_MAX)
        member = Member(name, process, log)
        member.reading = asyncio.create_task(self._read(member))
        self.members.append(member)
        return member

    async def _read(self, member: Member) -> None:
        assert member.process.stdout is not None
        try:
            while (line := await member.process.stdout.readline()).endswith(b"\n"):
                member.up.set()
                self._on_line(member, json.loads(line))
        finally:
            member.up.set()

    async def kill(self, member: Member) -> None:
        """SIGKILL."""
        member.is_ending = True
        self.members.remove(member)
        member.process.kill()
        await self._ended(member)

    async def remove(self, member: Member) -> None:
        """Leaves in good order, once it is up. Raises `MemberFailed`."""
        await self._until_up(member)
        member.is_ending = True
        member.process.terminate()
        await self._ended(member)
        self.members.remove(member)
        if member.process.returncode:
            raise MemberFailed(_story(member))

    async def pause(self, member: Member, seconds: float) -> None:
        """SIGSTOP, and SIGCONT."""
        begun_s = time.monotonic()
        os.kill(member.process.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(member.process.pid, signal.SIGCONT)
            member.pauses.append((begun_s, time.monotonic()))

    async def _until_up(self, member: Member) -> None:
        """A process that is terminated before it can listen to that ends like one that has failed."""
        try:
            async with asyncio.timeout(UP_S_MAX):
                await member.up.wait()
        except TimeoutError:
            raise MemberFailed(f"{member.name} was not up in {UP_S_MAX:.0f} s\n{_story(member)}") from None
        if member.reading.done():
            await member.process.wait()
            raise MemberFailed(_story(member))

    async def _ended(self, member: Member) -> None:
        try:
            async with asyncio.timeout(ENDED_S_MAX):
                await member.process.wait()
                await member.reading
        except TimeoutError:
            raise MemberFailed(f"{member.name} did not end in {ENDED_S_MAX:.0f} s\n{_story(member)}") from None

    def check(self) -> None:
        """Raises `MemberFailed` if anybody has died by itself, or has told what cannot be understood."""
        for member in self.members:
            if member.process.returncode is not None and not member.is_ending:
                raise MemberFailed(_story(member))
            if member.reading.done() and not member.is_ending:
                member.reading.result()

    async def end(self) -> None:
        """All leave in good order, together. Raises `MemberFailed`."""
        await asyncio.gather(*map(self.remove, [*self.members]))

    async def abandon(self) -> None:
        """Whoever is left is killed."""
        await asyncio.gather(*map(self.kill, [*self.members]), return_exceptions=True)


def _story(member: Member) -> str:
    said = member.log.read_text(errors="replace")[-SHOWN_BYTES:]
    return f"consumer {member.name} ended with status {member.process.returncode}\n{said}"
