"""A loss that the cluster has accepted: the controller's decision, without a disk that was damaged."""

from __future__ import annotations

from tidelog.broker.broker import Broker
from tidelog.controller.commands import Done
from tidelog.controller.partition_commands import AcceptLoss
from tidelog.controller.records import GivenUpRange

DECISION_S_MAX = 10.0


async def accept_loss(broker: Broker, topic: str, start: int, end: int, partition: int = 0) -> None:
    """Gives up [start, end), and waits until that is in force at this broker."""
    command = AcceptLoss(broker.topic(topic).topic_id, partition, (GivenUpRange(start, end),), "tester", 1, 0)
    done = await broker._channel.submit(command, Done, seconds_max=DECISION_S_MAX)
    await broker.in_force(done.position)
