"""All certificates of a cluster are replaced under load, one broker after another, and then its CA: nothing fails.

Three brokers speak TLS among each other with certificates at both ends, and want one of each client. Producers and
consumers of topics of both commit protocols go on for the whole of a phase, others connect anew all the time, and so
does a program like curl, at every broker. Each counts what it asked for; whatever fails fails the test.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import ssl
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.producer import Producer
from tidelog.testing import LocalCluster
from tidelog.testing.certificates import ClusterCertificates

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE_S: Final = 60.0
EACH_MIN: Final = 5
"""Each kind of client gets through so often in each phase, or the load was none."""
TOPICS: Final = {"by-isr": "isr", "by-paxos": "paxos"}
DONE: Final = 'tidelog_tls_reloads_total{outcome="done"}'
REFUSED: Final = 'tidelog_tls_reloads_total{outcome="refused"}'
SETTINGS: Final = {"ssl.client.auth": "required"}
JSON: Final = "application/vnd.kafka.binary.v2+json"

logger = logging.getLogger(__name__)


class Site:
    """A cluster, the files of its brokers, and those of its clients."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        assert cluster.certificates is not None
        self.cluster = cluster
        self.made = cluster.certificates
        self.trusted, self.shown = directory / "trusted.pem", directory / "client.pem"
        put(self.made.ca, self.trusted)
        put(self.made.client(), self.shown)
        self.reloads = Counter[int]()
        self.requests = 0

    @property
    def security(self) -> dict[str, Any]:
        return {"ssl_ca_location": str(self.trusted), "ssl_keystore_location": str(self.shown)}

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.trusted)
        context.load_cert_chain(self.shown)
        return context

    def ask(self, node_id: int, path: str, body: bytes | None = None) -> str:
        """Sends one request on a connection of its own, as curl does."""
        request = urllib.request.Request(self.cluster.broker(node_id).url + path, body, {"Content-Type": JSON})
        with urllib.request.urlopen(request, context=self.context(), timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    async def until_metric(self, node_id: int, name: str, at_least: float) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await asyncio.to_thread(self._metric, node_id, name) < at_least:
                await asyncio.sleep(0.1)

    def _metric(self, node_id: int, name: str) -> float:
        lines = self.ask(node_id, "/metrics").splitlines()
        return float(next((line.split()[-1] for line in lines if line.startswith(name + " ")), 0))

    async def taken(self, node_id: int) -> None:
        """Waits until a broker has taken the files that were put in place for it."""
        self.reloads[node_id] += 1
        await self.until_metric(node_id, DONE, self.reloads[node_id])

    def file_of(self, node_id: int) -> Path:
        return self.made.directory / f"broker-{node_id}.pem"


def put(source: Path, target: Path) -> None:
    """Puts a file in another's place, never half of it."""
    draft = target.with_suffix(".draft")
    shutil.copy(source, draft)
    draft.replace(target)


class Load:
    """Clients of all kinds, and what became of what they asked for."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.done = Counter[str]()
        self.failed: list[str] = []
        self._is_over = False

    async def end(self, tasks: list[asyncio.Task[None]]) -> None:
        """Goes on until each kind of client has got through a few times."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.failed and (len(self.done) < len(tasks) or min(self.done.values()) < EACH_MIN):
                await asyncio.sleep(0.1)
        self._is_over = True
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*tasks)

    async def _repeat(self, kind: str, ask: Callable[[], Awaitable[object]]) -> None:
        while not self._is_over:
            try:
                await ask()
                self.done[kind] += 1
            except Exception as error:  # noqa: BLE001 -- any failure counts; the test prints it at its end
                self.failed.append(f"{kind}: {type(error).__name__}: {error}")
                return

    async def produce(self, topic: str, kind: str) -> None:
        async with Producer(self._site.cluster.bootstrap, **self._site.security) as producer:
            await self._repeat(kind, lambda: producer.send_and_wait(topic, b"x"))

    async def consume(self, topic: str, kind: str) -> None:
        async with Consumer(
            topic, bootstrap_servers=self._site.cluster.bootstrap, auto_offset_reset="earliest", **self._site.security
        ) as consumer:

            async def read() -> None:
                assert await consumer.getmany(timeout_ms=int(1000 * PATIENCE_S)), "nothing came"

            await self._repeat(kind, read)

    async def come_anew(self, topic: str, kind: str) -> None:
        async def once() -> None:
            async with Producer(self._site.cluster.bootstrap, **self._site.security) as producer:
                await producer.send_and_wait(topic, b"y")
            async with (
                Consumer(
                    topic,
                    bootstrap_servers=self._site.cluster.bootstrap,
                    auto_offset_reset="earliest",
                    **self._site.security,
                ) as consumer,
                asyncio.timeout(PATIENCE_S),
            ):
                await consumer.getone()

        await self._repeat(kind, once)

    async def curl(self, topic: str, node_id: int, kind: str) -> None:
        def once() -> None:
            written = self._site.ask(node_id, f"/topics/{topic}", b'{"records":[{"value":"eA=="}]}')
            assert '"error_code":null' in written.replace(" ", ""), written
            json.loads(self._site.ask(node_id, "/metadata"))

        await self._repeat(kind, lambda: asyncio.to_thread(once))


