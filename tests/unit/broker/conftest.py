"""A broker without a listener, on a real directory or on the simulated disk; restartable, as a process is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tidelog.adapters.disk_threads import DiskThreads
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.isr.partition import Partition
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.routing.led_here import LedHere
from tidelog.config.schema import BrokerConfig
from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import RecordBatch, iter_batches, split_batches
from tidelog.model.cluster import HTTP, Endpoint
from tidelog.model.ports import Files
from tidelog.model.records import Record, StoredRecord
from tidelog.sim.kit.network import SimNetwork
from tidelog.storage.disk_files import DiskFiles

HOST = "127.0.0.1"
ADDRESS = {HTTP: Endpoint(HOST, 8082)}


class Bench:
    """Starts, stops and restarts a broker on one data directory."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.clock = SystemClock()
        self.broker: Broker
        self._disk = DiskThreads()
        self._network = SimNetwork(random.Random(1))

    def make(self, settings: Mapping[str, object] | None = None) -> Broker:
        """A broker that is not started."""
        config = BrokerConfig.model_validate(settings or {})
        self.broker = Broker(config, self.files, self.clock, SystemEntropy(), self._disk, self._network.host(HOST))
        return self.broker

    async def start(self, settings: Mapping[str, object] | None = None) -> Broker:
        await self.make(settings).start(ADDRESS)
        return self.broker

    async def restart(self, settings: Mapping[str, object] | None = None) -> Broker:
        await self.broker.stop()
        return await self.start(settings)

    async def topic(self, name: str = "t", partitions: int = 1, **configs: str) -> Partition:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        await self.broker.admin.create_topic(NewTopic(name, partitions, configs=overrides))
        return self.partition(name)

    def partition(self, topic: str = "t", partition: int = 0) -> Partition:
        """A partition's runtime, on its leader."""
        found = self.broker.partition(topic, partition)
        assert isinstance(found, LedHere) and isinstance(found.led, Partition)
        return found.led

    async def close(self) -> None:
        await self.broker.stop()
        self._disk.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(DiskFiles(str(tmp_path / "data")))
    await made.start()
    yield made
    await made.close()


def batch(
    *values: bytes,
    key: bytes | None = None,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    timestamp_ms: int | None = None,
) -> list[RecordBatch]:
    at = SystemClock().wall_ms() if timestamp_ms is None else timestamp_ms
    encoded = encode_batch(
        [Record(at, key, value) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
    )
    return split_batches(encoded, batch_bytes_max=1 << 24)


async def produce(
    partition: Partition, batches: list[RecordBatch], *, acks: int = -1, expected_end: int | None = None
) -> ProduceReceipt:
    deadline_s = asyncio.get_running_loop().time() + 10
    return await partition.produce(batches, acks=acks, deadline_s=deadline_s, expected_end=expected_end)


def stored(partition: Partition) -> list[StoredRecord]:
    """All committed records."""
    found: list[StoredRecord] = []
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        fetched = partition.log.read(offset, 1 << 20, partition.high_watermark)
        for one in iter_batches(fetched.data):
            found += [record for record in decode_batch(one) if record.offset >= offset]
        offset = fetched.next_offset
    return found


def values(partition: Partition) -> list[bytes | None]:
    return [record.value for record in stored(partition)]
