"""Bounds under load: too many connections, too much memory, readers that do not read, disks that are full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar, cast

import pytest

from tests.integration.http.conftest import JSON_V2, Site, simulated
from tests.integration.http.wire import Reply, Wire, head
from tests.keeping import nothing_kept
from tidelog.broker.http import resting
from tidelog.broker.http.connection import Connection
from tidelog.broker.http.large_bodies import AT_ONCE, LargeBodies
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import FaultRates

T = TypeVar("T")

BATCHES = "/topics/t/partitions/0/batches"


async def test_one_connection_too_many_is_served_what_is_always_on_and_told() -> None:
    """F114."""
    async with simulated(connections_max=3, probes_max=1) as site:
        wires = [await site.wire() for _ in range(3)]
        for wire in wires:
            assert (await wire.request("GET", "/topics")).status == 200
        async with await site.wire() as probe:
            for path in ("/healthz", "/readyz", "/metrics"):
                assert (await probe.request("GET", path)).status == 200
            async with await site.wire() as surplus:
                reply = await surplus.read()  # unasked
                assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, 50305, "1")
                assert await surplus.is_closed()
            reply = await probe.request("GET", "/topics")
            assert (reply.status, reply.code) == (503, 50305)
            assert await probe.is_closed()
        await wires.pop().close()
        await _admitted(site, wires)
        assert 'tidelog_http_refused_total{reason="connections"}' in await site.metrics()
        for wire in wires:
            await wire.close()


async def test_connections_at_rest_give_way_to_those_that_ask() -> None:
    async with simulated(connections_max=3, probes_max=0, fresh_s=0.05, rested_s=3600.0) as site:
        used = await site.wire()
        assert (await used.request("GET", "/topics")).status == 200
        idle = [await site.wire() for _ in range(2)]
        await asyncio.sleep(0.1)
        asking = [await site.wire() for _ in range(2)]
        for wire in asking:
            assert (await wire.request("GET", "/topics")).status == 200
        assert [await wire.is_closed() for wire in idle] == [True, True]
        assert (await used.request("GET", "/topics")).status == 200, "who has asked may ask again"
        async with await site.wire() as surplus:
            assert (await surplus.read()).status == 503, "nobody is at rest"
        for wire in (used, *idle, *asking):
            await wire.close()


async def test_who_waits_for_an_answer_does_not_hide_who_is_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long polls are silent for longest; they must not be all that is looked at."""
    monkeypatch.setattr(resting, "LOOKED_AT_MAX", 1)
    async with simulated(connections_max=2, probes_max=0, fresh_s=0.05) as site:
        polling = await site.wire()
        polling.write(head("GET", f"{BATCHES}?offset=0&wait_ms=20000", {}))
        await site.until(lambda: site.broker.purgatory.waiting == 1)
        idle = await site.wire()
        await asyncio.sleep(0.1)
        async with await site.wire() as surplus:
            assert (await surplus.read()).status == 503
        async with await site.wire() as asking:
            assert (await asking.request("GET", "/topics")).status == 200
        assert await idle.is_closed()
        for wire in (polling, idle):
            await wire.close()


async def test_one_address_has_no_more_than_its_places() -> None:
    async with simulated(address_connections_max=2, probes_max=0, fresh_s=0.05) as site:
        asking = [await site.wire() for _ in range(2)]
        for wire in asking:
            assert (await wire.request("GET", "/topics")).status == 200
        async with await site.wire() as surplus:
            assert (await surplus.read()).code == 50305
        await asking.pop().close()
        await _admitted(site, asking)
        for wire in asking:
            await wire.close()