@asynccontextmanager
async def load(site: Site) -> AsyncIterator[Load]:
    """Runs all clients during the block, made with the files that there are as it begins."""
    found = Load(site)
    work = []
    for topic in TOPICS:
        work += [found.produce(topic, f"producer {number} of {topic}") for number in range(2)]
        work += [found.consume(topic, f"consumer {number} of {topic}") for number in range(2)]
        work.append(found.come_anew(topic, f"newcomers to {topic}"))
        work += [found.curl(topic, node_id, f"curl at {node_id} to {topic}") for node_id in site.cluster.node_ids]
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield found
        await found.end(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert found.failed == []
    site.requests += sum(found.done.values())


async def test_certificates_and_then_the_ca_are_replaced_under_load_and_nothing_fails(tmp_path: Path) -> None:
    data_dir = tmp_path / "cluster"
    async with LocalCluster(3, tls=True, settings=SETTINGS, data_dir=data_dir) as cluster:
        site = Site(cluster, tmp_path)
        async with AdminClient(cluster.bootstrap, **site.security) as admin:
            for topic, protocol in TOPICS.items():
                configs = {"commit.protocol": protocol}
                await admin.create_topic(topic, partitions=3, replication_factor=3, configs=configs)
        newer = ClusterCertificates(tmp_path / "newer")
        old_ca = tmp_path / "old-ca.pem"
        shutil.copy(site.made.ca, old_ca)
        async with load(site):
            await replace_each(site)
            await refuse_a_bad_file(site)
            await trust(site, tmp_path, site.made.ca, newer.ca)
        put(newer.broker(1), site.file_of(1))
        await asyncio.to_thread(cluster.restart, 1)  # it connects anew to brokers with certificates of the old CA
        site.reloads[1] = 0
        async with load(site):  # clients that trust both
            for node_id in cluster.node_ids[1:]:
                put(newer.broker(node_id), site.file_of(node_id))
                await site.taken(node_id)
        put(newer.client(), site.shown)
        async with load(site):  # clients of the new CA
            await trust(site, tmp_path, newer.ca)
        await asyncio.to_thread(cluster.restart, 2)
        async with load(site):
            pass
        await the_old_ca_vouches_for_nobody(site, old_ca)
        logger.info("%d requests, none of which failed", site.requests)


async def replace_each(site: Site) -> None:
    """New certificates of the same CA, on a signal."""
    for node_id in site.cluster.node_ids:
        await asyncio.to_thread(site.made.broker, node_id)
        os.kill(site.cluster.broker(node_id).pid, signal.SIGHUP)
        await site.taken(node_id)


async def refuse_a_bad_file(site: Site) -> None:
    """Half a file, and another broker's: the old certificate stays."""
    good = site.file_of(1).read_bytes()
    for number, bad in enumerate((good[: len(good) // 2], site.file_of(2).read_bytes()), start=1):
        site.file_of(1).write_bytes(bad)
        await site.until_metric(1, REFUSED, number)
    site.file_of(1).write_bytes(good)
    await site.taken(1)


async def trust(site: Site, directory: Path, *authorities: Path) -> None:
    """Has brokers and clients trust these CAs, and no others."""
    both = directory / "authorities.pem"
    both.write_text("".join(path.read_text() for path in authorities))
    for target in (site.trusted, site.made.ca):
        put(both, target)
    for node_id in site.cluster.node_ids:
        await site.taken(node_id)


async def the_old_ca_vouches_for_nobody(site: Site, old_ca: Path) -> None:
    put(old_ca, site.trusted)
    for node_id in site.cluster.node_ids:
        with pytest.raises(urllib.error.URLError, match=r"(?i)certificate verify failed"):
            await asyncio.to_thread(site.ask, node_id, "/metadata")
