"""Benchmark workload `revocation`: how long a user who has lost a right is still served by some broker.

A token is revoked, a user is removed, or a user's ACLs are, each many times and for another user each time, on three
brokers with TLS. Before that, the user has a waiting read on each broker and an open produce stream. Measured is the
time from the answer to the revocation until all of these have ended and each broker has refused a new request.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import aiohttp

from tidelog.admin import AdminClient
from tidelog.bench.result import Progress, Result, percentiles_ms
from tidelog.bench.secured import Level, allow, connection_of, secured_cluster
from tidelog.testing import LocalCluster
from tidelog.transport.security import Security

BROKERS: Final = 3
TOPIC: Final = "revocation"
SETTINGS: Final = {"http.authentication": "token,basic"}
JSON: Final = {"Content-Type": "application/json"}
PASSWORD: Final = "for a benchmark alone"  # noqa: S105 -- of users that live for a second
PATIENCE_S: Final = 30.0
SETTLE_S: Final = 0.3
"""Seconds after which reads and streams that have begun are waiting on their brokers."""
LOOK_EVERY_S: Final = 0.01
REFUSED: Final = frozenset({401, 403, 404})
"""HTTP statuses that count as a refusal. A topic that a user may not see is answered like a missing one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationOptions:
    """Options of the workload `revocation`: each kind of right is revoked `times` times, for `at_once` users at
    a time."""

    times: int = 100
    at_once: int = 5


@dataclass(slots=True)
class _Ended:
    """Seconds until each revocation took effect: for new requests (`new`), and for requests in flight (`waiting`)."""

    new: list[float] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)

    def figures(self, kind: str) -> dict[str, float]:
        """Returns the percentiles for new requests, for requests in flight, and for the later of the two."""
        both = [max(pair) for pair in zip(self.new, self.waiting, strict=True)]
        named = {f"{kind}_new": self.new, f"{kind}_waiting": self.waiting, kind: both}
        figures: dict[str, float] = {}
        for name, seconds in named.items():
            figures |= percentiles_ms(seconds, f"{name}_") | {f"{name}_worst_ms": 1000 * max(seconds)}
            del figures[f"{name}_p999_ms"]
        return figures


class _Bench:
    """The cluster under test, with its administrator, and the users whose rights are granted and revoked."""

    def __init__(self, cluster: LocalCluster, admin: AdminClient, session: aiohttp.ClientSession) -> None:
        self._admin = admin
        self._session = session
        self._urls = [cluster.broker(node_id).url for node_id in cluster.node_ids]
        self._records = f"/v3/clusters/{cluster.cluster_id}/topics/{TOPIC}/records"

    async def revoke_once(self, kind: str, number: int, ended: _Ended) -> None:
        """Creates one user with requests in flight, revokes its right, and notes when it took effect."""
        name = f"{kind}-{number}"
        headers, revoke = await self._let_in(kind, name)
        await asyncio.gather(*(self._until(url, headers, lambda status: status == 200) for url in self._urls))
        waiting = [asyncio.create_task(wait(url, headers)) for url in self._urls for wait in (self._read, self._stream)]
        await asyncio.sleep(SETTLE_S)
        assert not any(task.done() for task in waiting)
        await revoke()
        begin_s = time.perf_counter()
        new = asyncio.gather(*(self._until(url, headers, REFUSED.__contains__) for url in self._urls))
        async with asyncio.timeout(PATIENCE_S):
            ends_s = await asyncio.gather(*waiting)
            ended.new.append(max(await new) - begin_s)
            ended.waiting.append(max(0.0, max(ends_s) - begin_s))

    async def _let_in(self, kind: str, name: str) -> tuple[Mapping[str, str], Callable[[], Any]]:
        """Creates a user; returns its authentication headers, and a function that revokes its right."""
        admin, principal = self._admin, f"User:{name}"
        await admin.create_acls([allow(principal, operation, "TOPIC", TOPIC) for operation in ("READ", "WRITE")])
        if kind == "user":
            await admin.create_user(name, PASSWORD)
            shown = b64encode(f"{name}:{PASSWORD}".encode()).decode()
            return {"Authorization": f"Basic {shown}"}, lambda: admin.delete_user(name)
        made = await admin.create_token(principal)
        headers = {"Authorization": f"Bearer {made.token}"}
        if kind == "token":
            return headers, lambda: admin.revoke_token(made.token_id)
        words = {"resource_type": "TOPIC", "pattern_type": "LITERAL", "operation": "ANY", "permission": "ALLOW"}
        return headers, lambda: admin.delete_acls(principal=principal, **words)

    async def _until(self, url: str, headers: Mapping[str, str], is_expected: Callable[[int], bool]) -> float:
        """Repeats a request to a broker until its status is the expected one; returns the time then. A broker learns of
        a change a little later than the one that made it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with self._session.get(f"{url}/topics/{TOPIC}", headers=headers) as answer:
                    if is_expected(answer.status):
                        return time.perf_counter()
                await asyncio.sleep(LOOK_EVERY_S)

    async def _read(self, url: str, headers: Mapping[str, str]) -> float:
        """Sends a fetch request that waits for records that never come; returns the time when it was refused."""
        target = f"{url}/topics/{TOPIC}/partitions/0/records?offset=0&timeout={int(1000 * PATIENCE_S)}"
        async with self._session.get(target, headers=headers) as answer:
            assert answer.status in REFUSED, answer.status
            return time.perf_counter()

    async def _stream(self, url: str, headers: Mapping[str, str]) -> float:
        """Keeps a produce stream open; returns the time when the broker closed it."""

        async def records() -> AsyncIterator[bytes]:
            yield b'{"partition_id":1,"value":{"type":"JSON","data":1}}'
            await asyncio.sleep(PATIENCE_S)

        try:
            target = url + self._records
            async with self._session.post(target, data=records(), headers={**headers, **JSON}) as answer:
                await answer.read()
        except aiohttp.ClientError:
            return time.perf_counter()
        raise AssertionError("a stream ended by itself")


KINDS: Final = ("token", "user", "acl")


async def measure_revocation(options: RevocationOptions, progress: Progress) -> Result:
    """Runs the workload `revocation` and returns its figures."""
    ended = {kind: _Ended() for kind in KINDS}
    async with secured_cluster(Level.LOGIN, BROKERS, settings=SETTINGS) as (cluster, _):
        context = Security(ssl_ca_location=cluster.security["ssl_ca_location"]).context()
        async with AdminClient(**connection_of(cluster)) as admin, _session(context) as session:
            await admin.create_topic(TOPIC, partitions=2, replication_factor=BROKERS)
            bench = _Bench(cluster, admin, session)
            for begin in range(0, options.times, options.at_once):
                numbers = range(begin, min(begin + options.at_once, options.times))
                for place, kind in enumerate(KINDS):
                    await asyncio.gather(*(bench.revoke_once(kind, number, ended[kind]) for number in numbers))
                    progress(begin * len(KINDS) + len(numbers) * (place + 1), options.times * len(KINDS))
    figures: dict[str, float] = {}
    for kind, delays in ended.items():
        figures |= delays.figures(kind)
    return Result("revocation", asdict(options), figures)


def _session(context: ssl.SSLContext) -> aiohttp.ClientSession:
    """Returns an HTTP session without a limit of connections, since each waiting request occupies one."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=context))
