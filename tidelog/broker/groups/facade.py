"""`broker.groups`: requests about consumer groups, at any broker.

A group belongs to the partition of `__consumer_offsets` given by the hash of its name, and the leader of that partition
is its coordinator. Requests are routed there and, since all of them may be repeated, retried for a while after a wrong
broker, a missing leader or a lost connection.

The topic is created by the first request that stores something. Its number of partitions is fixed from then on,
whatever the settings say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
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
    DeleteGroup,
    DeleteInstance,
    DescribeGroup,
    DescribeInstance,
    FetchOffsets,
    GroupDescription,
    GroupListed,
    GroupsListed,
    Heartbeat,
    HeartbeatAnswer,
    InstancesListed,
    ListGroups,
    ListInstances,
    OffsetsAnswer,
)
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.model.partitioner import partition_for_key
from tidelog.model.ports import Clock, Entropy
from tidelog.transport.peer import Answer

MINUTE_MS: Final = 60_000

logger = structlog.get_logger("tidelog.groups")


class Groups:
    """The consumer groups of the cluster, as any broker answers for them. `on_metadata_applied` must be called
    whenever the metadata or the partitions that the broker leads have changed, before tasks that wait for the change
    are woken."""

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
        """`failed` is called after an unforeseen exception in a task."""
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
        """Requests of classic group members, for groups coordinated by this broker."""

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
    async def ask(self, request: AnyGroupRequest, *, deadline_s: float) -> GroupAnswer: ...

    async def ask(self, request: AnyGroupRequest, *, deadline_s: float) -> GroupAnswer:
        """Returns the coordinator's answer by `deadline_s` (loop time). Raises the errors that the docstring of the
        request's class names; `Overloaded`, `TooLarge` or `CoordinatorNotAvailable`, with nothing done;
        `CoordinatorLost` if the outcome is unknown."""
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

    def answer_now(self, request: Heartbeat) -> GroupAnswer | None:
        """Answers a heartbeat at once, if it changes nothing, and its group is coordinated here. Returns None, without
        a change, if `ask` must be called."""
        coordinator = self.local(request.group)
        return None if coordinator is None else coordinator.answer_now(request)

    async def list_groups(self, *, deadline_s: float, led_by: int | None = None) -> list[GroupListed]:
        """Returns the groups of the cluster, or of the coordinators on broker `led_by`, sorted by name. Raises
        `Overloaded`, `CoordinatorNotAvailable` or `CoordinatorLost` if any coordinator does not answer."""
        listed = await self._ask_all(lambda number: ListGroups(partition=number), deadline_s, led_by=led_by)
        groups = [group for answer in listed if isinstance(answer, GroupsListed) for group in answer.groups]
        return sorted(groups, key=lambda group: group.group)

    async def list_here(self, *, deadline_s: float) -> list[GroupListed]:
        """Returns the groups that this broker coordinates, sorted by name. Raises `Overloaded`,
        `CoordinatorNotAvailable` or `CoordinatorLost` if any of its coordinators does not answer."""
        return await self.list_groups(deadline_s=deadline_s, led_by=self._host.node_id)

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
        """Answers a request forwarded by another broker. Raises the error that the other broker gets as the
        answer; `NotLeader` if this broker does not coordinate the group."""
        deadline_s = deadline_of(asked)
        # Led here, or refused: two brokers with old images would else pass a request back and forth.
        partition = await self._routing.led(asked.partition, deadline_s)
        return Answer(GroupAnswered(await self._reach.ask_here(partition, asked.request, deadline_s)))

    @property
    def is_founded(self) -> bool:
        """True once `__consumer_offsets` exists; before that there are no groups."""
        return OFFSETS_TOPIC in self._host.image.topics

    async def found(self, deadline_s: float) -> None:
        """Creates `__consumer_offsets` by `deadline_s` (loop time), if it does not exist. Raises
        `CoordinatorNotAvailable`."""
        if not self.is_founded:
            await self._make_topic(deadline_s)

    def new_member_id(self) -> str:
        """Returns a new random member id, for a client that does not generate one."""
        return self._entropy.token_hex(16)

    # -- where --------------------------------------------------------------------------------------------------------

    def coordinator_node(self, group: str) -> int:
        """Returns the node id of the group's coordinator, by this broker's metadata. Raises
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
        """Returns the group's coordinator if it is on this broker, otherwise None."""
        topic = self._host.image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else self.coordinators.at(partition_of(group, topic))

    @property
    def loaded(self) -> list[Coordinator]:
        """The coordinators on this broker that have loaded their groups."""
        return self.coordinators.loaded

    def on_metadata_applied(self) -> None:
        """Starts and stops coordinators after a change of the metadata or of the partitions that this broker leads."""
        self.coordinators.on_metadata_applied()

    async def close(self) -> None:
        """Stops all coordinators, at the end of the broker."""
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
    """Returns the partition of `__consumer_offsets` that holds a group, by the hash that Kafka's producers use for
    keys."""
    # Kafka's coordinators go by the Java hash of the name. No client sees the difference: it asks who coordinates a
    # group.
    return _partition_for(group, len(topic.partitions))


@lru_cache(maxsize=4_096)  # each request of each member asks
def _partition_for(group: str, partitions: int) -> int:
    return partition_for_key(group.encode(), partitions)


def _target(topic: Topic, request: AnyGroupRequest) -> Target:
    if isinstance(request, ListGroups | ListInstances):
        return Target(topic.name, topic.topic_id, request.partition)
    return Target(topic.name, topic.topic_id, partition_of(request.group, topic))


def _of_nothing(request: AnyGroupRequest) -> GroupAnswer | TidelogError | None:
    """Returns the answer to a request while `__consumer_offsets` does not exist; None if the request should create
    it."""
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
