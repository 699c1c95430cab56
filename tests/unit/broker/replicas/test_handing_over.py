"""A broker that is about to stop asks the controller for other leaders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.replicas.handing_over import HandingOver
from tidelog.controller.partition_commands import HAND_OVER_LEVEL, HandOver, LeadersElected
from tidelog.model.cluster import ClusterImage
from tidelog.model.ids import NodeId, PartitionId


class Host:
    node_id = NodeId(1)
    partitions: Mapping[PartitionId, LedPartition] = {}

    def __init__(self, level: int) -> None:
        self.image = replace(ClusterImage("c"), level=level)

    def own_epoch(self) -> int:
        return 7


class Channel:
    def __init__(self) -> None:
        self.asked: list[HandOver] = []

    async def submit(self, command: HandOver, *_: Any, **__: Any) -> LeadersElected:
        self.asked.append(command)
        return LeadersElected(0, [])


@pytest.mark.parametrize("level", [HAND_OVER_LEVEL - 1, HAND_OVER_LEVEL])
async def test_a_controller_is_asked_only_at_levels_at_which_it_knows_how(level: int) -> None:
    channel = Channel()
    await HandingOver(Host(level), channel).run()  # type: ignore[arg-type] # stands for broker and channel
    assert [command.broker_epoch for command in channel.asked] == [7] * (level >= HAND_OVER_LEVEL)
