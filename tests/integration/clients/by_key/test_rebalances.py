"""Consumers by key: how partitions change hands while their records are being processed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.integration.clients.by_key.conftest import (
    T0,
    T1,
    T2,
    T3,
    WAIT_S,
    Handler,
    committed,
    consumer,
    produce,
    running,
    until,
)
from tests.integration.clients.conftest import hold_back_heartbeats
from tests.integration.http.conftest import Site
from tidelog.consumer import TopicPartition
from tidelog.model.groups import DescribeGroup


class Sharing:
    """Two consumers of four partitions: the second joins while records of the first are at their gates."""

    def __init__(self, site: Site, *held: int, **options: Any) -> None:
        self.site = site
        self.handler, self.other_handler = Handler(*held), Handler()
        self.consumer, self.other = consumer(site, "t"), consumer(site, "t", **options)
        self.given_up: list[TopicPartition] = []

    async def until_waiting(self) -> list[TopicPartition]:
        """Returns the partitions that the first must give up, when it knows."""
        assert self.consumer._group is not None
        membership = self.consumer._group._member.membership
        await until(lambda: bool(membership.to_give_up))
        return membership.to_give_up


async def test_a_partition_is_given_up_when_its_records_are_finished_and_others_go_on(four: Site) -> None:
    await produce(four, range(40), partitions=4)
    it = Sharing(four, 0, 1, 2, 3)
    async with running(it.consumer, it.handler):
        await it.handler.until_finished(40 - 16 - 2)  # 0 to 3 wait, and those of their keys behind them
        async with running(it.other, it.other_handler):
            going = [partition.partition for partition in await it.until_waiting()]
            await produce(four, range(40, 44), keys=100, partitions=4)
            staying = [number for number in range(4) if number not in going]
            await it.handler.until(lambda: {40 + number for number in staying} <= set(it.handler.finished))
            it.handler.open(*staying)
            await it.handler.until(lambda: set(staying) <= set(it.handler.finished))
            assert it.other.assignment() == []
            it.handler.open(*going)
            await it.other_handler.until(lambda: len({*it.handler.finished, *it.other_handler.finished}) == 44)
            assert sorted(at.partition for at in it.other.assignment()) == going
    counts = Counter(it.handler.finished + it.other_handler.finished)
    assert counts == Counter(range(44)), "nothing came twice"


async def test_a_record_that_takes_too_long_does_not_hold_up_its_partition(
    four: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await produce(four, range(8), keys=100, partitions=4)
    it = Sharing(four, 0, 1, 2, 3)
    async with running(it.consumer, it.handler, drain_timeout_ms=20):
        await it.handler.until_finished(4)
        async with running(it.other, it.other_handler):
            going = [partition.partition for partition in await it.until_waiting()]
            await it.other_handler.until_finished(2)
            assert sorted(it.other_handler.finished) == going, "those that were finished are committed"
            assert "given up" in caplog.text
            it.handler.open(0, 1, 2, 3)
            await it.handler.until_finished(8)
    for partition in (T0, T1, T2, T3):
        assert (await committed(four, partition)).low == 2


async def test_what_is_lost_is_not_processed_on_and_not_committed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await produce(site, range(4))
    handler, successor = Handler(0, 1), Handler(1, 2)
    lost = consumer(site, "t", session_timeout_ms=300)
    async with running(lost, handler, workers=2):
        await handler.until(lambda: len(handler.started) == 2)
        is_connected = hold_back_heartbeats(monkeypatch, lost, "t")
        deadline_s = asyncio.get_running_loop().time() + WAIT_S
        async with asyncio.timeout_at(deadline_s):
            while (await site.broker.groups.ask(DescribeGroup(group="g"), deadline_s=deadline_s)).members:
                await asyncio.sleep(0.01)
        async with running(consumer(site, "t"), successor, drain_timeout_ms=0):
            await successor.until(lambda: sorted(successor.started) == [0, 1, 2, 3])
            handler.open(0, 1)
            await handler.until_finished(2)
            is_connected.set()
            await until(lambda: lost._group is not None and lost._group._member.membership.member_epoch > 0)
            assert handler.started == [0, 1]
        await handler.until_finished(4)
        assert sorted(handler.finished[2:]) == [1, 2], "what the successor has not processed; whatever was, in vain"