async def test_an_address_with_no_place_left_gets_that_of_its_own_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of other addresses that have been at rest for longer keep their places, and hide nobody."""
    monkeypatch.setattr(resting, "LOOKED_AT_MAX", 1)
    async with simulated(address_connections_max=1, probes_max=0, fresh_s=0.05) as site:
        other = await site.wire()
        idle = await _second_address(site)
        await asyncio.sleep(0.1)
        asking = await _second_address(site)
        assert (await asking.request("GET", "/topics")).status == 200
        assert await idle.is_closed()
        assert (await other.request("GET", "/topics")).status == 200
        for wire in (other, idle, asking):
            await wire.close()


async def _second_address(site: Site) -> Wire:
    return Wire(*await asyncio.open_connection(*site.address, local_addr=("127.0.0.2", 0)))


async def test_a_head_that_drips_is_refused_at_its_deadline() -> None:
    """F111."""
    async with simulated(head_timeout_s=0.1) as site:
        async with await site.wire() as dripping:
            dripping.write(b"GET /topics HTTP/1.1\r\nHost: test\r\nX-Slow: ")
            reply = await dripping.read()
            assert (reply.status, reply.code) == (408, 40801)
            assert await dripping.is_closed()
        async with await site.wire() as quiet:
            await asyncio.sleep(0.3)
            assert (await quiet.request("GET", "/topics")).status == 200, "no head has begun"
        assert 'tidelog_http_refused_total{reason="slow head"} 1.0' in await site.metrics()


async def test_requests_that_wait_too_long_are_shed_by_class_and_the_metadata_never_is() -> None:
    async with simulated(queue_wait_s_max=1e-9, queue_interval_s=1e-9) as site:
        wires = [await site.wire() for _ in range(20)]
        for path, are_shed in (("/topics", True), ("/metadata", False), ("/healthz", False)):
            for wire in wires:
                wire.write(head("GET", path, {}))
            replies = [await wire.read() for wire in wires]
            shed = [reply for reply in replies if reply.status == 503]
            assert bool(shed) is are_shed
            for reply in shed:
                assert reply.code == 50305
                assert "request.queue.wait.ms.max" in reply.message
                assert 1 <= int(reply.headers["retry-after"]) <= 4
        assert 'tidelog_http_shed_total{cause="wait",class="admin"}' in await site.metrics()
        assert (await wires[0].request("GET", "/topics")).status == 200, "alone it waits for nobody"
        for wire in wires:
            await wire.close()


async def test_while_the_loop_runs_late_only_what_holds_the_cluster_together_is_served() -> None:
    async with simulated(loop_lag_s_max=1e-9) as site:
        await site.until(lambda: site.gauge("tidelog_loop_lag_seconds") >= 4e-9)
        for reply in (
            await site.get(f"{BATCHES}?offset=0&wait_ms=1"),
            await site.get(f"{BATCHES}?offset=0"),
            await site.get("/topics"),
            await site.produce("x"),
        ):
            assert (reply.status, reply.code) == (503, 50305)
            assert "loop.lag.ms.max" in reply.message
        for path in ("/metadata", "/readyz"):
            assert (await site.get(path)).status == 200
        assert 'tidelog_http_shed_total{cause="lag",class="long poll"} 1.0' in await site.metrics()


async def _admitted(site: Site, wires: list[Wire]) -> None:
    """Tries until the place of the closed connection is free."""
    async with asyncio.timeout(20):
        while True:
            wire = await site.wire()
            reply = await wire.request("GET", "/topics")
            if reply.status == 200:
                wires.append(wire)
                return
            await wire.close()


async def test_bodies_beyond_the_budget_are_refused_unread() -> None:
    async with simulated(body_budget_bytes=10_000) as site:
        async with await site.wire() as slow:
            slow.write(head("POST", BATCHES, {"Content-Length": "9000"}))
            await site.until(lambda: _bodies(site) == 9000)
            async with await site.wire() as wire:
                wire.write(head("POST", BATCHES, {"Content-Length": "2000", "Expect": "100-continue"}))
                reply = await wire.read()
                assert (reply.status, reply.code) == (503, 50305)
                assert 1 <= int(reply.headers["retry-after"]) <= 4
                assert await wire.is_closed()
            assert (await site.ask("POST", BATCHES, site.batch(b"small"))).status == 200
        await site.until(lambda: _bodies(site) == 0)
        assert (await site.ask("POST", BATCHES, site.batch(b"x" * 5000))).status == 200


async def test_every_refusal_arrives_also_at_who_sends_the_whole_body_first() -> None:
    """No client gets a reset: each reads its receipt, or its whole 503."""
    async with simulated(body_budget_bytes=20 << 20, body_timeout_s=60.0, lingering_s=60.0) as site:
        body = site.batch(b"x" * 1_000_000) * 8
        replies = await asyncio.gather(*(_send_then_read(site, body) for _ in range(40)))
        statuses = [reply.status for reply in replies]
        assert {200, 503} <= set(statuses) <= {200, 503, 504}, "504 on a machine so slow that a commit takes too long"
        assert 50305 in {reply.code for reply in replies}
        done, perhaps = 8 * statuses.count(200), 8 * statuses.count(504)
        assert done <= len(site.values()) <= done + perhaps
        await site.until_idle()


async def test_large_bodies_take_turns_and_wait_for_no_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more of them are read at a time, and clients that send nothing more hold up none of the others."""
    most = 0
    turn = LargeBodies._turn

    def counting(self: LargeBodies) -> None:
        nonlocal most
        turn(self)
        most = max(most, len(self._reading))
        assert not any(cast("Connection", one)._is_held for one in self._reading)
        assert all(cast("Connection", one)._is_held for one in self._waiting)

    monkeypatch.setattr(LargeBodies, "_turn", counting)
    async with simulated(body_timeout_s=60.0) as site, AsyncExitStack() as stack:
        body = site.batch(b"x" * 900_000) * 2
        for _ in range(AT_ONCE):
            slow = await stack.enter_async_context(await site.wire())
            slow.write(head("POST", BATCHES, {"Content-Length": str(len(body))}) + body[:1000])
        replies = await asyncio.gather(*(_send_then_read(site, body) for _ in range(5 * AT_ONCE)))
        assert {reply.status for reply in replies} <= {200, 504}, (
            "504 on a machine so slow that a commit takes too long"
        )
        assert most == AT_ONCE


