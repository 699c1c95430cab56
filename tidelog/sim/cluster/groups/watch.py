"""Observes the group coordinators of a run: what they load, and when they compact their log.

A coordinator compacts its partition of the offsets topic by *copying forward*: it appends the live records again and
deletes all before them. The log length that triggers this is lowered here, since no run reaches the shipped one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tidelog.broker.groups import coordinator, copying
from tidelog.broker.groups.copying import CopyForward
from tidelog.broker.groups.loading import Loaded
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.sim.cluster.group_traffic import GroupTraffic
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.kit.patching import hooked


class GroupWatch:
    """Hooks into the group coordinators of one run."""

    def __init__(self, traffic: GroupTraffic, truth: Truth) -> None:
        self._traffic = traffic
        self._truth = truth
        self._led: dict[int, int] = {}
        """Leader epoch in which a partition of the offsets topic was last loaded, by partition."""

    def open(self) -> AbstractContextManager[None]:
        """Installs the hooks while the context is open."""
        return hooked(
            (coordinator, "load", self._load),
            (CopyForward, "_copy", self._copy),
            (copying, "LENGTH_MIN", lambda _: self._traffic.copied_from_records),
            (copying, "PIECE_RECORDS", lambda _: self._traffic.copied_at_once),
        )

    def _load(self, original: Any) -> Any:
        async def load(partition: LedPartition, claimed: int, now_ms: int) -> Loaded:
            loaded: Loaded = await original(partition, claimed, now_ms)
            members = sum(len(group.members) for group in loaded.shard.groups.values())
            self._truth.note("loaded", partition.partition, partition.leader_epoch, claimed, members)
            self._truth.saw("shard loaded with live members", members > 0)
            classic = any(group.classic is not None and group.classic.members for group in loaded.shard.groups.values())
            self._truth.saw("shard loaded with classic members", classic)
            before = self._led.get(partition.partition, partition.leader_epoch)
            self._led[partition.partition] = partition.leader_epoch
            self._truth.saw("coordinator failed over with members", members > 0 and before != partition.leader_epoch)
            self._truth.saw(
                "coordinator failed over with classic members", classic and before != partition.leader_epoch
            )
            return loaded

        return load

    def _copy(self, original: Any) -> Any:
        async def copy(forward: CopyForward) -> None:
            partition = forward._state.partition
            start = partition.log_start_offset
            await original(forward)
            offsets = sum(len(group.offsets) for group in forward._state.shard.groups.values())
            self._truth.note("copied forward", partition.partition, start, partition.log_start_offset)
            self._truth.saw("committed offsets copied forward", offsets > 0)

        return copy
