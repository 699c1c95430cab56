"""Tests of a program on a real broker: one that all tests share, and one of a test's own that it kills.

pip install pytest
pytest examples/pytest_suite
"""

import asyncio
import json

from totals import totals

from tidelog.admin import AdminClient
from tidelog.producer import Producer
from tidelog.testing import LocalCluster


async def order(bootstrap: str, topic: str, **items: int) -> None:
    """Writes an order of each item."""
    values = [json.dumps({"item": item, "count": count}).encode() for item, count in items.items()]
    async with Producer(bootstrap) as producer:
        await producer.send_batch(topic, values, keys=[item.encode() for item in items])


def test_nothing_was_ordered(tidelog_cluster: LocalCluster, topic: str) -> None:
    assert asyncio.run(totals(tidelog_cluster.bootstrap, topic)) == {}


def test_orders_of_an_item_add_up(tidelog_cluster: LocalCluster, topic: str) -> None:
    asyncio.run(order(tidelog_cluster.bootstrap, topic, tea=2, milk=1))
    asyncio.run(order(tidelog_cluster.bootstrap, topic, tea=3))
    assert asyncio.run(totals(tidelog_cluster.bootstrap, topic)) == {"tea": 5, "milk": 1}


def test_what_was_ordered_is_there_when_a_broker_was_killed() -> None:
    with LocalCluster() as cluster:

        async def create() -> None:
            async with AdminClient(cluster.bootstrap) as admin:
                await admin.create_topic("orders")

        asyncio.run(create())
        asyncio.run(order(cluster.bootstrap, "orders", tea=2))
        cluster.kill()
        cluster.restart()
        assert asyncio.run(totals(cluster.bootstrap, "orders")) == {"tea": 2}
