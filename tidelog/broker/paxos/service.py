"""What other brokers have to say to the Paxos replicas of this one, and where it goes.

Nothing is queued here: a frame is taken by its engine at once, or, if there is no such replica now, is as good as lost.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidelog.broker.paxos.messages import AppliedDurable, AppliedRead, PartitionFrame, ReadApplied
from tidelog.broker.paxos.replica import PaxosReplica
from tidelog.model.errors import NotFound
from tidelog.model.ids import PartitionId, TopicId
from tidelog.transport.peer import Answer

READ_BYTES_MAX = 4 << 20


class PaxosService:
    """One broker's. `replica` finds what it has of a partition."""

    def __init__(self, replica: Callable[[PartitionId], PaxosReplica | None]) -> None:
        self._replica = replica

    def notified(self, node_id: int, message: msgspec.Struct, payload: memoryview) -> bool:
        """Takes a message that needs no answer; False if it is none of these."""
        match message:
            case PartitionFrame(topic_id, partition, frame):
                replica = self._find(topic_id, partition)
                if replica is not None:
                    replica.receive(node_id, frame, payload)
            case AppliedDurable(topic_id, partition, sender, durable_offset):
                replica = self._find(topic_id, partition)
                if replica is not None:
                    replica.heard(sender, durable_offset)
            case _:
                return False
        return True

    def read(self, asked: ReadApplied) -> Answer:
        """Batches of a replica here. Raises `NotFound`, or as `PartitionLog.read`."""
        replica = self._find(asked.topic_id, asked.partition)
        if replica is None or not replica.is_readable:
            raise NotFound("this broker has no such replica now")
        log = replica.log
        told = AppliedRead(log.log_start_offset, msgspec.msgpack.encode(replica.floor()))
        offset = max(asked.offset, log.log_start_offset)
        if offset >= log.log_end_offset:
            return Answer(told)
        size = min(asked.bytes_max, READ_BYTES_MAX)
        return Answer(told, (log.read(offset, size, log.log_end_offset).data,))

    def _find(self, topic_id: str, partition: int) -> PaxosReplica | None:
        return self._replica(PartitionId(TopicId(topic_id), partition))
