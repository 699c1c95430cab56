"""Three whole brokers, and one of them on an old copy of its data directory (T24).

Nothing in such a directory is damaged, and what it holds ends earlier than what its broker acknowledged. If it were
believed, it would lead, and all others would truncate.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.replication.test_lost_logs import PROTOCOLS, create
from tests.integration.replication.three_brokers import NODES, ThreeBrokers, three_brokers, until
from tidelog.model.errors import OldDirectory
from tidelog.sim.kit import rot
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.loop import run

STAMP_S = 1.0
SETTINGS = {"replica_lag_time_max_ms": 500, "broker_stamp_interval_ms": int(STAMP_S * 1000)}


def copy_of(cluster: ThreeBrokers, node: int) -> SimDisk:
    """The data directory as it is on the disk now, as `cp -a` has it: also while the broker runs."""
    old = SimDisk(f"old {node}")
    for path, file in cluster.disks[node].medium.walk().items():
        rot.plant(old.medium, path, bytes(file.durable))
    return old


async def start_all(cluster: ThreeBrokers, first: int) -> int:
    """Starts `first`, and the others a moment later; how often a broker began anew, as its process does."""
    renewed = 0

    async def start(node: int) -> None:
        nonlocal renewed
        try:
            await cluster.start(node)
        except OldDirectory:
            renewed += 1
            await cluster.stop(node)
            await cluster.start(node)

    starting = [asyncio.ensure_future(start(first))]
    await asyncio.sleep(0.5)
    starting += [asyncio.ensure_future(start(node)) for node in NODES if node != first]
    await asyncio.gather(*starting)
    return renewed


async def write(cluster: ThreeBrokers, first: int, count: int) -> list[bytes]:
    values = [b"%d" % number for number in range(first, first + count)]
    for value in values:
        await cluster.produce(2, value)
    return values


async def check(cluster: ThreeBrokers, values: list[bytes]) -> None:
    for node in NODES:
        await cluster.until_shown(node, values)
    await until(lambda: sorted(cluster.info().isr) == [1, 2, 3])
    assert await cluster.offset(1, b"more") >= len(values)


FIRST = pytest.mark.parametrize("first", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
"""The broker that starts first: the one with the old directory, or one of the others, which are alike."""


@PROTOCOLS
@FIRST
def test_t24_a_directory_from_before_the_last_start(protocol: str, first: int) -> None:
    async def story() -> None:
        async with three_brokers(**SETTINGS) as cluster:
            await create(cluster, protocol)
            values = await write(cluster, 0, 3)
            await cluster.stop(1)
            old = copy_of(cluster, 1)
            await cluster.start(1)
            await until(lambda: sorted(cluster.info().isr) == [1, 2, 3])
            values += await write(cluster, 3, 3)
            await cluster.stop(2, 3, 1)
            cluster.disks[1] = old
            assert await start_all(cluster, first) == 1
            await check(cluster, values)

    run(story)


@PROTOCOLS
@FIRST
def test_t24_a_directory_that_was_copied_while_its_broker_ran(protocol: str, first: int) -> None:
    async def story() -> None:
        async with three_brokers(**SETTINGS) as cluster:
            await create(cluster, protocol)
            values = await write(cluster, 0, 3)
            await cluster.settle()
            old = copy_of(cluster, 1)
            values += await write(cluster, 3, 3)
            await asyncio.sleep(3 * STAMP_S)
            await cluster.stop(2, 3, 1)
            cluster.disks[1] = old
            assert await start_all(cluster, first) == 1
            await check(cluster, values)

    run(story)


@PROTOCOLS
def test_a_directory_that_is_as_it_was_left_is_believed(protocol: str) -> None:
    async def story() -> None:
        async with three_brokers(**SETTINGS) as cluster:
            await create(cluster, protocol)
            values = await write(cluster, 0, 3)
            await asyncio.sleep(3 * STAMP_S)
            for _ in range(2):
                await cluster.stop(*NODES)
                assert await start_all(cluster, 1) == 0
            await check(cluster, values)

    run(story)


def test_an_old_voter_does_not_vote_before_others_have_said_how_recent_it_is() -> None:
    """Broker 3 is new to nothing, and broker 1 is old: together they are a majority that must not decide."""

    async def story() -> None:
        async with three_brokers(**SETTINGS) as cluster:
            old = copy_of(cluster, 1)
            await cluster.stop(1)
            await cluster.start(1)
            await cluster.stop(2, 3, 1)
            cluster.disks[1] = old
            alone = asyncio.ensure_future(cluster.start(1))
            await cluster.settle()
            assert not alone.done()
            assert cluster.brokers[1]._metadata._log._is_muted
            starting = asyncio.ensure_future(cluster.start(2, 3))
            with pytest.raises(OldDirectory):
                await alone
            await starting

    run(story)
