"""A replica logs once why it cannot copy another's log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.isr.stage import PARTITION
from tidelog.broker.paxos.applied_log import AppliedLog
from tidelog.broker.paxos.copying import Copier
from tidelog.broker.paxos.messages import ReadApplied
from tidelog.model.errors import Overloaded
from tidelog.sim.kit.environment import SimEntropy
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.seeds import stream
from tidelog.transport.peer import Answer


def test_all_holders_are_asked_and_why_one_gives_nothing_is_said_once_and_when_it_changes() -> None:
    said = {2: "nobody listens", 3: "too busy"}
    asked: list[int] = []

    async def ask(node: int, _: ReadApplied, __: float) -> Answer:
        asked.append(node)
        raise Overloaded(said[node])

    async def main() -> None:
        log = SimpleNamespace(offline_reason=None, log_end_offset=0)
        doubts = SimpleNamespace(offsets=lambda: range(0))
        applied = SimpleNamespace(log=log, is_truncating=False, doubts=doubts)
        entropy = SimEntropy(stream("copying"))
        copier = Copier(
            PARTITION,
            cast("AppliedLog", applied),
            ask,
            holders=lambda: (2, 3),
            voters=lambda: (2,),
            lacking=lambda: 1,
            arrived=lambda _: None,
            entropy=entropy,
            era=0,
        )
        with pytest.raises(TimeoutError), capture_logs() as lines:
            async with asyncio.timeout(20):
                await copier.run()
        assert [(line["broker"], line["error"]) for line in lines] == [(2, "nobody listens"), (3, "too busy")]
        assert len(asked) > 20
        said[3] = "nobody listens"
        with pytest.raises(TimeoutError), capture_logs() as lines:
            async with asyncio.timeout(20):
                await copier.run()
        assert len(lines) == 2, "another wait has begun"

    run(main)
