"""A broker killed in the middle of the load: nothing acknowledged is lost, and nothing is there twice."""

from __future__ import annotations

import asyncio

import pytest
from flights import by_carrier, carrier_of, prepare, read_flights

from tests.e2e.clusters import running
from tidelog.consumer import Consumer, ConsumerRecord, TopicPartition
from tidelog.producer import Deliveries, Producer

ROWS = 60_000
CHUNK_ROWS = 500
KILLED_AFTER_CHUNKS = 40
CHUNKS_UNDER_WAY = 20

pytestmark = [pytest.mark.process, pytest.mark.slow]


async def read_everything(bootstrap: str, partitions: list[TopicPartition]) -> dict[tuple[int, int], ConsumerRecord]:
    """All records, by partition and offset."""
    found: dict[tuple[int, int], ConsumerRecord] = {}
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=10_000)).values():
                found |= {(record.partition, record.offset): record for record in records}
    return found


async def test_a_killed_broker_loses_nothing_acknowledged_and_repeats_nothing(protocol: str) -> None:
    rows = read_flights(ROWS)
    with running(protocol, 1, settings={}) as cluster:
        partitions = list(await prepare(cluster.bootstrap, "flights"))
        sent: list[tuple[list[bytes], Deliveries]] = []
        async with Producer(cluster.bootstrap) as producer:
            restarting: asyncio.Task[None] | None = None
            for start in range(0, ROWS, CHUNK_ROWS):
                values = rows[start : start + CHUNK_ROWS]
                sent.append((values, await producer.send_batch("flights", values, list(map(carrier_of, values)))))
                if len(sent) > CHUNKS_UNDER_WAY:
                    await sent[-CHUNKS_UNDER_WAY][1]
                if len(sent) == KILLED_AFTER_CHUNKS:
                    cluster.kill()
                    restarting = asyncio.create_task(asyncio.to_thread(cluster.restart))
            assert restarting is not None
            await restarting
            acknowledged = [
                (row, place) for values, result in sent for row, place in zip(values, await result, strict=True)
            ]
        found = await read_everything(cluster.bootstrap, partitions)
    assert len(acknowledged) == len(found) == ROWS
    for row, place in acknowledged:
        assert place.offset is not None
        assert found[place.partition, place.offset].value == row
    in_order = [record.value or b"" for _, record in sorted(found.items())]
    assert by_carrier(in_order) == by_carrier(rows)
