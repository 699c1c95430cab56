"""Fixtures for aiokafka's integration tests, in place of those of theirs that start Kafka in a container.

pytest loads this with `--noconftest`. `KAFKA_URI` is the address of the broker that runs. Their tests rely on topics
that are made when they are asked for, with two partitions. Here that is never so, and the client makes them itself
before it asks. Of their tests those are run that ask a broker.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # untyped

HOST, _, PORT = os.environ["KAFKA_URI"].removeprefix("kafka://").rpartition(":")
VERSION = os.environ["KAFKA_VERSION"]
PARTITIONS = 2
TIMEOUT_S = 10.0

_made: set[str] = set()
_metadata_update = AIOKafkaClient._metadata_update


async def _make_and_update(client: AIOKafkaClient, cluster: Any, topics: Any) -> bool:
    missing = sorted(set(topics or ()) - _made)
    if missing:
        await asyncio.to_thread(_make, missing)
    is_updated: bool = await _metadata_update(client, cluster, topics)
    return is_updated


def _make(topics: list[str]) -> None:
    """Names that are refused stay unknown, as with Kafka."""
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{PORT}"})
    for name, answer in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in topics]).items():
        try:
            answer.result(TIMEOUT_S)
        except KafkaException:
            continue
        _made.add(name)


AIOKafkaClient._metadata_update = _make_and_update


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    if not loop.is_closed():
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    cls = request.cls
    cls.loop, cls.kafka_host, cls.kafka_port, cls.hosts = loop, HOST, int(PORT), [f"{HOST}:{PORT}"]
    cls.kafka_version = VERSION


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what asks no broker."""
    asking = [item for item in items if "setup_test_class" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in asking])
    items[:] = asking