async def _send_then_read(site: Site, body: bytes) -> Reply:
    async with await site.wire() as wire:
        wire.writer.transport.set_write_buffer_limits(0)
        wire.write(head("POST", BATCHES, {"Content-Length": str(len(body))}))
        wire.write(body)
        await wire.writer.drain()
        return await wire.read()


async def test_a_refused_client_that_never_ends_is_cut_at_the_bound() -> None:
    async with simulated(lingering_s=60.0, lingering_bytes_max=1 << 20) as site, await site.wire() as wire:
        wire.write(head("POST", "/topics/t", {"Content-Length": str(1 << 40)}))
        assert (await wire.read()).status in (413, 415)
        with pytest.raises(ConnectionError):
            while True:
                wire.write(bytes(1 << 20))
                await wire.writer.drain()
        await site.until_idle()


def _bodies(site: Site) -> float:
    return site.gauge("tidelog_http_body_bytes")


async def test_a_reader_that_does_not_read_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """F111."""
    async with simulated(drain_timeout_s=0.1) as site:
        for _ in range(20):
            await site.ask("POST", BATCHES, site.batch(b"x" * 1_000_000))
        for query in ("offset=0&max_bytes=50000000", "offset=0&to=20"):
            wire = await site.wire()
            wire.write(head("GET", f"{BATCHES}?{query}", {}))
            await site.until(lambda: site.gauge("tidelog_http_connections") == 1)
            await site.until(lambda: site.gauge("tidelog_http_connections") == 0)
            with pytest.raises(ConnectionResetError):  # the kernel does not go on offering what it holds
                while await wire.reader.read(1 << 16):
                    pass
            await wire.close()
        assert 'tidelog_http_refused_total{reason="slow reader"} 2.0' in await site.metrics()
        await site.until_idle()
    assert not caplog.records, "it is the client's fault"


async def test_answers_beyond_their_budget_are_refused() -> None:
    async with simulated(answer_budget_bytes=1_500_000) as site:
        for _ in range(10):
            await site.ask("POST", BATCHES, site.batch(b"x" * 1_000_000))
        stalled = await site.wire()
        stalled.write(head("GET", f"{BATCHES}?offset=0&max_bytes=9000000", {}))
        await site.until(lambda: site.gauge("tidelog_http_answer_bytes") > 8_000_000)  # the first one always fits
        reply = await site.get(f"{BATCHES}?offset=0")
        assert (reply.status, reply.code) == (503, 50305)
        assert (await site.get(f"{BATCHES}?offset=10")).status == 200
        await stalled.close()
        await site.until(lambda: site.gauge("tidelog_http_answer_bytes") == 0)
        assert (await site.get(f"{BATCHES}?offset=0")).status == 200


