"""The suite's fixtures: `tidelog_cluster`, a broker for the whole run, and a topic for each test."""

import asyncio
from uuid import uuid4

import pytest

from tidelog.admin import AdminClient
from tidelog.testing import LocalCluster

pytest_plugins = ["tidelog.testing.pytest_plugin"]


@pytest.fixture
def topic(tidelog_cluster: LocalCluster) -> str:
    """Creates a topic that no other test knows."""
    name = f"orders-{uuid4().hex[:8]}"

    async def create() -> None:
        async with AdminClient(tidelog_cluster.bootstrap) as admin:
            await admin.create_topic(name, partitions=3)

    asyncio.run(create())
    return name
