"""Tests of administration share this: requests with one item, and the admin clients that people have."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, TypeVar

from aiokafka.admin import AIOKafkaAdminClient

from tests.integration.kafka.conftest import KafkaSite

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas by a deprecated call when it is imported
    from kafka import KafkaAdminClient

CONFLUENT: Any = import_module("confluent_kafka.admin")
"""The module of confluent-kafka's admin client, which does not say what it exports."""
T = TypeVar("T")
PATIENCE_S = 20


def at(site: KafkaSite) -> str:
    return f"127.0.0.1:{site.server.address[1]}"


def confluent(site: KafkaSite, **options: Any) -> Any:
    return CONFLUENT.AdminClient({"bootstrap.servers": at(site), **options})


async def beside(call: Callable[..., T], *args: Any, **options: Any) -> T:
    """Returns the result of a blocking call of a client, which the broker of this process answers meanwhile."""
    return await asyncio.to_thread(call, *args, **options)


async def results(futures: dict[Any, Any]) -> dict[Any, Any]:
    """The results of confluent-kafka's futures, or the codes of their errors, by what they are about."""
    found: dict[Any, Any] = {}
    for name, future in futures.items():
        try:
            found[name] = await beside(future.result, PATIENCE_S)
        except Exception as error:  # noqa: BLE001 -- as the client has it
            found[name] = error.args[0].code()
    return found


@asynccontextmanager
async def kafka_python(site: KafkaSite) -> AsyncIterator[Any]:
    client = await beside(KafkaAdminClient, bootstrap_servers=at(site))
    try:
        yield client
    finally:
        await beside(client.close)


@asynccontextmanager
async def aiokafka_admin(site: KafkaSite) -> AsyncIterator[Any]:
    client = AIOKafkaAdminClient(bootstrap_servers=at(site))
    await client.start()
    try:
        yield client
    finally:
        await client.close()
