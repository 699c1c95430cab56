"""`broker.groups`: what is asked of a consumer group, at any broker.

A group belongs to one partition of `__consumer_offsets`, by the hash of its name. Whoever leads that partition is its
coordinator; a request goes there, and is asked again, for a while, when it went to the wrong broker, to nobody, or
broke off: all requests about groups may be repeated. What a coordinator has decided stands.

The topic is made by the first request that has something to keep. The number of its partitions counts from then on,
whatever the settings say later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, overload

import structlog

from tidelog.broker.groups.classic_reach import ClassicGroups
from tidelog.broker.groups.coordinator import Coordinator
from tidelog.broker.groups.coordinator_state import CoordinatorContext
from tidelog.broker.groups.coordinators import Coordinators, Host
from tidelog.broker.groups.messages import ForwardGroup, GroupAnswered
from tidelog.broker.groups.reach import Reach, deadline_of
from tidelog.broker.groups.topics import TopicsSeen
from tidelog.broker.membership.administration import Administration
from tidelog.broker.routing.leader_calls import Target
from tidelog.broker.routing.routing import Routing
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig
from tidelog.groups.decision import GroupAnswer
from tidelog.groups.settings import GroupSettings
from tidelog.model.cluster import NO_LEADER, Topic
from tidelog.model.errors import CoordinatorNotAvailable, TidelogError, UnknownGroup, UnknownInstance
from tidelog.model.groups import (
    AnyGroupRequest,
    CommitAnswer,
    CommitOffsets,
    ConfigureInstance,
    CreateInstance,
    DeleteGroup,
    DeleteInstance,
    DescribeGroup,
    DescribeInstance,
    FetchOffsets,
    GroupDescription,
    GroupDone,
    GroupListed,
    GroupsListed,
    Heartbeat,
    HeartbeatAnswer,
    InstanceDescription,
    InstanceListed,
    InstancesListed,
    ListGroups,
    ListInstances,
    OffsetsAnswer,
    SetOffsets,
)
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.model.partitioner import partition_for_key
from tidelog.model.ports import Clock, Entropy
from tidelog.transport.peer import Answer

MINUTE_MS: Final = 60_000

logger = structlog.get_logger("tidelog.groups")


class Groups:
    """The consumer groups of the cluster, as any broker answers for them. `on_metadata_applied` is to be called
    whenever the partitions that it leads, or its image, have changed, and before those who wait for such a change are
    told.
    """

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        clock: Clock,
        entropy: Entropy,
        stats: Stats,
        routing: Routing,
        admin: Administration,
        failed: Callable[[], None],
    ) -> None:
        """`failed` is called after an error that nobody foresaw."""
        self._host = host
        self._admin = admin
        self._routing = routing
        retention_check_s = config.offsets_retention_check_interval_ms / 1000
        topics = TopicsSeen(lambda: host.image)
        lease_s = config.lease_ms / 1000
        context = CoordinatorContext(
            host.node_id,
            clock,
            stats,
            _settings(config),
            retention_check_s,
            lease_s,
            self._is_live,
            topics,
            lambda: host.image.level,
            entropy,
        )
        self.coordinators = Coordinators(host, context, entropy, failed)
        self._reach = Reach(routing.calls, self.coordinators)
        self._entropy = entropy
        self._making = asyncio.Lock()
        self.classic = ClassicGroups(self.local, self.found)
        """Classic groups: what is asked of coordinators that are on this broker."""

    # -- asking ------------------------------------------------------------------------------------------------------

    @overload
    async def ask(self, request: Heartbeat, *, deadline_s: float) -> HeartbeatAnswer: ...
    @overload
    async def ask(self, request: CommitOffsets, *, deadline_s: float) -> CommitAnswer: ...
    @overload
    async def ask(self, request: FetchOffsets, *, deadline_s: float) -> OffsetsAnswer: ...
    @overload
    async def ask(self, request: DescribeGroup, *, deadline_s: float) -> GroupDescription: ...
    @overload
    async def ask(self, request: ListGroups, *, deadline_s: float) -> GroupsListed: ...
    @overload
    async def ask(self, request: DescribeInstance, *, deadline_s: float) -> InstanceDescription: ...
    @overload
    async def ask(self, request: ListInstances, *, deadline_s: float) -> InstancesListed: ...
    @overload
    async def ask(
        self,
        request: SetOffsets | DeleteGroup | CreateInstance | ConfigureInstance | DeleteInstance,
        *,
        deadline_s: float,
    ) -> GroupDone: ...
    @overload
    async def ask(self, request: AnyGroupRequest, *, deadline_s: float) -> GroupAnswer: ...

    async def ask(self, request: AnyGroupRequest, *, deadline_s: float) -> GroupAnswer:
        """Returns the coordinator's answer by `deadline_s` (loop time). Raises what the request's class says;
        `Overloaded`, `TooLarge`, `CoordinatorNotAvailable`: nothing was done; `CoordinatorLost`: that is unknown."""
        topic = self._host.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            # Lists and descriptions make no topic: else each dashboard that shows groups would make one everywhere.
            nothing = _of_nothing(request)
            if isinstance(nothing, TidelogError):
                raise nothing
            if nothing is not None:
                return nothing
            topic = await self._make_topic(deadline_s)
        return await self._reach.ask(_target(topic, request), request, deadline_s)

    async def list_groups(self, *, deadline_s: float) -> list[GroupListed]:
        """Returns all groups of the cluster, by name. Raises as `ask`, if any of the coordinators cannot be asked."""
        listed = await self._ask_all(lambda number: ListGroups(partition=number), deadline_s)
        groups = [group for answer in listed if isinstance(answer, GroupsListed) for group in answer.groups]
        return sorted(groups, key=lambda group: group.group)

    async def list_here(self, *, deadline_s: float) -> list[GroupListed]:
        """Returns the groups that this broker coordinates, by name. Raises as `ask`."""
        listed = await self._ask_all(lambda number: ListGroups(partition=number), deadline_s, led_by=self._host.node_id)
        groups = [group for answer in listed if isinstance(answer, GroupsListed) for group in answer.groups]
        return sorted(groups, key=lambda group: group.group)

    async def list_instances(self, *, deadline_s: float) -> list[InstanceListed]:
        """Returns all REST consumer instances of the cluster, by group and name. Raises as `list_groups`."""
        listed = await self._ask_all(lambda number: ListInstances(partition=number), deadline_s)
        instances = [
            instance for answer in listed if isinstance(answer, InstancesListed) for instance in answer.instances
        ]
        return sorted(instances, key=lambda instance: (instance.group, instance.instance))

    async def _ask_all(
        self, request: Callable[[int], AnyGroupRequest], deadline_s: float, *, led_by: int | None = None
    ) -> list[GroupAnswer]:
        topic = self._host.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return []
        numbers = [info.partition for info in topic.partitions if led_by is None or info.leader == led_by]
        calls = [self.ask(request(number), deadline_s=deadline_s) for number in numbers]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        # One coordinator that cannot be asked fails the whole list: with its groups left out, they would seem deleted.
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def handle(self, asked: ForwardGroup) -> Answer:
        """Answers another broker's request. Raises the error to be told; `NotLeader` if the group's coordinator is
        elsewhere."""
        deadline_s = deadline_of(asked)
        # Led here, or refused: two brokers with old images would else pass a request back and forth.
        partition = await self._routing.led(asked.partition, deadline_s)
        return Answer(GroupAnswered(await self._reach.ask_here(partition, asked.request, deadline_s)))

    @property
    def is_founded(self) -> bool:
        """False as long as nobody has had anything to keep: there is no group."""
        return OFFSETS_TOPIC in self._host.image.topics

    async def found(self, deadline_s: float) -> None:
        """Makes the topic, if it is not there, by `deadline_s` (loop time). Raises `CoordinatorNotAvailable`."""
        if not self.is_founded:
            await self._make_topic(deadline_s)

    def new_member_id(self) -> str:
        """Draws an id for a member whose client draws none."""
        return self._entropy.token_hex(16)

    # -- where --------------------------------------------------------------------------------------------------------

    def coordinator_node(self, group: str) -> int:
        """Node id of the broker that coordinates a group, as far as this one knows. Raises
        `CoordinatorNotAvailable`."""
        topic = self._host.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable(
                "there are no groups yet, and no coordinator; a heartbeat or commit makes them"
            )
        leader = topic.partitions[partition_of(group, topic)].leader
        if leader == NO_LEADER:
            raise CoordinatorNotAvailable(f"group {group!a} has no coordinator now; try again")
        return leader

    def local(self, group: str) -> Coordinator | None:
        """Returns the coordinator of a group, if that is on this broker."""
        topic = self._host.image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else self.coordinators.at(partition_of(group, topic))

    @property
    def loaded(self) -> list[Coordinator]:
        """The coordinators that are on this broker, and answer."""
        return self.coordinators.loaded

    def on_metadata_applied(self) -> None:
        """Tells the coordinators that the partitions which this broker leads, or its image, have changed."""
        self.coordinators.on_metadata_applied()

    async def close(self) -> None:
        """Coordinates nothing any more: this broker stops."""
        await self.coordinators.close()

    def _is_live(self, node_id: int) -> bool:
        return self._host.image.is_live(node_id)

    # -- the topic ----------------------------------------------------------------------------------------------------

    async def _make_topic(self, deadline_s: float) -> Topic:
        try:
            async with asyncio.timeout_at(deadline_s), self._making:
                # Looked at again under the lock: of a thousand members that start at once one asks the controller for
                # the topic.
                topic = self._host.image.topics.get(OFFSETS_TOPIC)
                return topic or await self._made()
        except TimeoutError:
            raise CoordinatorNotAvailable(f"topic {OFFSETS_TOPIC} is not made yet; try again") from None

    async def _made(self) -> Topic:
        try:
            topic = await self._admin.create_offsets_topic()
        except CoordinatorNotAvailable:
            raise
        except TidelogError as error:
            raise CoordinatorNotAvailable(f"topic {OFFSETS_TOPIC} cannot be made now: {error.message}") from error
        replicas = len(topic.partitions[0].replicas)
        logger.info("the groups have their topic", partitions=len(topic.partitions), replicas=replicas)
        return topic


def partition_of(group: str, topic: Topic) -> int:
    """Returns the partition of `__consumer_offsets` that keeps a group: Kafka's rule for keys."""
    # Kafka's coordinators go by the Java hash of the name. No client sees the difference: it asks who coordinates a
    # group.
    return partition_for_key(group.encode(), len(topic.partitions))


def _target(topic: Topic, request: AnyGroupRequest) -> Target:
    if isinstance(request, ListGroups | ListInstances):
        return Target(topic.name, topic.topic_id, request.partition)
    return Target(topic.name, topic.topic_id, partition_of(request.group, topic))


def _of_nothing(request: AnyGroupRequest) -> GroupAnswer | TidelogError | None:
    """Returns the answer while there is no group in the cluster; None if the request makes the groups' topic."""
    match request:
        case ListGroups():
            return GroupsListed(())
        case ListInstances():
            return InstancesListed(())
        case DescribeGroup() | DeleteGroup():
            return UnknownGroup(f"there is no group {request.group!a}")
        case ConfigureInstance() | DeleteInstance() | DescribeInstance():
            return UnknownInstance(f"there is no consumer instance {request.instance!a}")
    return None


def _settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        session_timeout_ms_min=config.group_min_session_timeout_ms,
        session_timeout_ms_max=config.group_max_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        members_max=config.group_consumer_max_size,
        groups_max=config.offsets_topic_partition_groups_max,
        offset_metadata_bytes_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        classic_members_max=config.group_max_size,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
    )