async def test_a_full_disk_is_507_and_writes_resume_by_themselves() -> None:
    disk = SimDisk()
    async with simulated(disk) as site:
        await site.produce("before")
        disk.medium.capacity_bytes = disk.medium.used_bytes
        for reply in (
            await site.produce("lost"),
            await site.ask("POST", BATCHES, site.batch(b"lost")),
            await site.produce("lost", query="?acks=1"),
        ):
            assert (reply.status, reply.code) == (507, 50701)
        assert (await site.get("/topics/t/partitions/0/records?offset=0")).status == 200
        disk.medium.capacity_bytes = 1 << 30
        assert (await site.produce("after")).status == 200
        assert site.values() == [b'"before"', b'"after"']


async def test_a_refused_append_keeps_nothing_of_its_body() -> None:
    disk = SimDisk()
    async with simulated(disk) as site:
        await site.topic("u", 2)
        disk.medium.capacity_bytes = disk.medium.used_bytes
        batch = site.batch(b"x" * 100_000)
        for query, body in (("?expected_end_offset=9", batch), ("", batch), ("", batch[:-1])):
            with nothing_kept():
                reply = await site.ask("POST", BATCHES + query, body)
                assert reply.status in (400, 503, 507)
        records = [{"value": 1, "partition": 0}, {"value": 2, "partition": 1}]
        for path, form in (("/topics/u", JSON_V2), ("/v3/clusters/x/topics/u/records", JSON_V2)):
            with nothing_kept():
                assert (await site.post(path, {"records": records}, form)).status >= 400
        disk.medium.capacity_bytes = 1 << 30


async def test_a_failed_fsync_is_never_taken_for_a_success() -> None:
    disk = SimDisk()
    async with simulated(disk) as site:
        await site.produce("safe")
        disk.medium.faults = FaultRates(sync_error=1.0)
        reply = await site.produce("unknown")
        assert (reply.status, reply.code) == (504, 50401)
        disk.medium.faults = FaultRates()
        reply = await site.produce("refused")
        assert (reply.status, reply.code) == (503, 50304)
        assert (await site.get("/topics/t/partitions/0/records?offset=0")).json()[0]["offset"] == 0


async def test_one_of_two_partitions_fails_inside_a_200() -> None:
    disk = SimDisk()
    async with simulated(disk) as site:
        await site.topic("u", 2)
        disk.medium.faults = FaultRates(sync_error=1.0)
        await site.post("/topics/u/partitions/0", {"records": [{"value": 1}]}, JSON_V2)
        disk.medium.faults = FaultRates()
        reply = await site.post(
            "/topics/u", {"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 1}]}, JSON_V2
        )
        assert reply.status == 200
        failed, done = reply.json()["offsets"]
        assert (failed["partition"], failed["offset"], failed["error_code"]) == (0, None, 50304)
        assert failed["error"]
        assert (done["partition"], done["offset"], done["error_code"]) == (1, 0, None)


async def test_a_deadline_that_has_passed_before_the_append_is_503(site: Site) -> None:
    reply = await site.produce(1, query="?timeout_ms=0")
    assert (reply.status, reply.code) == (503, 50305)
    await site.produce(2)
    assert site.values() == [b"2"]


async def test_a_deadline_that_passes_after_the_append_is_504() -> None:
    disk = SlowDisk()
    async with simulated(runner=disk) as site:
        disk.is_free.clear()
        while (reply := await site.produce(1, query="?timeout_ms=30")).status == 503:
            pass  # it has passed before the append, for the machine is slow
        assert (reply.status, reply.code) == (504, 50401)
        assert site.partition().log_end_offset == 1
        disk.is_free.set()


class SlowDisk:
    """Calls of the disk thread wait until it is free."""

    def __init__(self) -> None:
        self.is_free = asyncio.Event()
        self.is_free.set()

    async def run(self, call: Callable[[], T]) -> T:
        await self.is_free.wait()
        return call()

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        await self.is_free.wait()
        return [call() for call in calls]
