"""A real broker behind a real socket, in this process: on a directory, or on a simulated disk that can be broken."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http.wire import TIMEOUT_S, Address, Reply, Wire, ask
from tidelog.adapters.disk_threads import DiskThreads
from tidelog.adapters.log_lines import LogLevel
from tidelog.adapters.system import SystemClock, SystemEntropy, thread_busy_s
from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.face.face import BrokerFace
from tidelog.broker.http.server import HttpServer, http_listener, start_http
from tidelog.broker.isr.partition import Partition
from tidelog.broker.membership.administration import Administration
from tidelog.broker.routing.led_here import LedHere
from tidelog.config.schema import BrokerConfig
from tidelog.model.access import Caller, Principal
from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.cluster import HTTP, Endpoint
from tidelog.model.ports import BlockingRunner, Files
from tidelog.model.records import Record, StoredRecord
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner
from tidelog.sim.kit.network import SimNetwork
from tidelog.storage.disk_files import DiskFiles

JSON_V2 = {"Content-Type": "application/vnd.kafka.json.v2+json"}
BINARY_V2 = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
JSON_DOCUMENT = {"Content-Type": "application/json"}
AS_JSON = {"Accept": "application/vnd.kafka.json.v2+json"}
ROOT = Caller(Principal("User", "root"), "127.0.0.1")
STOP_S = 5.0
PATIENT = {
    "broker.lease.ms": 60_000,
    "broker.session.timeout.ms": 120_000,
    "controller.lease.ms": 60_000,
    "controller.quorum.election.timeout.ms": 60_001,
    "offsets.topic.num.partitions": 1,
}
"""Settings with which a broker leads all the while that shares its processor with its clients, and with whatever runs
beside; and makes one log for groups, where sixteen would show nothing more."""


async def listen(face: BrokerFace, **limits: Any) -> HttpServer:
    """A listener on a port of the system's choice; `limits` replace those of the broker's settings. How long requests
    wait for their turn, and how late the loop runs, does not matter unless they say so: the machine may be slow."""
    listener = http_listener(face.cluster.config)
    bounds = replace(listener.limits, **{"queue_wait_s_max": 60.0, "loop_lag_s_max": 60.0, **limits})
    bound = replace(listener, bind=Endpoint("127.0.0.1", 0), limits=bounds)
    return await start_http(face, bound, "localhost", thread_busy_s, LogLevel(face.cluster.config.log_level))


class Site:
    """A broker with its listener, and the shortest way to ask it something."""

    def __init__(self, files: Files, runner: BlockingRunner, **limits: Any) -> None:
        self.files = files
        self.clock, self.entropy = SystemClock(), SystemEntropy()
        self.runner = runner
        self._limits = limits
        self._network = SimNetwork(random.Random(1))
        self.broker: Broker
        self.server: HttpServer

    async def start(self, settings: Mapping[str, object] | None = None) -> None:
        config = BrokerConfig.model_validate({**PATIENT, **(settings or {})})
        self.broker = Broker(config, self.files, self.clock, self.entropy, self.runner, self._network.host("127.0.0.1"))
        self.server = await listen(self.broker.face, **self._limits)
        await self.broker.start({HTTP: self.server.advertised})

    async def stop(self) -> None:
        await self.server.stop(STOP_S)
        await self.broker.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    @property
    def address(self) -> Address:
        return self.server.address

    @property
    def admin(self) -> Administration:
        """The way of `ROOT`, who has to be among the super users where there are rights."""
        return self.broker.admin.by(ROOT)

    @property
    def v3(self) -> str:
        return f"/v3/clusters/{self.broker.cluster_id}"

    async def topic(self, name: str = "t", partitions: int = 1, **configs: str) -> None:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        await self.admin.create_topic(NewTopic(name, partitions, configs=overrides))

    async def ask(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        return await ask(self.address, method, target, body, headers)

    async def get(self, target: str, headers: Mapping[str, str] | None = None) -> Reply:
        return await self.ask("GET", target, None, headers)

    async def post(self, target: str, document: object, headers: Mapping[str, str] = JSON_DOCUMENT) -> Reply:
        return await self.ask("POST", target, json.dumps(document).encode(), headers)

    async def produce(self, *values: object, topic: str = "t", query: str = "") -> Reply:
        """JSON values to whatever partition."""
        return await self.post(f"/topics/{topic}{query}", {"records": [{"value": value} for value in values]}, JSON_V2)

    async def wire(self) -> Wire:
        return await Wire.open(self.address)

    def partition(self, topic: str = "t", partition: int = 0) -> Partition:
        """A partition's runtime, on its leader."""
        found = self.broker.partition(topic, partition)
        assert isinstance(found, LedHere) and isinstance(found.led, Partition)
        return found.led

    def stored(self, topic: str = "t", partition: int = 0) -> list[StoredRecord]:
        """All committed records of a partition, read without HTTP."""
        runtime = self.partition(topic, partition)
        found: list[StoredRecord] = []
        offset = runtime.log_start_offset
        while offset < runtime.high_watermark:
            fetched = runtime.log.read(offset, 1 << 20, runtime.high_watermark)
            found += [record for batch in iter_batches(fetched.data) for record in decode_batch(batch)]
            offset = fetched.next_offset
        return found

    def values(self, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.stored(topic, partition)]

    def gauge(self, name: str) -> float:
        """A gauge of the listener, read without a connection."""
        value = self.server.context.metrics_page.registry.get_sample_value(name)
        assert value is not None
        return value

    async def metrics(self) -> str:
        return (await self.get("/metrics")).body.decode()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0.001)

    async def until_idle(self) -> None:
        """No request is under way, and no connection is open."""
        names = ("tidelog_http_connections", "tidelog_http_body_bytes", "tidelog_http_answer_bytes")
        await self.until(lambda: not any(self.gauge(name) for name in names))

    def batch(self, *values: bytes, **header: int) -> bytes:
        return bytes(encode_batch([Record(self.clock.wall_ms(), None, value) for value in values], **header))  # type: ignore[arg-type]  # plain ints all


@asynccontextmanager
async def simulated(
    disk: SimDisk | None = None,
    runner: BlockingRunner | None = None,
    settings: Mapping[str, object] | None = None,
    **limits: Any,
) -> AsyncIterator[Site]:
    """A broker on a simulated disk, with topic `t` of one partition; `limits` replace those of the listener."""
    runner = runner or SimRunner(random.Random(0), mean_s=0.00001)
    site = Site(disk or SimDisk(), runner, **{"lingering_s": 0.05, **limits})
    await site.start(settings)
    try:
        await site.topic()
        yield site
    finally:
        await site.stop()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A broker on a simulated disk, with topic `t` of one partition."""
    async with simulated() as made:
        yield made


@pytest.fixture
async def disk_site(tmp_path: Path) -> AsyncIterator[Site]:
    """A broker on a real directory, with topic `t` of one partition."""
    disk = DiskThreads()
    made = Site(DiskFiles(str(tmp_path / "data")), disk)
    await made.start()
    await made.topic()
    yield made
    await made.stop()
    disk.close()
