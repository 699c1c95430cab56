"""The public consumer: aiokafka's method names; positions stored by its group, by the caller, or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Self, Unpack

from tidelog.adapters.broker_frames import dial, in_thread
from tidelog.adapters.secret_file import read_secret
from tidelog.adapters.system import SystemEntropy
from tidelog.consumer.consumer_group import ConsumerGroup
from tidelog.consumer.errors import GroupNeeded
from tidelog.consumer.options import FetchOptions, GroupOptions, parse_on_loss, parse_order, parse_reset
from tidelog.consumer.parallel_reader import ParallelReader
from tidelog.consumer.rebalance_listener import ConsumerRebalanceListener
from tidelog.consumer.records import OffsetAndMetadata
from tidelog.model.errors import InvalidRequest, TidelogError
from tidelog.model.ids import OFFSET_MAX, TopicPartition
from tidelog.model.ports import Entropy
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP
from tidelog.transport.frames.session import AUTO, RecordSession
from tidelog.transport.parameters import client_parameters
from tidelog.transport.security import Security, SecurityParameters

logger = logging.getLogger(__name__)


class Consumer(ParallelReader):
    """Reads records from partitions, in order per partition.

    - `topics`: all partitions of these are assigned; partitions that they get later are read from their beginning.
      Without topics, `assign` partitions, or `subscribe` in a group.
    - `bootstrap_servers`: URLs or `host:port` of any brokers of the cluster, as a comma list or a list.
    - `auto_offset_reset`: where to begin, and where to go when a position does not exist any more: `latest`,
      `earliest`, or `none` (raise `OffsetOutOfRange`; begin with `seek`).
    - `fetch_max_wait_ms`: how long a broker may wait for `fetch_min_bytes` before it answers.
    - `max_partition_fetch_bytes`: size of one fetch; two are held per partition.
    - `fetch_buffer_bytes`: all fetches together; many partitions get smaller ones.
    - `check_crcs`: hold every batch against its checksum.
    - `on_loss`: what to do where records are lost and an operator has accepted that. `fail` raises `RecordsLost` there,
      and again until a `seek` goes around it; `skip` goes on behind them, says so in the log, and counts them (`lost`).
    - `transport`, `security_protocol`, `ssl_*`: as of the `Producer`.

    Use it as an async context manager, or call `start` and `stop`. Then `getmany`, `getone`, or `async for`;
    `getbatch` and `batches`, without an object for each record; or `run`, which processes several at a time.

    **In a group** (`group_id`) its consumers share the partitions of the topics, and reading begins where the group
    has got to: at its committed offsets, else where `auto_offset_reset` says. Topics that do not exist yet are waited
    for. When consumers come and go, partitions change hands inside these calls, one by one; the others are read on.

    *At least once.* Every record is handed out to some consumer of the group, and to more than one, or twice to the
    same, only as told here. With `enable_auto_commit` a record counts as processed when its reader comes back for more:
    then the next commit (every `auto_commit_interval_ms`, when a partition is given up, and at `stop`) covers it. What
    the last call has handed out is never committed by itself. So after a crash the records come again that were handed
    out since the last commit; after a `stop`, those of the last call, unless `commit` was called after them. A consumer
    that is expelled, because the brokers have not heard it for `session_timeout_ms`, or because it holds on to
    partitions for longer than `max_poll_interval_ms`, hands out nothing more of them from before that moment on; but
    what it has in hand comes to its successor again. Read with one task at a time: the call of one says that the
    other's records are processed.

    - `order`: which records `run` processes one after the other: those of a partition (`total`), those of a partition
      with the same key (`key`; records without a key conflict with none), or none. With `key` and `none` records are
      processed by `run` only, in a group; the committed offset is that of the first record that is not processed, and
      its metadata says which records above it are. Topics whose `commit.order` allows it are read above their high
      watermark then, unless `transport` is `kafka`.
    - `group_instance_id`: a static member. After `stop` its partitions wait for it, for `session_timeout_ms`.
    - `max_poll_interval_ms`: who asks for nothing for so long leaves the group; the next call raises
      `PollIntervalExceeded`, and the one after it joins again.
    - `partition_assignment`: `uniform`, `range` or `roundrobin`.
    - `client_id`, `client_rack`: what the group's description says of this consumer; the id's quota counts as well.
    """

    @client_parameters(bootstrap="bootstrap_servers", group="group_id")
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        group_id: str | None = None,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        group_instance_id: str | None = None,
        partition_assignment: str = "uniform",
        session_timeout_ms: int = 45_000,
        max_poll_interval_ms: int = 300_000,
        client_id: str = "",
        client_rack: str | None = None,
        transport: str = AUTO,
        fetch_max_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1 << 20,
        fetch_buffer_bytes: int = 64 << 20,
        check_crcs: bool = True,
        on_loss: str = "fail",
        order: str = "total",
        request_timeout_ms: float = 30_000,
        metadata_max_age_ms: float = 300_000,
        entropy: Entropy | None = None,
        **security: Unpack[SecurityParameters],
    ) -> None:
        self._topics = topics
        self._reset = parse_reset(auto_offset_reset)
        secure = Security(**security)
        entropy = entropy or SystemEntropy()
        session = RecordSession(
            bootstrap_servers,
            transport=transport,
            dial=dial,
            in_thread=in_thread,
            request_timeout_s=request_timeout_ms / 1000,
            metadata_max_age_s=metadata_max_age_ms / 1000,
            client_id=client_id,
            entropy=entropy,
            credentials=secure.credentials(read_secret),
            security=secure,
        )
        options = FetchOptions(
            reset=self._reset,
            bytes_max=max_partition_fetch_bytes,
            bytes_min=fetch_min_bytes,
            buffer_bytes=fetch_buffer_bytes,
            wait_ms=fetch_max_wait_ms,
            order=parse_order(order, group_id),
            waits_for_topics=group_id is not None,
        )
        super().__init__(
            session,
            options,
            check_crcs=check_crcs,
            skips_losses=parse_on_loss(on_loss),
        )
        self._discovery: asyncio.Task[None] | None = None
        if group_id is None:
            return
        group_options = GroupOptions(
            group=group_id,
            instance_id=group_instance_id,
            client_id=client_id,
            rack=client_rack,
            assignor=partition_assignment,
            session_timeout_ms=session_timeout_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            auto_commit_interval_ms=auto_commit_interval_ms if enable_auto_commit else None,
        )
        self._group = ConsumerGroup(
            group_options,
            session,
            self._subscription,
            self._fetcher,
            entropy,
            self._in_hand,
            self._news.set,
            self._give_up,
            reset=self._reset,
            has_intervals=options.order != "total",
        )
        if topics:
            self._group.subscribe(topics, None, None)

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connects; in a group, starts to join it; otherwise assigns the topics' partitions and looks up their start
        positions.

        Without a group and with `latest`, all records produced after this returns are read. Raises `ConnectFailed`,
        `UnknownTopic`.
        """
        if self._is_open:
            return
        await self._session.open()
        if self._group is not None:
            self._group.start()
        else:
            try:
                for topic in self._topics:
                    self._subscription.add(await self._partitions_of(topic), self._reset)
                await self._fetcher.resolve(self._subscription.cursors())
            except BaseException:
                await self._session.close()
                raise
        self._is_open = True
        for cursor in self._subscription.cursors():
            self._fetcher.begin(cursor)
        if self._topics and self._group is None:
            self._discovery = asyncio.get_running_loop().create_task(self._discover())

    async def stop(self) -> None:
        """Closes; calls that wait for records raise `ClientClosed`, and `run` returns when the records that are being
        processed are finished. In a group, commits what is processed (with `enable_auto_commit`), tells the listener,
        and leaves. Idempotent. Raises `InvalidRequest` in a handler of `run`, which would wait for itself."""
        if not self._is_open:
            return
        run = self._run
        if run is not None:
            run.end()
        self._is_open = False
        self._current = None
        self._news.set()
        if run is not None:
            await run.ended()
        try:
            if self._group is not None:
                await self._group.stop()
        finally:
            if self._discovery is not None:
                self._discovery.cancel()
                await asyncio.gather(self._discovery, return_exceptions=True)
            await self._fetcher.close()
            await self._session.close()

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- which partitions ----------------------------------------------------------------------------------------

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Replaces the assignment by these partitions, read from where `auto_offset_reset` says or `seek` moves them.
        With a `group_id` they are read from the group's committed offsets; `commit` works while the group has no
        subscribed members.

        Raises `InvalidRequest` for a consumer with topics or a subscription.
        """
        if self._topics and self._group is None:
            raise InvalidRequest("this consumer was given topics, and reads all their partitions; assign needs none")
        if self._group is not None:
            self._group.check_unsubscribed()
        for cursor in self._subscription.clear():
            self._fetcher.end(cursor)
        self._current = None
        cursors = self._subscription.add(partitions, self._reset if self._group is None else None)
        if self._group is not None:
            self._group.assigned_by_hand(cursors)
        for cursor in cursors:
            if self._is_open:
                self._fetcher.begin(cursor)

    def assignment(self) -> list[TopicPartition]:
        """Returns the assigned partitions, sorted."""
        return self._subscription.partitions

    async def partitions_for_topic(self, topic: str) -> list[int]:
        """Returns the partition numbers of a topic. Raises `UnknownTopic`."""
        return [partition for _, partition in await self._partitions_of(topic)]

    # -- the group -----------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes, within the group, to these topics and to those whose whole name matches `pattern` (an RE2 regular
        expression), including future ones. Replaces the former subscription; the coordinator revokes partitions of
        topics no longer subscribed to. Raises `InvalidRequest`, `GroupNeeded`."""
        group = self._need_group("subscribe")
        if not group.is_subscribed and self._subscription.partitions:
            raise InvalidRequest("this consumer was assigned partitions; `unsubscribe` first")
        group.subscribe(topics, pattern, listener)

    async def unsubscribe(self) -> None:
        """Ends the subscription or assignment. In a group: commits, calls the listener and leaves, as `stop` does."""
        if self._group is not None:
            await self._group.unsubscribe()
        for cursor in self._subscription.clear():
            self._fetcher.end(cursor)
        self._current = None

    def subscription(self) -> frozenset[str]:
        """Returns the subscribed topics: those subscribed by name, and those matched by a pattern that have assigned
        partitions."""
        names = self._topics if self._group is None else self._group.topics
        return frozenset((*names, *(topic for topic, _ in self.assignment())))

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commits these offsets for the group; without arguments the positions, which marks all returned records as
        processed.

        A committed offset is that of the next record to read. Raises `CommitFailed` with the partitions that are no
        longer this consumer's, while the other offsets are committed; `GroupNotEmpty` if the partitions were `assign`ed
        and other consumers have subscribed in the group; `CoordinatorNotAvailable` or another error if there was no
        coordinator for `request_timeout_ms`. May be retried after any of them.
        """
        group = self._need_group("commit")
        if offsets is None:
            self._handed_out = None
            await group.commits.commit(group.commits.processed(self._subscription.partitions))
            return
        await group.commits.commit({at: _with_metadata(at, offset) for at, offset in offsets.items()})

    async def committed(self, partition: TopicPartition, *, metadata: bool = False) -> int | OffsetAndMetadata | None:
        """Returns the group's committed offset of a partition; None if there is none."""
        committed = await self._need_group("committed").committed(partition)
        return committed if metadata or committed is None else committed.offset

    # -- inside --------------------------------------------------------------------------------------------------

    def _need_group(self, method: str) -> ConsumerGroup:
        if self._group is None:
            raise GroupNeeded(f"`{method}` is for consumers in a group: give the consumer a `group_id`")
        return self._group

    async def _partitions_of(self, topic: str) -> list[TopicPartition]:
        metadata = await self._session.topic(topic)
        return [TopicPartition(topic, partition.partition) for partition in metadata.partitions]

    async def _discover(self) -> None:
        """Assigns partitions that are added to the topics, at regular intervals. They are read from their beginning, so
        nothing is missed."""
        while True:
            await asyncio.sleep(self._session.metadata_max_age_s)
            for topic in self._topics:
                try:
                    fresh = self._subscription.add(await self._partitions_of(topic), "earliest")
                except TidelogError as error:
                    logger.info("topic %s: new partitions could not be looked for: %s", topic, error.message)
                    continue
                for cursor in fresh:
                    logger.info("%s is new, and read from its beginning", cursor.partition)
                    self._fetcher.begin(cursor)


def _with_metadata(partition: TopicPartition, offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    committed = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
    if not 0 <= committed.offset <= OFFSET_MAX:
        raise InvalidRequest(f"{partition}: offset {committed.offset} is not between 0 and {OFFSET_MAX}")
    return committed
