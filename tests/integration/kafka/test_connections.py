"""Connections: who comes to the wrong port is told so or cut off, and a frame that is none harms nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from tests.integration.http.wire import ask
from tests.integration.kafka.conftest import Client, KafkaSite, batch, request_frame, started
from tidelog.broker.face.brake import MEASUREMENTS, Brake
from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.memory import OWN_BYTES
from tidelog.broker.kafka.slices import TURN_REQUESTS

VERSIONS = request_frame(Key.API_VERSIONS, 0, {})


async def all_of(client: Client) -> bytes:
    """Returns what comes until the connection ends, in order or by a reset."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(10):
            return await client.reader.read()
    return b""


async def test_http_is_given_directions(site: KafkaSite) -> None:
    client = await site.client()
    client.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await all_of(client)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"HTTP clients go to" in answer and b"Kafka" in answer


@pytest.mark.parametrize(
    "begun",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff" + b"x" * 100,
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x03abc",
        b"\x00\x00\x00\x0a" + b"\x7f\xff" + bytes(8),
        b"\x00\x00\x00\x0a" + Key.FETCH.to_bytes(2) + (99).to_bytes(2) + bytes(6),
        b"\x00\x00\x00\x0a" + Key.PRODUCE.to_bytes(2) + (9).to_bytes(2) + bytes(4) + b"\x7f\xff",
        (2 << 20).to_bytes(4) + Key.METADATA.to_bytes(2) + bytes(70_000),
        (33 << 20).to_bytes(4) + Key.PRODUCE.to_bytes(2) + bytes(70_000),
    ],
    ids=["tls", "negative", "2 GB", "empty", "short", "key", "version", "client id", "metadata", "produce"],
)
async def test_what_is_no_request_ends_its_connection_alone(site: KafkaSite, begun: bytes) -> None:
    other, client = await site.client(), await site.client()
    client.writer.write(begun)
    assert await all_of(client) == b""
    assert (await other.ask(Key.API_VERSIONS, 0)).error_code == ErrorCode.none
    assert sum(site.server.metrics.refused.values()) == 1
    assert site.server.parts.admission.bodies.used == 0


async def test_a_million_names_are_refused_before_they_are_read(site: KafkaSite) -> None:
    client = await site.client()
    head = Key.METADATA.to_bytes(2) + (9).to_bytes(2) + bytes(4) + b"\xff\xff\x00"
    body = head + b"\xc0\x84\x3d" + b"\x01\x00" * 500_000
    client.send(body)
    assert await all_of(client) == b""


async def test_a_kafka_client_at_the_http_port_is_cut_off(site: KafkaSite) -> None:
    client = await Client.open(site.http.address)
    client.send(VERSIONS)
    assert await all_of(client) == b""
    await client.close()
    assert (await ask(site.http.address, "GET", "/readyz")).status == 200


async def test_large_frames_that_never_come_keep_nobody_out(site: KafkaSite) -> None:
    for _ in range(30):
        hoarder = await site.client()
        hoarder.writer.write((30 << 20).to_bytes(4) + Key.PRODUCE.to_bytes(2) + bytes(70_000))
    bodies = site.server.parts.admission.bodies
    while bodies.used + (30 << 20) <= bodies.bytes_max:
        await asyncio.sleep(0.01)
    client = await site.client()
    for _ in range(20):
        (done,) = await client.produce(("t", 0, batch(b"a")))
        assert done.error_code == ErrorCode.none
    assert bodies.used <= bodies.bytes_max
    for hoarder in site.clients[:30]:
        await hoarder.close()
    while bodies.used:
        await asyncio.sleep(0.01)


async def test_a_request_waits_for_memory_as_long_as_any_may_wait() -> None:
    async with started({"request.timeout.ms.max": 300}) as site:
        large, small = await site.client(), await site.client()
        await small.ask(Key.API_VERSIONS, 0)
        for connection in site.server._connections:
            connection._memory._under_way_bytes = OWN_BYTES
        bodies = site.server.parts.admission.bodies
        bodies.take(bodies.bytes_max)
        began_s = asyncio.get_running_loop().time()
        large.writer.write((1 << 20).to_bytes(4) + Key.PRODUCE.to_bytes(2) + bytes(70_000))
        small.send(VERSIONS)
        assert [await all_of(large), await all_of(small)] == [b"", b""]
        assert asyncio.get_running_loop().time() >= began_s + 0.3
        assert sum(site.server.metrics.refused.values()) == 2
        assert bodies.used == bodies.bytes_max


