"""Administrators who change partitions in use: replicas, leaders, whole brokers, and settings.

A request may be refused, and its effect undone by a later one; the ledger and the clients check what must stay true. At
the end of a run no reassignment may be unfinished. What an order does follows from the order and the image of the
broker that receives it:

| kind | request |
|---|---|
| move | other replicas for a partition, perhaps more or fewer |
| call off | the end of a reassignment |
| prefer | election of the preferred leaders |
| force | an unclean election, even if records are lost, where that is allowed |
| rebalance | replicas spread evenly |
| leave | all replicas away from a broker; then its removal from the cluster |
| tune | another `min.insync.replicas` |
| change durability | the other `ack.durability`, where that is allowed |
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.controller.partition_commands import ElectionType, ElectLeaders, NewReplicas, PartitionNamed
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId
from tidelog.sim.cluster.scenario import Order
from tidelog.sim.cluster.traffic import DATA, DURABILITY, UNCLEAN
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.machine import ConnectionLost, Unreachable
from tidelog.sim.kit.seeds import stream

FACTOR_MAX = 3
RETRY_S = 0.2
THROTTLES = (None, None, 0, 50_000, 500_000)
"""Throttles in bytes per second, as `AlterReassignments` takes them: None leaves the throttle as it is, 0 is no
throttle."""

Work = Callable[[Broker], Coroutine[Any, Any, object]]
Partition = tuple[Topic, PartitionInfo]


class Movers:
    """The administrators of one run who change partitions in use."""

    def __init__(self, seed: int, world: World, truth: Truth) -> None:
        self._seed = seed
        self._world = world
        self._truth = truth
        self._changeable = {topic.name for topic in world.swarm.traffic.topics if topic.changes_durability}

    async def carry_out(self, number: int, order: Order) -> None:
        """Sends the request of an order, and waits for the answer for `order.timeout_s` seconds at most."""
        rng = stream(self._seed, f"mover {number}")
        if order.kind == "leave":
            await self._leave(order)
            return
        machine = self._world.machine(order.via)
        work = None if machine.broker is None else self._prepare(order, machine.broker.image, rng)
        if work is not None:
            await self._ask(order.kind, order.via, order.timeout_s, work)

    async def _ask(self, kind: str, via: int, timeout_s: float, work: Work) -> bool:
        """Sends a request to the broker `via`; returns True if it succeeded."""
        outcome = "ok"
        try:
            async with asyncio.timeout(timeout_s):
                await self._world.machine(via).call(work)
        except (TidelogError, TimeoutError, ConnectionLost, Unreachable) as error:
            outcome = f"{type(error).__name__}: {error}"
        self._truth.note("order", kind, f"via {via}", outcome)
        self._truth.saw(f"order: {kind}", outcome == "ok")
        return outcome == "ok"

    # -- what is asked for -------------------------------------------------------------------------------------------

    def _prepare(self, order: Order, image: ClusterImage, rng: random.Random) -> Work | None:
        partitions = [(topic, info) for topic in self._topics(image) for info in topic.partitions]
        if order.kind == "rebalance":
            throttle = rng.choice(THROTTLES)
            return lambda broker: broker.admin.rebalance(throttle=throttle)
        if not partitions:
            return None
        return self._of_one(order, partitions[order.target % len(partitions)], image, rng)

    def _of_one(self, order: Order, chosen: Partition, image: ClusterImage, rng: random.Random) -> Work | None:
        topic, info = chosen
        named = PartitionNamed(topic.topic_id, info.partition)
        match order.kind:
            case "move":
                return _move(topic, info, _draw_replicas(image, info, rng), rng.choice(THROTTLES))
            case "call off":
                return _move(topic, info, None)
            case "prefer":
                return lambda broker: broker.admin.elect_leaders(ElectLeaders(ElectionType.PREFERRED))
            case "force" if topic.configs.get(UNCLEAN) == "true":
                return lambda broker: broker.admin.elect_leaders(ElectLeaders(ElectionType.UNCLEAN, [named]))
            case "tune":
                return _configure(topic, "min.insync.replicas", str(rng.randint(1, len(info.target))))
            case "change durability" if topic.name in self._changeable:
                is_volatile = topic.configs.get(DURABILITY) == "replicated"
                return _configure(topic, DURABILITY, "fsynced" if is_volatile else "replicated")
            case _:
                return None

    @staticmethod
    def _topics(image: ClusterImage) -> list[Topic]:
        return [topic for topic in image.topics.values() if topic.name.startswith(DATA)]

    async def _leave(self, order: Order) -> None:
        """Moves all replicas off a broker and removes it from the cluster, retrying until the order's timeout. The
        broker joins again once it is removed."""
        node = NodeId(order.via)
        deadline_s = self._world.true_time + order.timeout_s
        others = [peer for peer in self._world.swarm.nodes if peer != order.via]
        while others and self._world.true_time < deadline_s:
            via = others[order.target % len(others)]
            if await self._ask("rebalance", via, RETRY_S, lambda broker: broker.admin.rebalance([node])):
                await asyncio.sleep(RETRY_S)
                if await self._ask("leave", via, RETRY_S, lambda broker: broker.admin.remove_broker(node)):
                    return
            await asyncio.sleep(RETRY_S)


def _draw_replicas(image: ClusterImage, info: PartitionInfo, rng: random.Random) -> list[int]:
    live = [int(broker.node_id) for broker in image.live_brokers]
    count = rng.choice((len(info.target), len(info.target), 1, 2, FACTOR_MAX))
    return rng.sample(live, min(count, len(live)))


def _move(topic: Topic, info: PartitionInfo, replicas: list[int] | None, throttle: int | None = None) -> Work:
    reassignment = NewReplicas(topic.topic_id, info.partition, replicas)
    return lambda broker: broker.admin.alter_reassignments([reassignment], throttle)


def _configure(topic: Topic, name: str, value: str) -> Work:
    return lambda broker: broker.admin.alter_topic_configs(topic.name, {name: value})
