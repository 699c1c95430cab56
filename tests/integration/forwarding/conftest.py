"""Three brokers behind three listeners, joined by a network that encodes and decodes and can fail.

Brokers 1 and 2 are real ones, on simulated disks. Who leads what is told to all by one image; broker 3 leads nothing.
The image is moved by the tests, and each broker's own at a time of its own.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Self

import msgspec
import pytest

from tests.integration.http.conftest import STOP_S, Site, listen
from tests.integration.http.wire import Address, Reply, ask
from tidelog.broker.face.partitions import Partitions
from tidelog.broker.http.server import HttpServer
from tidelog.broker.isr.partition import Partition
from tidelog.broker.partitions.local_copy import LocalCopy
from tidelog.broker.partitions.partition_handle import PartitionHandle
from tidelog.broker.routing.forwarding_messages import FORWARDING_MESSAGES
from tidelog.broker.routing.routing import Routing
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.config.schema import TopicConfig
from tidelog.model.cluster import HTTP, ClusterImage, Endpoint, Topic
from tidelog.model.errors import TidelogError, UnknownTopic
from tidelog.model.ids import NodeId, PartitionId
from tidelog.model.ports import Buffer
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner
from tidelog.transport.peer import Answer, Lane, PeerLost, PeerUnreachable
from tidelog.transport.peer.errors import Fault
from tidelog.transport.peer.frames import MessageCodec

FIRST_EPOCH = 0


class Trouble(enum.Enum):
    UNSENT = "there is no connection"
    UNHEARD = "the connection breaks after the request was sent, before it arrives"
    ANSWER_LOST = "the connection breaks before the answer comes"


class Net:
    """The peer connections of all brokers. `troubles` befall the next requests, one each; `down` are dead."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.troubles: list[Trouble | None] = []
        self.down: dict[int, None] = {}
        self.asked: list[tuple[int, str]] = []
        self._codec = MessageCodec(FORWARDING_MESSAGES)

    async def request(
        self,
        node_id: int,
        message: msgspec.Struct,
        payload: Sequence[Buffer] = (),
        *,
        deadline_s: float,
        lane: Lane = Lane.CONTROL,
    ) -> Answer:
        assert lane is Lane.DATA
        trouble = self.troubles.pop(0) if self.troubles else None
        if node_id in self.down or trouble is Trouble.UNSENT:
            raise PeerUnreachable(f"no connection to node {node_id}")
        self.asked.append((node_id, type(message).__name__))
        if trouble is Trouble.UNHEARD:
            raise PeerLost("the connection was reset")
        answer = await self._carry(node_id, message, payload, deadline_s)
        if trouble is Trouble.ANSWER_LOST:
            raise PeerLost("the connection was reset")
        return answer

    async def _carry(
        self, node_id: int, message: msgspec.Struct, payload: Sequence[Buffer], deadline_s: float
    ) -> Answer:
        sent = self._over_the_wire(message)
        body = memoryview(bytearray(b"".join(payload)))
        try:
            async with asyncio.timeout(deadline_s):
                answer = await self.nodes[node_id].routing.handle(sent, body)
        except TidelogError as error:
            raise self._codec.fault(memoryview(self._codec.encode(Fault.of(error)))).to_error() from None
        received = None if answer.message is None else self._over_the_wire(answer.message)
        data = b"".join(answer.payload)
        return Answer(received, (memoryview(data),) if data else ())

    def _over_the_wire(self, message: msgspec.Struct) -> msgspec.Struct:
        return self._codec.message(memoryview(self._codec.encode(message)))


