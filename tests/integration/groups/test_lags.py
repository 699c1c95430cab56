"""Lags on three brokers, in virtual time: every broker tells them, and the coordinator's metrics keep them fresh."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.integration.replication.three_brokers import NODES, ThreeBrokers, three_brokers
from tests.unit.broker.conftest import batch
from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.groups import lags
from tidelog.broker.http.group_metrics import GroupMetrics
from tidelog.model.groups import CommitOffsets, CommittedOffset
from tidelog.sim.kit.loop import run

PARTITIONS = 6


def play(story: Callable[[ThreeBrokers], Awaitable[None]]) -> None:
    """On three brokers that lead two partitions of `t` each; group `g` has read none of their records: partition p has
    p + 1."""

    async def main() -> None:
        async with three_brokers(offsets_topic_num_partitions=2) as three:
            await three.brokers[1].admin.create_topic(NewTopic("t", PARTITIONS, 1))
            for number in range(PARTITIONS):
                await produce(three, number, number + 1)
            offsets = tuple(CommittedOffset("t", number, 0) for number in range(PARTITIONS))
            await three.brokers[1].groups.ask(CommitOffsets(group="g", offsets=offsets), deadline_s=soon())
            await story(three)

    run(main)


def soon() -> float:
    return asyncio.get_running_loop().time() + 15


async def produce(three: ThreeBrokers, partition: int, count: int) -> None:
    handle = three.brokers[1].partition("t", partition)
    await handle.produce(batch(*[b"v"] * count, timestamp_ms=0), acks=-1, deadline_s=soon())


def scraped(broker: Broker) -> dict[int, float]:
    """By partition."""
    page = {family.name: family.samples for family in GroupMetrics(broker.face).collect()}
    return {int(sample.labels["partition"]): sample.value for sample in page["tidelog_group_lag_records"]}


def test_any_broker_tells_all_lags() -> None:
    async def story(three: ThreeBrokers) -> None:
        for broker in three.brokers.values():
            assert [lag.records for lag in await broker.face.groups.lags("g", soon())] == [1, 2, 3, 4, 5, 6]

    play(story)


def test_the_coordinator_s_metrics_have_what_others_lead_too() -> None:
    async def story(three: ThreeBrokers) -> None:
        coordinator = three.brokers[three.brokers[1].groups.coordinator_node("g")]
        led = {
            info.partition for info in coordinator.image.topics["t"].partitions if info.leader == coordinator.node_id
        }
        assert scraped(coordinator) == {number: number + 1 for number in led}, "a scrape does not wait"
        assert [scraped(three.brokers[node]) for node in NODES if node != coordinator.node_id] == [{}, {}]
        await asyncio.sleep(lags.REFRESH_S)
        assert scraped(coordinator) == {number: number + 1 for number in range(PARTITIONS)}
        for number in range(PARTITIONS):
            await produce(three, number, 1)
        await asyncio.sleep(2 * lags.REFRESH_S)
        assert scraped(coordinator) == {number: number + 2 for number in range(PARTITIONS)}

    play(story)


def test_while_nobody_watches_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lags, "WATCHED_S", 6.0)

    async def story(three: ThreeBrokers) -> None:
        coordinator = three.brokers[three.brokers[1].groups.coordinator_node("g")]
        scraped(coordinator)
        await asyncio.sleep(lags.REFRESH_S)
        assert len(scraped(coordinator)) == PARTITIONS
        await asyncio.sleep(lags.WATCHED_S + 2 * lags.REFRESH_S)
        assert len(scraped(coordinator)) < PARTITIONS, "what is old is not shown"

    play(story)


def test_a_partition_that_nobody_leads_has_no_lag() -> None:
    async def story(three: ThreeBrokers) -> None:
        coordinator = three.brokers[1].groups.coordinator_node("g")
        gone = next(node for node in NODES if node != coordinator)
        lost = [
            info.partition for info in three.brokers[coordinator].image.topics["t"].partitions if info.leader == gone
        ]
        await three.stop(gone)
        broker = three.brokers[coordinator]
        scraped(broker)
        await asyncio.sleep(2 * lags.REFRESH_S)
        assert sorted(scraped(broker)) == [number for number in range(PARTITIONS) if number not in lost]
        told = [lag.committed.partition for lag in await broker.face.groups.lags("g", soon()) if lag.records is None]
        assert told == lost

    play(story)
