"""Changes of the cluster that a broker's users request: each call is a command to the active controller.

A call returns when the decision is in force on this broker, so that its next answer shows it. The caller's identity is
sent with the command (`Administration.by`): the controller checks its rights again.
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
    """The block of producer ids that the controller has allocated to this broker, from which it gives ids to
    producers."""

    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel
        self._left = range(0)

    async def allocate(self) -> ProducerId:
        """Returns a producer id that no other producer has or will have. Raises `NotController` if no controller could
        be asked, `ControllerLost` if the outcome is unknown."""
        if not self._left:
            block = await self._channel.submit(AllocateProducerIds(), ProducerIdBlock, seconds_max=COMMAND_S_MAX)
            self._left = range(block.first, block.first + block.count)
        allocated, self._left = self._left[0], self._left[1:]
        return ProducerId(allocated)


class Administration:
    """The administration of the cluster, as one broker offers it. All calls also raise `NotController` if no controller
    could be asked in time (nothing was done), `ControllerLost` if the outcome is unknown, and `ShuttingDown`."""

    def __init__(
        self,
        channel: ControllerChannel,
        entropy: Entropy,
        runner: BlockingRunner,
        image: Callable[[], ClusterImage],
        in_force: Callable[[int], Awaitable[bool]],
        opened: Callable[[str], Awaitable[None]],
    ) -> None:
        """`in_force` waits until this broker has put the metadata up to a position into force, for a limited time;
        `opened` waits until it has opened its partitions of a topic."""
        self._channel = channel
        self._entropy = entropy
        self._runner = runner
        self._image = image
        self._in_force = in_force
        self._opened = opened
        self._producer_ids = ProducerIds(channel)
        self._caller: Caller | None = None

    def by(self, caller: Caller) -> Administration:
        """Returns the administration on behalf of a client: the controller refuses what the client has no rights for
        (`NotAuthorized`)."""
        made = copy.copy(self)
        made._caller = caller
        return made

    async def create_topic(self, request: NewTopic, *, validate_only: bool = False) -> Topic:
        """Creates a topic. When this returns, this broker serves its partitions of it, unless that takes long; requests
        wait for the others. Raises `InvalidRequest`."""
        command = CreateTopic(request, self._entropy.token_hex(16), validate_only)
        placed = await self._submit(command, TopicPlaced)
        if not validate_only:
            await self._opened(request.name)
        return self._image().topics.get(request.name) or _as_placed(request.name, request.configs, placed)

    async def create_offsets_topic(self) -> Topic:
        """Returns the topic of consumer groups' offsets, which is created if it does not exist. Raises
        `CoordinatorNotAvailable` if that is not possible now."""
        return await self._create_own(OFFSETS_TOPIC)

    async def create_audit_topic(self) -> Topic:
        """Returns the audit log's topic, which is created if it does not exist. Raises `UnsupportedLevel`, or
        `CoordinatorNotAvailable` if that is not possible now."""
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
        """Deletes a topic and its data. Raises `UnknownTopic`, or `InvalidRequest` if deletion is turned off."""
        await self._submit(DeleteTopic(name, self._topic(name).topic_id), Done)

    async def add_partitions(
        self, name: str, total: int, assignments: Mapping[int, Sequence[int]] | None = None
    ) -> Topic:
        """Adds partitions to a topic, up to `total`. Raises `UnknownTopic`, `InvalidRequest`, `UnsupportedLevel`."""
        before = self._topic(name)
        if assignments is not None and self._image().level < ACCESS_LEVEL:
            raise UnsupportedLevel(f"assignments of new partitions need feature level {ACCESS_LEVEL}")
        command = AddPartitions(name, len(before.partitions), total, assignments)
        placed = await self._submit(command, TopicPlaced)
        await self._opened(name)
        return self._image().topics.get(name) or _as_placed(name, before.configs, placed)

    async def alter_topic_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Sets configuration overrides of a topic, or removes them (None). Raises `UnknownTopic`, `InvalidRequest`."""
        await self._submit(AlterTopicConfigs(name, dict(changes), validate_only), Done)

    async def alter_quotas(self, changes: Sequence[QuotaChange], *, validate_only: bool = False) -> None:
        """Sets or removes quotas of entities, all or none. Raises `InvalidRequest`, `UnsupportedLevel`."""
        await self._submit(AlterQuotas(changes, validate_only), Done)

    async def remove_broker(self, node_id: NodeId) -> None:
        """Removes a broker from the cluster. Raises `NotFound`, or `InvalidRequest` while the broker has replicas or a
        vote that the cluster needs."""
        registered = self._image().brokers.get(node_id)
        await self._submit(RemoveBroker(node_id, -1 if registered is None else registered.epoch), Done)

    async def raise_level(self, *, validate_only: bool = False) -> LevelAnswered:
        """Raises the cluster's feature level to the highest that any broker supports. Raises `UnsupportedLevel` if not
        all brokers support it."""
        return await self._submit(RaiseLevel(validate_only), LevelAnswered)

    async def rebalance(
        self, leaving: Sequence[int] = (), *, validate_only: bool = False, throttle: int | None = None
    ) -> list[NewReplicas]:
        """Begins to spread all replicas evenly over the brokers, and off those in `leaving`; returns the reassignments
        that begin. `throttle` as in `AlterReassignments`; it is set even if no replica is to be reassigned.

        The plan is made from this broker's image, in a worker thread. Raises `NotFound`, `InvalidRequest`.
        """
        commands = await self._runner.run(partial(planned, self._image(), leaving))
        if not validate_only:
            for command in commands or ([] if throttle is None else [AlterReassignments(())]):
                await self._submit(msgspec.structs.replace(command, throttle=throttle), Done)
        return [move for command in commands for move in command.partitions]

    async def alter_reassignments(self, partitions: Sequence[NewReplicas], throttle: int | None = None) -> None:
        """Begins or cancels reassignments, at most `MOVES_MAX` at once, all or none. `throttle` as in
        `AlterReassignments`. Raises `UnknownPartition`, `InvalidRequest`."""
        await self._submit(AlterReassignments(list(partitions), throttle), Done)

    async def accept_loss(self, command: AcceptLoss) -> None:
        """Gives up offset ranges of a partition that a `LossReport` has found to be lost. It may be repeated. Raises
        `UnknownTopic`, `UnknownPartition`, `InvalidRequest`."""
        await self._submit(command, Done)

    async def regroup(self, command: RegroupPartition) -> None:
        """Lets a partition without a leader continue with its remaining replicas, as found by a `RemainsReport`. Raises
        `LossRefused` if the partition has changed since, `UnknownTopic`, `UnknownPartition`, `InvalidRequest`."""
        await self._submit(command, Done)

    async def change_access(self, command: AccessCommand) -> None:
        """Creates or removes users, tokens or ACLs. Raises `UnsupportedLevel`, `InvalidRequest`, `NotFound`."""
        await self._submit(command, Done)

    async def elect_leaders(self, command: ElectLeaders) -> Sequence[ElectionAnswer]:
        """Elects leaders where possible, and returns an answer for each partition of the command. Without `partitions`
        it is about all partitions, and returns those whose leader has changed."""
        return (await self._submit(command, LeadersElected)).partitions

    async def _submit(self, command: ClientCommand, answer_type: type[A]) -> A:
        if self._caller is not None:
            command = msgspec.structs.replace(command, caller=self._caller)
        answer = await self._channel.submit(command, answer_type, seconds_max=COMMAND_S_MAX)
        await self._in_force(answer.position)
        return answer

    async def allocate_producer_id(self) -> ProducerId:
        """Returns a producer id that no other producer has or will have. Raises `NotController` if no controller could
        be asked, `ControllerLost` if the outcome is unknown."""
        return await self._producer_ids.allocate()

    def _topic(self, name: str) -> Topic:
        topic = self._image().topics.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return topic


def _as_placed(name: str, configs: Mapping[str, str], placed: TopicPlaced) -> Topic:
    """Returns a topic as the controller's answer describes it, because it is not in the image: it was only validated,
    or was deleted since."""
    replicas = [tuple(NodeId(node) for node in nodes) for nodes in placed.assignments]
    partitions = tuple(PartitionInfo(p, nodes[0], 0, nodes, nodes[:1]) for p, nodes in enumerate(replicas))
    return Topic(name, TopicId(placed.topic_id), configs, partitions)