class Node:
    """One broker: leads what its image says, of the partitions that its site's broker has; none without a site."""

    def __init__(self, net: Net, node_id: int, site: Site | None, settings: Site) -> None:
        self.node_id = NodeId(node_id)
        self.purgatory = Purgatory()
        self.image: ClusterImage = settings.broker.image
        self.routing = Routing(self, net)
        self.is_ready, self.is_leaving = True, False
        self.is_late = False
        """True while it leads nothing yet, though its image has it lead."""
        self.server: HttpServer
        self._site = site
        self._settings = settings
        net.nodes[node_id] = self

    def __getattr__(self, name: str) -> Any:
        """Clock, statistics, settings: what is no matter of who leads what."""
        return getattr(self._settings.broker, name)

    @property
    def position_in_force(self) -> int:
        return self.image.position - self.is_late

    @property
    def partitions(self) -> Mapping[PartitionId, Partition]:
        if self._site is None or self.is_late:
            return {}
        return {
            PartitionId(topic.topic_id, info.partition): self._local(topic.name, info.partition)
            for topic in self.image.topics.values()
            for info in topic.partitions
            if info.leader == self.node_id
        }

    @property
    def data(self) -> Self:
        return self

    def local_copy(self, partition_id: PartitionId) -> LocalCopy | None:
        led = self.partitions.get(partition_id)
        return None if led is None else led._copy

    def any_copy(self, partition_id: PartitionId) -> Partition | None:
        return self.partitions.get(partition_id)

    def _local(self, topic: str, partition: int) -> Partition:
        assert self._site is not None
        return self._site.partition(topic, partition)

    def partition(self, topic: str, partition: int) -> PartitionHandle:
        return self.routing.partition(topic, partition)

    def topic(self, name: str) -> Topic:
        if name not in self.image.topics:
            raise UnknownTopic(f"there is no topic {name}")
        return self.image.topics[name]

    def topic_config(self, name: str) -> TopicConfig:
        return self._settings.broker.topic_config(name)

    def see(self, image: ClusterImage) -> None:
        self.image = image
        self.routing.on_metadata_applied()

    async def listen(self, **limits: Any) -> None:
        face = replace(
            self._settings.broker.face,
            cluster=self,
            readiness=self,
            partitions=Partitions(self.routing, self.purgatory, self),
        )
        self.server = await listen(face, lingering_s=0.05, **limits)

    @property
    def address(self) -> Address:
        return self.server.address

    @property
    def url(self) -> str:
        return f"http://{self.address[0]}:{self.address[1]}"

    async def ask(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        return await ask(self.address, method, target, body, headers)


class Cluster:
    """Brokers 1, 2 and 3. `topic` makes a topic whose partitions are led by brokers of your choice."""

    def __init__(self, net: Net, sites: Sequence[Site]) -> None:
        self.net = net
        self.sites = {1: sites[0], 2: sites[1]}
        self.nodes = {
            1: Node(net, 1, sites[0], sites[0]),
            2: Node(net, 2, sites[1], sites[0]),
            3: Node(net, 3, None, sites[0]),
        }
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}

    async def topic(self, name: str, leaders: Sequence[int], **configs: str) -> None:
        for site in self.sites.values():
            await site.topic(name, len(leaders), **configs)
        for partition, leader in enumerate(leaders):
            self._crown(name, partition, leader, FIRST_EPOCH)
        self.tell(1, 2, 3)

    def move(self, topic: str, partition: int, leader: int) -> None:
        """Changes a leader; nobody has heard of it yet."""
        self._crown(topic, partition, leader, self._leaders[topic, partition][1] + 1)

    def _crown(self, topic: str, partition: int, leader: int, epoch: int) -> None:
        self._leaders[topic, partition] = leader, epoch
        if leader in self.sites:
            self.sites[leader].partition(topic, partition).leader_epoch = epoch

    def appoint(self, topic: str, partition: int, leader: int) -> None:
        """Changes a leader; everybody hears of it."""
        self.move(topic, partition, leader)
        self.tell(1, 2, 3)

    def tell(self, *node_ids: int) -> None:
        """These brokers hear of the newest image."""
        for node_id in node_ids:
            self.nodes[node_id].see(self.image())

    def image(self) -> ClusterImage:
        base = self.sites[1].broker.image
        topics = {name: self._led(topic) for name, topic in base.topics.items()}
        (described,) = base.brokers.values()
        brokers = {
            NodeId(node_id): replace(described, node_id=NodeId(node_id), listeners={HTTP: Endpoint(*node.address)})
            for node_id, node in self.nodes.items()
        }
        return replace(
            base,
            brokers=brokers,
            topics=topics,
            position=base.position + sum(epoch for _, epoch in self._leaders.values()),
        )

    def _led(self, topic: Topic) -> Topic:
        infos = []
        for info in topic.partitions:
            leader, epoch = self._leaders.get((topic.name, info.partition), (1, FIRST_EPOCH))
            infos.append(replace(info, leader=NodeId(leader), leader_epoch=epoch))
        return replace(topic, partitions=tuple(infos))


@pytest.fixture
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    limits: dict[str, Any] = getattr(request, "param", {})
    async with AsyncExitStack() as stack:
        sites = [Site(SimDisk(), SimRunner(random.Random(node_id), mean_s=0.00001)) for node_id in (1, 2)]
        for node_id, site in enumerate(sites, 1):
            await site.start({"node.id": node_id})
            stack.push_async_callback(site.stop)
        made = Cluster(Net(), sites)
        for node in made.nodes.values():
            await node.listen(**limits)
            stack.push_async_callback(node.server.stop, STOP_S)
        yield made
