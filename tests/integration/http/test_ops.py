"""Health, readiness, metrics, the description; start and stop."""

from __future__ import annotations

import asyncio
import json

import pytest
import structlog.testing
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.http.conftest import JSON_DOCUMENT, STOP_S, Site, listen, simulated
from tests.integration.http.wire import head
from tidelog.broker.http.routes import ROUTES


async def test_health_and_readiness(site: Site) -> None:
    assert (await site.get("/healthz")).json() == {"status": "ok"}
    ready = await site.get("/readyz")
    assert ready.json() == {"status": "ready", "cluster_id": site.broker.cluster_id, "node_id": 1}
    site.broker.is_ready = False
    for target in ("/readyz", "/topics", "/v3/clusters", "/topics/t/partitions/0/records?offset=0"):
        reply = await site.get(target)
        assert (reply.status, reply.code) == (503, 50302)
        assert 1 <= int(reply.headers["retry-after"]) <= 4
    for target in ("/healthz", "/metrics", "/openapi.json", "/"):
        assert (await site.get(target)).status == 200
    site.broker.is_ready = True


async def test_a_broker_that_is_to_stop_serves_still_and_is_not_ready(site: Site) -> None:
    await site.broker.hand_over()
    refused = await site.get("/readyz")
    assert (refused.status, refused.code) == (503, 50306)
    assert (await site.produce(1)).status == 200


async def test_what_comes_while_a_listener_drains_is_answered_and_is_the_last(site: Site) -> None:
    """A client that has just sent a request when the listener closes is not cut off, and is told to go elsewhere."""
    async with await site.wire() as busy, await site.wire() as idle:
        for wire in (busy, idle):
            kept = await wire.request("GET", "/topics")
            assert "connection" not in kept.headers
        stopping = asyncio.ensure_future(site.server.stop(STOP_S, linger_s=STOP_S))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await site.wire()
        last = await busy.request("GET", "/topics")
        assert (last.status, last.headers["connection"]) == (200, "close")
        assert not stopping.done(), "another client may be about to ask"
        assert (await idle.request("GET", "/topics")).headers["connection"] == "close"
        await stopping


async def test_load_balancers_may_ask_for_the_head_only(site: Site) -> None:
    async with await site.wire() as wire:
        for target in ("/healthz", "/readyz", "/", "/metrics"):
            reply = await wire.request("HEAD", target)
            assert (reply.status, reply.body) == (200, b"")
        assert (await wire.request("HEAD", "/topics")).status == 405
        assert (await wire.request("GET", "/healthz")).status == 200


async def test_metrics_count_what_happened(site: Site) -> None:
    await site.produce(1, 2)
    await site.get("/topics/t/partitions/0/records?offset=0")
    await site.get("/topics/none")
    await site.get("/nowhere")
    text = await site.metrics()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {
        (sample.name, sample.labels.get("route"), sample.labels.get("status")): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["tidelog_http_requests_total", "/topics/{topic}", "200"] == 1
    assert samples["tidelog_http_requests_total", "/topics/{topic}", "404"] == 1
    assert samples["tidelog_http_requests_total", "unmatched", "404"] == 1
    assert samples["tidelog_http_request_seconds_count", "/topics/{topic}", None] == 1
    assert samples["tidelog_http_received_bytes_total", "/topics/{topic}", None] > 20
    assert samples["tidelog_appended_records_total", None, None] == 2
    (watermark,) = families["tidelog_partition_high_watermark"].samples
    assert (watermark.labels, watermark.value) == ({"topic": "t", "partition": "0"}, 2)
    assert "none" not in text
    assert "nowhere" not in text


async def test_a_fault_of_ours_is_logged_once_and_tells_the_client_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("the secret")

    monkeypatch.setattr(site.broker.face.partitions, "handle", fail)
    with structlog.testing.capture_logs() as logs:
        reply = await site.get("/topics/t/partitions/0/offsets")
    assert (reply.status, reply.code) == (500, 50001)
    assert b"secret" not in reply.body
    (entry,) = logs
    assert (entry["log_level"], entry["route"]) == ("error", "/topics/{topic}/partitions/{partition}/offsets")


async def test_a_fault_after_the_answer_has_begun_cuts_the_connection(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await site.wire() as wire:
        wire.write(head("POST", f"{site.v3}/topics/t/records", {"Transfer-Encoding": "chunked"}))
        wire.write_chunk(b'{"value":{"type":"JSON","data":1}}')
        await wire.read_head()
        await wire.read_chunk()
        monkeypatch.setattr(site.broker.face.partitions, "handle", None)  # calling it raises
        with structlog.testing.capture_logs() as logs:
            wire.write_chunk(b'{"value":{"type":"JSON","data":2}}')
            assert await wire.is_closed()
        assert len(logs) == 1
    monkeypatch.undo()
    await site.until_idle()


async def test_two_brokers_in_one_process_count_apart() -> None:
    async with simulated() as one, simulated() as other:
        await one.produce(1)
        assert "tidelog_appended_records_total 1.0" in await one.metrics()
        assert "tidelog_appended_records_total 0.0" in await other.metrics()


async def test_the_description_is_served(site: Site) -> None:
    document = (await site.get("/openapi.json")).json()
    assert len([method for path in document["paths"].values() for method in path]) == len(ROUTES)


async def test_a_stop_ends_waits_at_once_and_lets_requests_finish(site: Site) -> None:
    async with await site.wire() as wire, await site.wire() as stream:
        stream.write(head("POST", f"{site.v3}/topics/t/records", {"Transfer-Encoding": "chunked", **JSON_DOCUMENT}))
        stream.write_chunk(b'{"value":{"type":"JSON","data":1}}')
        await stream.read_head()
        await stream.read_chunk()
        waiting = asyncio.ensure_future(wire.request("GET", "/topics/t/partitions/0/batches?offset=1&wait_ms=20000"))
        await site.until(lambda: site.broker.purgatory.waiting == 1)
        await site.server.stop(STOP_S)
        reply = await waiting
        assert (reply.status, reply.body) == (200, b"")
        assert json.loads(await stream.read_chunk())["error_code"] == 50306
        assert await stream.read_chunk() == b""
        assert await stream.is_closed()
    site.server = await listen(site.broker.face)
    assert site.values() == [b"1"]


async def test_idle_connections_do_not_delay_a_stop(site: Site) -> None:
    wires = [await site.wire() for _ in range(20)]
    for wire in wires[:10]:
        assert (await wire.request("GET", "/healthz")).status == 200
    async with asyncio.timeout(STOP_S):
        await site.server.stop(60)
    for wire in wires:
        assert await wire.is_closed()
        await wire.close()
    site.server = await listen(site.broker.face)


async def test_records_survive_a_restart_of_everything(disk_site: Site) -> None:
    await disk_site.produce(1, 2)
    before = await disk_site.get("/topics/t/partitions/0/records?offset=0")
    await disk_site.restart()
    after = await disk_site.get("/topics/t/partitions/0/records?offset=0")
    assert after.json() == before.json()
