"""Hands over what a stopping broker leads: its partitions as `hand_over` decides, then its role as the controller.

The partitions come first: this broker stops and resumes appends, checks commits, and asks the controller, which may be
itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

import structlog

from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.metadata.metadata import ClusterMetadata
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.replicas.hand_over import HOLD_S_MAX, RETRY_S, HandOver, Led
from tidelog.broker.runtime.purgatory import Watchers
from tidelog.controller import partition_commands as commands
from tidelog.controller.decide_partitions import heirs
from tidelog.controller.partition_commands import (
    HAND_OVER_LEVEL,
    HANDED_OVER_MAX,
    ElectionCode,
    LeadersElected,
    PartitionLed,
)
from tidelog.model.cluster import ClusterImage, PartitionInfo
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId, PartitionId

LOOK_S: Final = 0.01
STEP_ASIDE_S_MAX: Final = 1.0
"""Seconds that a stopping controller waits until another broker is the active controller."""

logger = structlog.get_logger("tidelog.broker")


class LeadingHost(Protocol):
    """The parts of a broker that the handover uses."""

    @property
    def node_id(self) -> NodeId: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def partitions(self) -> Mapping[PartitionId, LedPartition]:
        """The partitions that this broker leads, and whose logs are open."""

    @property
    def others(self) -> list[NodeId]:
        """Node ids of the other live brokers."""

    def own_epoch(self) -> int:
        """Returns the epoch of this broker's registration (broker epoch)."""


class HandingOver:
    """Hands over all partitions that one broker leads, and its role as controller; once, `run` before `step_aside`."""

    def __init__(self, host: LeadingHost, channel: ControllerChannel) -> None:
        self._host = host
        self._channel = channel
        self._seen: ClusterImage | None = None
        self._infos: list[tuple[PartitionId, PartitionInfo, bool]] = []

    async def run(self) -> None:
        """Hands over the partitions; returns when other brokers lead all that they can, or when the time is up; at once
        at a feature level at which the controller may not support the handover."""
        if self._host.image.level < HAND_OVER_LEVEL:
            return
        now_s = asyncio.get_running_loop().time
        core = HandOver(now_s())
        await self._ask(core, ())  # so that nothing is given to this broker, though it led nothing
        try:
            while not core.is_over(led := self._led(), now_s()):
                step = core.step(led, now_s())
                self._go_on(step.go_on)
                self._hold(step.hold)
                if step.ask:
                    await self._ask(core, step.ask)
                await asyncio.sleep(LOOK_S)
        finally:
            self._go_on(core.end())

    async def step_aside(self, metadata: ClusterMetadata, changed: Watchers) -> None:
        """Hands the leadership of the metadata log, if this broker has it, to another live voter; returns when another
        broker is the active controller, or when the time is up. `changed` is woken when the leader changes."""
        heir_ids = [voter.voter_id for voter in self._host.image.voters if voter.node_id in self._host.others]
        if self._channel.leader != self._host.node_id or not heir_ids:
            return
        metadata.step_aside(heir_ids[0])
        with suppress(TimeoutError):
            async with asyncio.timeout(STEP_ASIDE_S_MAX):
                while self._channel.leader in (None, self._host.node_id):
                    await changed.wait()

    def _led(self) -> list[Led]:
        image, partitions = self._host.image, self._host.partitions
        if image is not self._seen:
            self._seen, self._infos = image, _led_in(image, self._host.node_id)
        return [
            Led(
                partition_id,
                info.leader_epoch,
                bool(heirs(info)),
                may_get_heir,
                partition_id not in partitions or partitions[partition_id].is_settled,
            )
            for partition_id, info, may_get_heir in self._infos
        ]

    def _hold(self, partition_ids: Iterable[PartitionId]) -> None:
        for partition_id in partition_ids:
            if partition_id in self._host.partitions:
                self._host.partitions[partition_id].hold_back()

    def _go_on(self, partition_ids: Iterable[PartitionId]) -> None:
        for partition_id in partition_ids:
            if partition_id in self._host.partitions:
                self._host.partitions[partition_id].go_on()

    async def _ask(self, core: HandOver, settled: Sequence[Led]) -> None:
        command = commands.HandOver(
            self._host.node_id,
            self._host.own_epoch(),
            [PartitionLed(*partition.partition_id, partition.leader_epoch) for partition in settled[:HANDED_OVER_MAX]],
        )
        try:
            answer = await self._channel.submit(command, LeadersElected, seconds_max=HOLD_S_MAX)
        except TidelogError as error:
            logger.warning("the leaderships of this broker could not be handed over now", reason=str(error))
            await asyncio.sleep(RETRY_S)
            return
        now_s = asyncio.get_running_loop().time()
        refused = [
            election for election in answer.partitions if election.code is ElectionCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        ]
        ids = {(election.topic_id, election.partition) for election in refused}
        self._go_on(
            core.refused([partition.partition_id for partition in settled if partition.partition_id in ids], now_s)
        )


def _led_in(image: ClusterImage, node_id: NodeId) -> list[tuple[PartitionId, PartitionInfo, bool]]:
    """Returns the partitions that this broker leads, each with True if a broker of another replica is live."""
    live = [broker.node_id for broker in image.live_brokers if broker.node_id != node_id]
    return [
        (PartitionId(topic.topic_id, info.partition), info, any(node in live for node in info.replicas))
        for topic in image.topics.values()
        for info in topic.partitions
        if info.leader == node_id
    ]
