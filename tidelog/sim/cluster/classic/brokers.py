"""The brokers of a simulated cluster as members of a classic group reach them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.broker.broker import Broker
from tidelog.broker.groups.classic_reach import ClassicGroups
from tidelog.broker.groups.facade import partition_of
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.sim.cluster.clients import FAILURES, AnyBroker
from tidelog.sim.cluster.world import World
from tidelog.sim.groups.member import GROUP
from tidelog.sim.kit.machine import ConnectionLost, Unreachable

T = TypeVar("T")
FIND_S = 0.6
"""Seconds that a member waits for the answer to the question who coordinates its group."""
GRACE_S = 0.5
"""Seconds that a member waits for a broker beyond the broker's own deadline, before it closes the connection."""


class ClusterBrokers:
    """The brokers of one run, by their node ids; `anywhere` is the client that asks any of them for the
    coordinator."""

    def __init__(self, world: World, anywhere: AnyBroker) -> None:
        self._world = world
        self._anywhere = anywhere

    @property
    def leader(self) -> int:
        """Node id of the broker that leads the group's offsets partition by the true metadata; the first broker if
        there is none."""
        topic = self._world.truth.image.topics.get(OFFSETS_TOPIC)
        node_id = 0 if topic is None else int(topic.partitions[partition_of(GROUP, topic)].leader)
        return node_id if node_id in self._world.keepers else self._world.swarm.nodes[0]

    async def find(self, node_id: int) -> int:
        """Asks any broker for the group's coordinator, which need not be the true one; returns `node_id` if there is no
        answer."""
        loop = asyncio.get_running_loop()

        async def work(broker: Broker) -> int:
            await broker.groups.found(loop.time() + FIND_S)
            return broker.groups.coordinator_node(GROUP)

        try:
            async with asyncio.timeout(FIND_S):
                return await self._anywhere.call(work)
        except (TimeoutError, *FAILURES):
            return node_id

    async def call(self, node_id: int, do: Callable[[ClassicGroups], Awaitable[T]], wait_s: float) -> T:
        """Calls the classic groups of a broker. Raises what `do` raises, and `ConnectionLost` if the broker is dead,
        dies meanwhile, or does not answer in time."""

        async def work(broker: Broker) -> T:
            return await do(broker.groups.classic)

        try:
            async with asyncio.timeout(wait_s + GRACE_S):
                return await self._world.machine(node_id).call(work)
        except (TimeoutError, Unreachable):
            raise ConnectionLost from None
