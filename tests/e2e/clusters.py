"""Clusters whose topics commit as a test's fixture `protocol` says.

The protocol is the brokers' default, so a test creates its topics without naming it and is the same for all. With
`BOTH`, the test's own topics commit by majority, and one of in-sync replicas is written to beside them all the time:
each record of that has to be there once, too, when the test's faults are over.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.loading import Load, create, records
from tests.e2e.power.disks import DisksUnavailable
from tidelog.testing import LocalCluster, PrivateNetwork

ISR: Final = "isr"
PAXOS: Final = "paxos"
BOTH: Final = "both"
BESIDE: Final = "beside"
BESIDE_EVERY_S: Final = 0.05
BEGUN_S_MAX: Final = 30.0


def only(*protocols: str) -> pytest.MarkDecorator:
    """For tests of what one protocol does and the other does not."""
    return pytest.mark.parametrize("protocol", protocols, indirect=True, scope="module")


def vouching(protocol: str, replicas: int) -> int:
    """How many replicas vouch for an acknowledged record at least, while all are well."""
    return replicas if protocol == ISR else replicas // 2 + 1


@contextmanager
def skipped_without_disks() -> Iterator[None]:
    """Skips a test whose disks cannot be mounted here, and says why."""
    try:
        yield
    except DisksUnavailable as error:
        pytest.skip(str(error))  # it names what is missing: /dev/fuse, libfuse, or the right to mount


@contextmanager
def running(
    protocol: str,
    brokers: int = 3,
    *,
    settings: Mapping[str, str],
    data_dir: Path | None = None,
    network: PrivateNetwork | None = None,
    kafka: bool = False,
) -> Iterator[LocalCluster]:
    """A cluster, as `LocalCluster` makes it."""
    wanted = {"commit.protocol": ISR if protocol == ISR else PAXOS, **settings}
    with LocalCluster(brokers, settings=wanted, data_dir=data_dir, network=network, kafka=kafka) as cluster:
        if protocol != BOTH:
            yield cluster
            return
        with ThreadPoolExecutor(1) as pool:
            begun, over = threading.Event(), threading.Event()
            beside = pool.submit(asyncio.run, _write_beside(cluster, begun, over))
            try:
                assert begun.wait(BEGUN_S_MAX), "nothing is acknowledged where nothing has happened yet"
                yield cluster
            finally:
                over.set()
            beside.result()


async def _write_beside(cluster: LocalCluster, begun: threading.Event, over: threading.Event) -> None:
    await create(cluster, BESIDE, {"commit.protocol": ISR}, cluster.node_ids[:3])
    async with Load(cluster, BESIDE, every_s=BESIDE_EVERY_S) as load:
        begun.set()
        while not over.is_set():
            await asyncio.sleep(BESIDE_EVERY_S)
    load.check(await records(cluster, BESIDE))
