"""The consumers of `examples/group_faults.py` as processes: who may end, and how."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import group_crew
import pytest
from group_crew import Crew, Line, Member, MemberFailed

MEMBER = """
import signal, sys, time
from pathlib import Path
while not Path(sys.argv[1]).exists():
    time.sleep(0.01)  # the test lets it go on by making a file
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print('{"what": "up", "at": 0.0}', flush=True)
while True:
    signal.pause()
"""
"""A consumer that is not up until there is a file of the first name."""


@pytest.fixture
def may_come_up(tmp_path: Path) -> Path:
    return tmp_path / "may come up"


@pytest.fixture
async def crew(tmp_path: Path, may_come_up: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crew]:
    def told(member: Member, line: Line) -> None:
        assert line["what"] == "up"

    program = tmp_path / "member.py"
    program.write_text(MEMBER)
    monkeypatch.setattr(group_crew, "PROGRAM", program)
    crew = Crew([str(may_come_up)], tmp_path, told)
    yield crew
    await crew.abandon()


async def test_who_is_still_coming_up_is_told_to_leave_when_it_is_up(crew: Crew, may_come_up: Path) -> None:
    leaving = asyncio.create_task(crew.remove(await crew.start()))
    await asyncio.sleep(0)  # as far as it gets without the process
    await asyncio.to_thread(may_come_up.touch)
    await leaving
    assert crew.members == []


async def test_who_ends_before_it_is_up_has_failed(crew: Crew) -> None:
    member = await crew.start()
    leaving = asyncio.create_task(crew.remove(member))
    await asyncio.sleep(0)
    member.process.kill()
    with pytest.raises(MemberFailed, match="consumer c1 ended with status -9"):
        await leaving
