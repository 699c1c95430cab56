"""Changes of the cluster that a broker's users request: each call is a command to the active controller.

A call returns when what was decided is in force on the broker that was asked, so that its next answer shows it. Who
asks goes along (`Administration.by`): the controller judges that once more.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.controller.access_commands import AccessCommand
from tidelog.controller.commands import (
    AddPartitions,
    AllocateProducerIds,
    AlterQuotas,
    AlterTopicConfigs,
    ClientCommand,
    CommandAnswer,
    CreateOffsetsTopic,
    CreateTopic,
    DeleteTopic,
    Done,
    LevelAnswered,
    NewTopic,
    ProducerIdBlock,
    QuotaChange,
    RaiseLevel,
    RemoveBroker,
    TopicPlaced,
)
from tidelog.controller.moves import planned
from tidelog.controller.partition_commands import (
    AcceptLoss,
    AlterReassignments,
    ElectionAnswer,
    ElectLeaders,
    LeadersElected,
    NewReplicas,
    RegroupPartition,
)
from tidelog.controller.records import ACCESS_LEVEL
from tidelog.model.access import Caller
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import UnknownTopic, UnsupportedLevel
from tidelog.model.ids import NodeId, ProducerId, TopicId
from tidelog.model.names import AUDIT_TOPIC, OFFSETS_TOPIC
from tidelog.model.ports import BlockingRunner, Entropy

A = TypeVar("A", bound=CommandAnswer)

COMMAND_S_MAX = 30.0


class ProducerIds:
    """The ids that the controller has given to this broker, and that it gives to producers."""

    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel
        self._left = range(0)

    async def allocate(self) -> ProducerId:
        """Returns an id that nobody else has, nor will have. Raises as the controller."""
        if not self._left:
            block = await self._channel.submit(AllocateProducerIds(), ProducerIdBlock, seconds_max=COMMAND_S_MAX)
            self._left = range(block.first, block.first + block.count)
        allocated, self._left = self._left[0], self._left[1:]
        return ProducerId(allocated)


class Administration:
    """The administration of one broker. All calls raise, beside what they say, as `ControllerChannel.submit`."""

    def __init__(
        self,
        channel: ControllerChannel,
        entropy: Entropy,
        runner: BlockingRunner,
        image: Callable[[], ClusterImage],
        in_force: Callable[[int], Awaitable[bool]],
        opened: Callable[[str], Awaitable[None]],
    ) -> None:
        """`in_force` returns when this broker is in line with the metadata up to a position, or after a while; `opened`
        when it has opened all it can of a topic."""
        self._channel = channel
        self._entropy = entropy
        self._runner = runner
        self._image = image
        self._in_force = in_force
        self._opened = opened
        self._producer_ids = ProducerIds(channel)
        self._caller: Caller | None = None

    def by(self, caller: Caller) -> Administration:
        """Returns the way of a client: what it may not do, the controller refuses (`NotAuthorized`)."""
        made = copy.copy(self)
        made._caller = caller
        return made

    async def create_topic(self, request: NewTopic, *, validate_only: bool = False) -> Topic:
        """Creates a topic. Those of its partitions that this broker has serve when this returns, unless that takes
        long; requests wait for the others. Raises `InvalidRequest`, or as the controller."""
        command = CreateTopic(request, self._entropy.token_hex(16), validate_only)
        placed = await self._submit(command, TopicPlaced)
        if not validate_only:
            await self._in_force(placed.position)
            await self._opened(request.name)
        return self._image().topics.get(request.name) or _as_placed(request.name, request.configs, placed)

    async def create_offsets_topic(self) -> Topic:
        """The topic of the consumer groups; made if there is none. Raises `CoordinatorNotAvailable` if that is not
        possible now."""
        return await self._create_own(OFFSETS_TOPIC)

    async def create_audit_topic(self) -> Topic:
        """Creates the topic of the audit log, if there is none. Raises `UnsupportedLevel`, or `CoordinatorNotAvailable`
        if that is not possible now."""
        if self._image().level < ACCESS_LEVEL:
            raise UnsupportedLevel(f"{AUDIT_TOPIC} needs feature level {ACCESS_LEVEL}")
        return await self._create_own(AUDIT_TOPIC)

    async def _create_own(self, name: str) -> Topic:
        command = CreateOffsetsTopic(self._entropy.token_hex(16), name)
        placed = await self._channel.submit(command, TopicPlaced, seconds_max=COMMAND_S_MAX)
        await self._in_force(placed.position)
        await self._opened(name)
        return self._topic(name)

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic and its data. Raises `UnknownTopic`, `InvalidRequest` if deletion is turned off."""
        await self._decide(DeleteTopic(name, self._topic(name).topic_id))

    async def add_partitions(self, name: str, total: int) -> Topic:
        """Grows a topic to `total` partitions. Raises `UnknownTopic`, `InvalidRequest`."""
        before = self._topic(name)
        command = AddPartitions(name, len(before.partitions), total)
        placed = await self._submit(command, TopicPlaced)
        await self._in_force(placed.position)
        await self._opened(name)
        return self._image().topics.get(name) or _as_placed(name, before.configs, placed)

    async def alter_topic_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Sets overrides of a topic, or takes them back (None). Raises `UnknownTopic`, `InvalidRequest`."""
        await self._decide(AlterTopicConfigs(name, dict(changes), validate_only))

    async def alter_quotas(self, changes: Sequence[QuotaChange], *, validate_only: bool = False) -> None:
        """Gives entities quotas, or takes them back, all or none. Raises `InvalidRequest`, `UnsupportedLevel`."""
        await self._decide(AlterQuotas(changes, validate_only))

    async def remove_broker(self, node_id: NodeId) -> None:
        """Unregisters a broker for good. Raises `NotFound`, `InvalidRequest` as long as it has what others need."""
        known = self._image().brokers.get(node_id)
        await self._decide(RemoveBroker(node_id, -1 if known is None else known.epoch))

    async def raise_level(self, *, validate_only: bool = False) -> LevelAnswered:
        """Raises the cluster's feature level to the highest that any broker speaks. Raises `UnsupportedLevel` if not
        all do."""
        answer = await self._submit(RaiseLevel(validate_only), LevelAnswered)
        await self._in_force(answer.position)
        return answer

    async def rebalance(
        self, leaving: Sequence[int] = (), *, validate_only: bool = False, throttle: int | None = None
    ) -> list[NewReplicas]:
        """Begins to spread all replicas evenly, and none on brokers that are `leaving`; what begins to move.
        `throttle` as in `AlterReassignments`, also if nothing more is to be reassigned.

        The plan is made from this broker's image, beside the event loop. Raises `NotFound`, `InvalidRequest`.
        """
        commands = await self._runner.run(partial(planned, self._image(), leaving))
        if not validate_only:
            for command in commands or ([] if throttle is None else [AlterReassignments(())]):
                await self._decide(msgspec.structs.replace(command, throttle=throttle))
        return [move for command in commands for move in command.partitions]

    async def alter_reassignments(self, partitions: Sequence[NewReplicas], throttle: int | None = None) -> None:
        """Begins to move replicas, or calls it off; at most `MOVES_MAX` at once, all or nothing. `throttle` as in
        `AlterReassignments`. Raises `UnknownPartition`, `InvalidRequest`."""
        await self._decide(AlterReassignments(list(partitions), throttle))

    async def accept_loss(self, command: AcceptLoss) -> None:
        """Gives up ranges of a partition, which a `LossReport` has found to be lost. Asking again does no harm. Raises
        `UnknownTopic`, `UnknownPartition`, `InvalidRequest`."""
        await self._decide(command)

    async def regroup(self, command: RegroupPartition) -> None:
        """Has a partition that nobody leads go on from what is left, as a `RemainsReport` has it. Raises `LossRefused`
        if the partition has changed since, `UnknownTopic`, `UnknownPartition`, `InvalidRequest`."""
        await self._decide(command)

    async def change_access(self, command: AccessCommand) -> None:
        """Makes or removes users, tokens or ACLs. Raises `UnsupportedLevel`, `InvalidRequest`, `NotFound`."""
        await self._decide(command)

    async def elect_leaders(self, command: ElectLeaders) -> Sequence[ElectionAnswer]:
        """Other leaders, where that is possible; without `partitions`, of all, and only those that changed are told."""
        elected = await self._submit(command, LeadersElected)
        await self._in_force(elected.position)
        return elected.partitions

    async def _decide(self, command: ClientCommand) -> None:
        done = await self._submit(command, Done)
        await self._in_force(done.position)

    async def _submit(self, command: ClientCommand, answer_type: type[A]) -> A:
        if self._caller is not None:
            command = msgspec.structs.replace(command, caller=self._caller)
        return await self._channel.submit(command, answer_type, seconds_max=COMMAND_S_MAX)

    async def allocate_producer_id(self) -> ProducerId:
        """Returns an id that nobody else has, nor will have. Raises as the controller."""
        return await self._producer_ids.allocate()

    def _topic(self, name: str) -> Topic:
        topic = self._image().topics.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return topic


def _as_placed(name: str, configs: Mapping[str, str], placed: TopicPlaced) -> Topic:
    """The topic as the answer has it: it is not to be (`validate_only`), or somebody has deleted it since."""
    replicas = [tuple(NodeId(node) for node in nodes) for nodes in placed.assignments]
    partitions = tuple(PartitionInfo(p, nodes[0], 0, nodes, nodes[:1]) for p, nodes in enumerate(replicas))
    return Topic(name, TopicId(placed.topic_id), configs, partitions)
