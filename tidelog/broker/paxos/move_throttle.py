"""Throttling of Paxos replicas that are being reassigned (`throttle`), as of followers that are.

A new replica requests what it lacks: learned values from any other replica's journal, or, where all journals begin
later, batches of its log. No queue is needed, since a replica that gets no answer asks again:

    request beyond the sender's rate        is taken up when there is an allowance again, one for each replica
    answer beyond the sender's rate         is cut to the allowance; a single value may exceed it, which delays the next
    request beyond the receiver's rate      is not sent

A leader pushes what it commits to all replicas without a vote, except those that are throttled: these would get the
same values again once they have caught up so far.
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
    """Throttles the Paxos replicas of one broker that are being reassigned."""

    def __init__(self, node_id: int, throttle: Throttle) -> None:
        self._node_id = node_id
        self._throttle = throttle

    def is_held(self, partition_id: PartitionId, node_id: int) -> bool:
        """Returns True if the replica on this broker is being reassigned, and copied at the throttled rate."""
        return self._throttle.is_held(partition_id, node_id)

    # -- who has the data --------------------------------------------------------------------------------------------

    def early_s(self, node_id: int, message: PartitionFrame) -> float:
        """Returns the seconds that a `LearnRequest` of another broker's throttled replica has to wait; 0 for every
        other message."""
        # Only questions of replicas that lack something wait: promises and writes are no copying.
        if not isinstance(message.frame.message, LearnRequest) or not self.is_held(where(message), node_id):
            return 0.0
        return self._throttle.sending.ready_in_s()

    def outgoing(
        self, node_id: int, message: PartitionFrame, payloads: Sequence[Buffer]
    ) -> tuple[PartitionFrame, Sequence[Buffer]] | None:
        """Returns what may be sent of this message now, with its payloads; None if it may not be sent."""
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
        """Waits until the replica on another broker may be sent data; returns how many bytes of a log. Raises
        `Overloaded` if that would take longer than `seconds_max`."""
        held = self.is_held(partition_id, node_id)
        return await _turn(self._throttle.sending, seconds_max) if held else UNLIMITED

    def sent(self, partition_id: PartitionId, node_id: int, count: int) -> None:
        """Debits the rate with bytes of a log that were sent to the replica on another broker."""
        if self.is_held(partition_id, node_id):
            self._throttle.sent(count)

    # -- who lacks it ------------------------------------------------------------------------------------------------

    async def may_receive(self, partition_id: PartitionId, seconds_max: float) -> int:
        """Waits until the replica here may receive data; returns how many bytes of a log it may request. Raises
        `Overloaded` if that would take longer than `seconds_max`."""
        held = self.is_held(partition_id, self._node_id)
        return await _turn(self._throttle.receiving, seconds_max) if held else UNLIMITED

    def heard(self, message: PartitionFrame, count: int) -> None:
        """Counts the bytes of values received in a `LearnResponse` against the rate. Values that a voter is asked to
        accept do not count."""
        if isinstance(message.frame.message, LearnResponse):
            self.received(where(message), count)

    def received(self, partition_id: PartitionId, count: int) -> None:
        """Debits the rate with bytes received for the replica here."""
        if count and self.is_held(partition_id, self._node_id):
            self._throttle.received(count)


class ThrottledPeers:
    """`ReplicaPeers` that throttles the messages and requests of replicas that are being reassigned."""

    def __init__(self, peers: Peers, move_throttle: MoveThrottle) -> None:
        self._peers = peers
        self._move_throttle = move_throttle

    def notify(self, node_id: int, message: msgspec.Struct, payload: Sequence[Buffer] = ()) -> object:
        """Sends a one-way message, cut to the throttled rate; drops it if nothing may be sent now."""
        if isinstance(message, PartitionFrame):
            allowed = self._move_throttle.outgoing(node_id, message, payload)
            if allowed is None:
                return False
            message, payload = allowed
        return self._peers.notify(node_id, message, payload)

    async def ask(self, node_id: int, message: ReadApplied | ReadValue, deadline_s: float) -> Answer:
        """Sends a request to a broker, `ReadApplied` at the throttled rate. Raises the `TidelogError` that the broker
        answers, `PeerUnreachable` or `Overloaded` (also if the throttle would delay it for too long) if it was not
        asked, `PeerLost` or `TimeoutError` if it has not answered."""
        if isinstance(message, ReadValue):
            return await self._peers.ask(node_id, message, deadline_s)
        partition_id = PartitionId(TopicId(message.topic_id), message.partition)
        size = min(message.bytes_max, await self._move_throttle.may_receive(partition_id, deadline_s))
        request = structs.replace(message, bytes_max=size)
        answer = await self._peers.ask(node_id, request, deadline_s)
        self._move_throttle.received(partition_id, len(answer.body))
        return answer

    def is_live(self, node_id: int) -> bool:
        """Returns True if this broker is registered, and not fenced."""
        return self._peers.is_live(node_id)

    def is_held(self, partition_id: PartitionId, node_id: int) -> bool:
        """Returns True if the replica on this broker is being reassigned, and copied at the throttled rate."""
        return self._move_throttle.is_held(partition_id, node_id)


def where(message: PartitionFrame) -> PartitionId:
    """Returns the partition that a frame is about."""
    return PartitionId(TopicId(message.topic_id), message.partition)


def cut(frame: PaxosFrame, room: int) -> PaxosFrame:
    """Returns a frame with a `LearnResponse` cut to values of at most `room` bytes, but with one value at least."""
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
