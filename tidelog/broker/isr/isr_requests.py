"""Sends leaders' requests for other in-sync sets to the controller, many in one command (KIP-497).

Each request of a leader is answered to it exactly once. A request whose result is not known (no answer in time, the
controller lost) is answered as ambiguous: the leader then goes on as if the larger of the two sets were in force.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import structlog

from tidelog.broker.isr.partition import Partition
from tidelog.broker.partitions.roles import ProtocolContext
from tidelog.controller.partition_commands import (
    AlterOutcome,
    AlterPartition,
    IsrAnswer,
    IsrAsked,
    IsrMember,
    PartitionsAltered,
)
from tidelog.model.errors import TidelogError
from tidelog.replication.isr import events as isr

ANSWER_S_MAX = 5.0
PARTITIONS_AT_ONCE = 1_000


class _Request(NamedTuple):
    partition: Partition
    effect: isr.AlterPartition


OUTCOMES = {
    AlterOutcome.APPLIED: isr.Outcome.APPLIED,
    AlterOutcome.NOT_APPLIED: isr.Outcome.PROVEN_NOT_APPLIED,
    # Stale is not "no": the request may have been applied before the metadata moved on. Taken for "no", the leader
    # would commit without a member that the controller counts as in sync, and might elect.
    AlterOutcome.STALE: isr.Outcome.AMBIGUOUS,
}

logger = structlog.get_logger("tidelog.replication")


class IsrRequests:
    """The AlterPartition requests of one broker (KIP-497). `run` is its task; at most one request waits for each
    partition.
    """

    def __init__(self, context: ProtocolContext) -> None:
        self._context = context
        self._waiting: list[_Request] = []
        self._wake = asyncio.Event()

    def add(self, partition: Partition, effect: isr.AlterPartition) -> None:
        """Includes a leader's request in the next command to the controller."""
        self._waiting.append(_Request(partition, effect))
        self._wake.set()

    async def run(self) -> None:
        """Sends the waiting requests until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                requests = self._waiting[:PARTITIONS_AT_ONCE]
                del self._waiting[:PARTITIONS_AT_ONCE]
                await self._send(requests)

    async def _send(self, requests: list[_Request]) -> None:
        context = self._context
        command = AlterPartition(context.node_id, context.own_epoch(), [_entry_of(request) for request in requests])
        try:
            answer = await context.channel.submit(command, PartitionsAltered, seconds_max=ANSWER_S_MAX)
        except TidelogError as error:
            logger.info("in-sync sets could not be changed now", reason=str(error))
            for request in requests:
                # Nobody knows whether the command was decided, so the leader goes on waiting for both sets.
                self._tell(request, None)
            return
        # What was decided before may bear on it, a larger minimum of in-sync replicas for one: that comes first.
        is_in_force = await self._context.in_force(answer.position)
        for request, answered in zip(requests, answer.partitions, strict=True):
            self._tell(request, answered if is_in_force else None)

    def _tell(self, request: _Request, answer: IsrAnswer | None) -> None:
        outcome = isr.Outcome.AMBIGUOUS if answer is None else OUTCOMES[answer.outcome]
        epoch, members = (-1, ()) if answer is None else (answer.partition_epoch, tuple(answer.isr))
        now_ms = int(self._context.clock.monotonic_s() * 1000)
        request.partition.tell(isr.AlterPartitionAnswered(request.effect.attempt, outcome, now_ms, epoch, members))


def _entry_of(request: _Request) -> IsrAsked:
    partition, effect = request
    members = [IsrMember(node, epoch) for node, epoch in effect.isr]
    return IsrAsked(partition.topic_id, partition.partition, partition.leader_epoch, effect.partition_epoch, members)
