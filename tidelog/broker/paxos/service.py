"""Handler of the messages that other brokers send to the Paxos replicas of this one.

A frame goes to the replica's engine at once, or is dropped if there is no such replica; only a request of a replica
that is being reassigned may wait for the throttle (`move_throttle`), one for each replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from tidelog.broker.consensus.messages import PaxosFrame
from tidelog.broker.paxos.lanes import Lanes
from tidelog.broker.paxos.messages import AppliedDurable, AppliedRead, PartitionFrame, ReadApplied, ReadValue, ValueRead
from tidelog.broker.paxos.move_throttle import MoveThrottle, where
from tidelog.broker.paxos.replica import PaxosReplica
from tidelog.model.batch_header import parse_header
from tidelog.model.errors import DamagedBatch, ForeignSender, ImplausibleNumber, InvalidRequest, NotFound
from tidelog.model.ids import PartitionId, TopicId
from tidelog.replication.paxos.state import WITH_PAYLOAD
from tidelog.storage.rows import Row
from tidelog.storage.segment import end_of
from tidelog.transport.peer import Answer

READ_BYTES_MAX = 4 << 20
DIGEST_BYTES = 16
TURN_S_MAX = 2.0
"""Seconds that a request for batches may wait for the throttle."""


class PaxosService:
    """Handles messages for one broker's replicas. `replica` returns the replica of a partition, if there is one."""

    def __init__(
        self,
        replica: Callable[[PartitionId], PaxosReplica | None],
        move_throttle: MoveThrottle,
        lanes: Lanes | None = None,
    ) -> None:
        self._replica = replica
        self._lanes = lanes
        self._move_throttle = move_throttle
        self._arrived: list[tuple[PaxosReplica, int, PaxosFrame, memoryview]] = []
        """Frames that are passed on at the end of this turn of the event loop; none with one connection."""
        self._early: dict[tuple[PartitionId, int], asyncio.TimerHandle] = {}
        """Timers of the requests that wait for the throttle, by partition and requesting broker."""

    def take_durable(self, node_id: int, message: AppliedDurable, _payload: memoryview) -> None:
        """Handles a report that another broker's log of a partition is durable further. Raises `ForeignSender`,
        `ImplausibleNumber`."""
        replica = self._find(message.topic_id, message.partition)
        # Nobody speaks across eras: what was durable in an earlier one may have been truncated.
        if replica is not None and replica.era == message.era:
            replica.heard(node_id, message.senders, message.durable_offset)

    def take_frame(self, node_id: int, message: PartitionFrame, payload: memoryview) -> None:
        """Passes a frame to the engine of its partition, after the throttle's delay. Raises `ForeignSender`,
        `ImplausibleNumber`."""
        partition_id = where(message)
        replica = self._replica(partition_id)
        if replica is None or replica.era != message.era:
            return
        replica.check(node_id, message.frame)
        early_s = self._move_throttle.early_s(node_id, message)
        if early_s > 0:
            asker = (partition_id, node_id)
            # One waiting question of each asker: it repeats itself anyway.
            if asker not in self._early:
                loop = asyncio.get_running_loop()
                self._early[asker] = loop.call_later(early_s, self._take_up, asker, message, payload)
            return
        self._move_throttle.heard(message, len(payload))
        if self._lanes is None:
            replica.receive(node_id, message.frame, payload)
            return
        self._lanes.answered(node_id, message)
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._take_arrived)
        self._arrived.append((replica, node_id, message.frame, payload))

    def _take_arrived(self) -> None:
        """Passes on the frames that several connections have brought in this turn of the event loop, by position: what
        was sent in order is written in order."""
        arrived, self._arrived = self._arrived, []
        arrived.sort(key=lambda item: getattr(item[2].message, "position", -1))
        for replica, node_id, frame, payload in arrived:
            with suppress(ForeignSender):  # by what is known since it came: as good as lost
                replica.receive(node_id, frame, payload)

    def _take_up(self, asker: tuple[PartitionId, int], message: PartitionFrame, payload: memoryview) -> None:
        del self._early[asker]
        with suppress(ForeignSender, ImplausibleNumber):  # by what is known since it came: as good as lost
            self.take_frame(asker[1], message, payload)

    async def read(self, node_id: int, request: ReadApplied) -> Answer:
        """Returns batches of a replica's log to another broker. Raises `NotFound`, `Overloaded`, `OffsetOutOfRange`."""
        partition_id = PartitionId(TopicId(request.topic_id), request.partition)
        allowed = await self._move_throttle.may_send(partition_id, node_id, TURN_S_MAX)
        answer = self._read(request, min(request.bytes_max, allowed, READ_BYTES_MAX))
        self._move_throttle.sent(partition_id, node_id, sum(map(len, answer.payload)))
        return answer

    def _read(self, request: ReadApplied, size: int) -> Answer:
        replica = self._readable(request)
        log = replica.log
        offset = max(request.offset, log.log_start_offset)
        # Nothing beyond: the rest may be hidden, or not applied.
        end = replica.high_watermark
        data, damaged_to, digest = b"", 0, b""
        try:
            data = b"".join(log.read_filling(offset, size, end)) if offset < end else b""
        except DamagedBatch:
            # The digest of the damaged batch lets a log that doubts its own copy compare it all the same.
            entry = next(log.entries(offset))
            damaged_to, digest = min(end_of(entry), end), entry.digest if isinstance(entry, Row) else b""
        producers = b""
        # Whoever starts over here has to recognise repeats of the batches that are deleted.
        if request.takes_rows and request.offset < log.log_start_offset:
            first = parse_header(data).base_offset if data else log.log_start_offset
            producers = replica.applied.producers_before(first)
        floor = msgspec.msgpack.encode(replica.floor())
        return Answer(AppliedRead(log.log_start_offset, floor, len(producers), damaged_to, digest), (data, producers))

    async def read_value(self, request: ReadValue) -> Answer:
        """Returns the payload of a value to a replica that has lost it. Raises `NotFound`, `InvalidRequest`,
        `Overloaded`."""
        value = request.value
        # What another broker names is checked before journal and log are read by it.
        if value.kind not in WITH_PAYLOAD or len(value.digest) != DIGEST_BYTES or value.base_offset < 0:
            raise InvalidRequest("no value with a payload has such a name")
        payload = self._readable(request).engine.copy_of(request.position, value)
        return Answer(ValueRead(payload is not None), () if payload is None else (payload,))

    def _readable(self, request: ReadApplied | ReadValue) -> PaxosReplica:
        replica = self._find(request.topic_id, request.partition)
        # A log that is being truncated may be at odds with what is chosen; one of another era is another history.
        if replica is None or not replica.is_readable or replica.era != request.era:
            raise NotFound("this broker has no such replica now")
        return replica

    def _find(self, topic_id: str, partition: int) -> PaxosReplica | None:
        return self._replica(PartitionId(TopicId(topic_id), partition))