async def test_a_frame_that_never_ends_is_freed_with_its_connection(site: KafkaSite) -> None:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(20):
            client = await site.client()
            client.writer.write((1 << 20).to_bytes(4) + Key.PRODUCE.to_bytes(2) + bytes(900_000))
            await client.writer.drain()
            while not site.server.parts.admission.bodies.used:
                await asyncio.sleep(0)
            await client.close()
            while site.server.parts.admission.connections.open:
                await asyncio.sleep(0)
        assert tracemalloc.get_traced_memory()[0] < 5 << 20, "not only when cycles are collected"
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_a_connection_at_rest_costs_little_memory(site: KafkaSite) -> None:
    await (await site.client()).ask(Key.API_VERSIONS, 0)
    tracemalloc.start()
    try:
        for _ in range(50):
            client = await site.client()
            assert (await client.ask(Key.API_VERSIONS, 0)).error_code == ErrorCode.none
        taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/tidelog/*")])
        assert sum(trace.size for trace in taken.statistics("filename")) < 50 * (20 << 10)
    finally:
        tracemalloc.stop()


async def test_who_sends_thousands_of_requests_in_one_piece_leaves_others_their_turns(site: KafkaSite) -> None:
    client, other = await site.client(), await site.client()
    assert (await other.ask(Key.API_VERSIONS, 1)).error_code == ErrorCode.none
    client.writer.write((len(VERSIONS).to_bytes(4) + VERSIONS) * 2_000)
    served = site.server.metrics.calls[Key.API_VERSIONS, 0]
    while not served.requests:
        await asyncio.sleep(0)
    assert served.requests <= TURN_REQUESTS
    assert (await other.ask(Key.API_VERSIONS, 1)).error_code == ErrorCode.none
    assert served.requests < 1_000
    for _ in range(2_000):
        assert await client.receive()


async def test_while_the_loop_runs_late_requests_are_held_up_but_not_what_keeps_members(site: KafkaSite) -> None:
    shedding = site.server.parts.admission.shedding
    assert shedding.brake is site.http.context.admission.shedding.brake
    shedding.brake = brake = Brake(0.2)
    site.server.parts.limits = replace(site.server.parts.limits, room_s_max=0.3)
    for lag_s, is_read, is_written in ((0.0, True, True), (0.4, False, True), (0.9, False, False)):
        for _ in range(MEASUREMENTS):
            brake.measured(lag_s)
        reader, writer, member = [await site.client() for _ in range(3)]
        held = site.server.metrics.held["lag"]
        await asyncio.gather(reader.fetch(("t", 0, 0)), writer.produce(("t", 0, batch(b"a"))))
        assert site.server.metrics.held["lag"] - held == (not is_read) + (not is_written)
        await member.ask(Key.HEARTBEAT, 4, group_id="g", generation_id=1, member_id="m", group_instance_id=None)
        await member.ask(Key.METADATA, 9, topics=[], include_topic_authorized_operations=False,
                         include_cluster_authorized_operations=False)  # fmt: skip
        assert site.server.metrics.held["lag"] - held == (not is_read) + (not is_written)


async def test_a_frame_may_come_a_byte_at_a_time(site: KafkaSite) -> None:
    client = await site.client()
    for byte in len(VERSIONS).to_bytes(4) + VERSIONS:
        client.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert await client.receive()


async def test_there_are_so_many_places_and_no_more() -> None:
    async with started({"kafka.connections.max": 3}) as site:
        clients = [await site.client() for _ in range(3)]
        for client in clients:
            assert (await client.ask(Key.API_VERSIONS, 0)).error_code == ErrorCode.none
        assert await all_of(await site.client()) == b""
        assert site.server.metrics.refused["connections"] == 1
        await clients[0].close()
        while site.server.parts.admission.connections.open > 2:
            await asyncio.sleep(0.01)
        assert (await (await site.client()).ask(Key.API_VERSIONS, 0)).error_code == ErrorCode.none


async def test_a_connection_at_rest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.broker.kafka.server.SWEEP_S", 0.02)
    async with started({"connections.max.idle.ms": 30}) as site:
        assert await all_of(await site.client()) == b""


async def test_the_listener_is_registered_and_counted(site: KafkaSite) -> None:
    client = await site.client()
    await client.produce(("t", 0, batch(b"a")))
    listeners = site.broker.image.brokers[site.broker.node_id].listeners
    assert listeners["kafka"] == site.server.advertised
    shown = {metric.name: metric for metric in site.server.metrics.collect()}
    (sample,) = [one for one in shown["tidelog_kafka_requests"].samples if one.labels["call"] == "Produce"]
    assert (sample.labels["version"], sample.value) == ("9", 1)
    assert shown["tidelog_kafka_connections"].samples[0].value == 1
