"""Replicas of Paxos partitions that are being reassigned are held to the rate of moves (`throttle`), as followers are.

What a new replica lacks it asks for: values that were learned, of any other replica's journal, or, where all journals
begin later, batches of its log. Nothing has to be kept here for it, since whoever gets nothing asks again:

    too early a question     is taken up when there is an allowance again, one of each asker
    too large an answer      is cut to the allowance; one value may be larger, which is paid off before the next
    too much for the asker   it does not ask

A leader sends what it commits to all who follow without a vote, but not to those that are held: they would get it again
when they have come that far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import structs

from tidelog.broker.consensus.messages import PaxosFrame
from tidelog.broker.partitions.throttle import Direction, Throttle
from tidelog.broker.paxos.context import Peers
from tidelog.broker.paxos.messages import PartitionFrame, ReadApplied, ReadValue
from tidelog.model.errors import Overloaded
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.messages import LearnRequest, LearnResponse
from tidelog.replication.paxos.state import Slot
from tidelog.replication.token_bucket import UNLIMITED
from tidelog.transport.peer import Answer


class MoveThrottle:
    """Holds the Paxos replicas of one broker to the rate of moves."""

    def __init__(self, node_id: int, throttle: Throttle) -> None:
        self._node_id = node_id
        self._throttle = throttle

    def is_held(self, partition_id: PartitionId, node_id: int) -> bool:
        """Returns True if the replica on this broker is copied at the rate of moves."""
        return self._throttle.is_held(partition_id, node_id)

    # -- who has the data --------------------------------------------------------------------------------------------

    def early_s(self, node_id: int, message: PartitionFrame) -> float:
        """Returns how many seconds a question of another broker has to wait; 0 for everything else."""
        # Only questions of replicas that lack something wait: promises and writes are no copying.
        if not isinstance(message.frame.message, LearnRequest) or not self.is_held(where(message), node_id):
            return 0.0
        return self._throttle.sending.ready_in_s()

    def outgoing(
        self, node_id: int, message: PartitionFrame, payloads: Sequence[Buffer]
    ) -> tuple[PartitionFrame, Sequence[Buffer]] | None:
        """Returns what may be sent of this message now; None if nothing may."""
        frame, partition_id = message.frame, where(message)
        if isinstance(frame.message, LearnRequest) and self.is_held(partition_id, self._node_id):
            return (message, payloads) if self._throttle.receiving.allowance() > 0 else None
        # What a voter is to accept is no copying, and is never held up.
        if not payloads or not isinstance(frame.message, LearnResponse) or not self.is_held(partition_id, node_id):
            return message, payloads
        room = self._throttle.sending.allowance()
        if room <= 0:
            return None
        frame = cut(frame, room)
        self._throttle.sent(sum(frame.sizes))
        return structs.replace(message, frame=frame), payloads[: len(frame.sizes)]

    async def may_send(self, partition_id: PartitionId, node_id: int, seconds_max: float) -> int:
        """Waits for the turn of another broker's replica; returns how many bytes of a log it may be sent. Raises
        `Overloaded`."""
        held = self.is_held(partition_id, node_id)
        return await _turn(self._throttle.sending, seconds_max) if held else UNLIMITED

    def sent(self, partition_id: PartitionId, node_id: int, count: int) -> None:
        """Counts the bytes of a log that went to the replica on another broker."""
        if self.is_held(partition_id, node_id):
            self._throttle.sent(count)

    # -- who lacks it ------------------------------------------------------------------------------------------------

    async def may_receive(self, partition_id: PartitionId, seconds_max: float) -> int:
        """Waits for the turn of the replica here; returns how many bytes of a log it may ask for. Raises
        `Overloaded`."""
        held = self.is_held(partition_id, self._node_id)
        return await _turn(self._throttle.receiving, seconds_max) if held else UNLIMITED

    def heard(self, message: PartitionFrame, count: int) -> None:
        """Counts the bytes of values in a frame that came. Values that a voter is asked to accept are no copying."""
        if isinstance(message.frame.message, LearnResponse):
            self.received(where(message), count)

    def received(self, partition_id: PartitionId, count: int) -> None:
        """Counts the bytes that came for the replica here."""
        if count and self.is_held(partition_id, self._node_id):
            self._throttle.received(count)


class ThrottledPeers:
    """`ReplicaPeers`: what goes to other brokers, and is asked of them, at the pace of moves."""

    def __init__(self, peers: Peers, move_throttle: MoveThrottle) -> None:
        self._peers = peers
        self._move_throttle = move_throttle

    def notify(self, node_id: int, message: msgspec.Struct, payload: Sequence[Buffer] = ()) -> object:
        """Sends as `Peers.notify`; what may not be sent now is as good as lost."""
        if isinstance(message, PartitionFrame):
            allowed = self._move_throttle.outgoing(node_id, message, payload)
            if allowed is None:
                return False
            message, payload = allowed
        return self._peers.notify(node_id, message, payload)

    async def ask(self, node_id: int, message: ReadApplied | ReadValue, deadline_s: float) -> Answer:
        """Asks as `Peers.ask`; raises `Overloaded` besides. A value that a voter has lost is no copying."""
        if isinstance(message, ReadValue):
            return await self._peers.ask(node_id, message, deadline_s)
        partition_id = PartitionId(TopicId(message.topic_id), message.partition)
        size = min(message.bytes_max, await self._move_throttle.may_receive(partition_id, deadline_s))
        request = structs.replace(message, bytes_max=size)
        answer = await self._peers.ask(node_id, request, deadline_s)
        self._move_throttle.received(partition_id, len(answer.body))
        return answer

    def is_live(self, node_id: int) -> bool:
        """Tells the same as `Peers.is_live`."""
        return self._peers.is_live(node_id)

    def is_held(self, partition_id: PartitionId, node_id: int) -> bool:
        """Implements `ReplicaPeers.is_held`."""
        return self._move_throttle.is_held(partition_id, node_id)


def where(message: PartitionFrame) -> PartitionId:
    """Returns the partition that a frame is about."""
    return PartitionId(TopicId(message.topic_id), message.partition)


def cut(frame: PaxosFrame, room: int) -> PaxosFrame:
    """Returns an answer cut to `room` bytes, but with one value at least."""
    answer = frame.message
    assert isinstance(answer, LearnResponse)
    slots: list[Slot] = []
    total = values = 0
    for slot in answer.slots:
        if slot.value.digest and not slot.faulty:
            total += frame.sizes[values]
            # One value always goes, or a large one would never arrive.
            if values and total > room:
                break
            values += 1
        slots.append(slot)
    shown = LearnResponse(answer.floor, tuple(slots), answer.learned_end)
    return structs.replace(frame, message=shown, sizes=frame.sizes[:values])


async def _turn(direction: Direction, seconds_max: float) -> int:
    ready_in_s = direction.ready_in_s()
    if ready_in_s > seconds_max:
        raise Overloaded("replicas that move are held to a rate; ask again later")
    await asyncio.sleep(ready_in_s)
    # One byte at least: a question for nothing would be asked again at once.
    return max(1, direction.allowance())
