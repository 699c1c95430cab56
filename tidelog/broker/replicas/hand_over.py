"""The handover of partitions by a broker that is about to stop, so that no produce request ends with an unknown
outcome. Pure.

After Kafka's controlled shutdown: another in-sync replica, or another live voter, becomes leader before this broker
ends, which stays a follower meanwhile. Clients find the new leader by themselves, and requests that wait here are
answered:

    led -> held: nothing new is appended -> settled: everything appended is committed -> the controller is asked
        -> another broker leads: the held requests continue there

A partition is held for `HOLD_S_MAX` at most, and for so long only if a commit takes so long: then its requests continue
here, and the handover is tried again. One without a possible leader is waited for if a live replica may yet come in
sync. All of it ends at `HAND_OVER_S_MAX`: partitions led then fail over as if the broker had crashed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from tidelog.model.ids import PartitionId

HOLD_S_MAX: Final = 2.0
"""Seconds that a produce request may wait for the change of its leader, besides its own deadline."""
RETRY_S: Final = 0.5
HAND_OVER_S_MAX: Final = 5.0
HELD_MAX: Final = 256
"""Maximum number of partitions that are held at once: other brokers can take over so many within `HOLD_S_MAX`."""


class Led(NamedTuple):
    """The state of a partition that this broker leads."""

    partition_id: PartitionId
    leader_epoch: int
    has_heir: bool
    """True if another replica can become leader at once."""
    may_get_heir: bool
    """True if another replica's broker is live, so that it may yet come in sync."""
    is_settled: bool
    """True if everything appended on this broker is committed."""


class Step(NamedTuple):
    """The actions by which a stopping broker hands over partitions now, to be taken in the order of the fields."""

    go_on: tuple[PartitionId, ...]
    """Partitions whose appends are resumed."""
    hold: tuple[PartitionId, ...]
    """Partitions whose appends are stopped."""
    ask: tuple[Led, ...]
    """Partitions for which the controller is asked to elect other leaders."""


class HandOver:
    """Decides what a stopping broker does next with each partition that it leads."""

    def __init__(self, now_s: float) -> None:
        self._ends_s = now_s + HAND_OVER_S_MAX
        self._held_since: dict[PartitionId, float] = {}
        self._not_before: dict[PartitionId, float] = {}
        self._hopeless: dict[PartitionId, None] = {}

    def is_over(self, led: Sequence[Led], now_s: float) -> bool:
        """Returns True if no partition is left that can be handed over, or the time is up."""
        return now_s >= self._ends_s or not any(self._is_open(partition) for partition in led)

    def _is_open(self, partition: Led) -> bool:
        return (partition.has_heir or partition.may_get_heir) and partition.partition_id not in self._hopeless

    def step(self, led: Sequence[Led], now_s: float) -> Step:
        """Returns the actions that follow from the partitions that are led now."""
        by_id = {partition.partition_id: partition for partition in led}
        self._held_since = {held: since_s for held, since_s in self._held_since.items() if held in by_id}
        go_on = tuple(
            held
            for held, since_s in self._held_since.items()
            if now_s - since_s >= HOLD_S_MAX or not by_id[held].has_heir
        )
        for partition_id in go_on:
            self._release(partition_id, now_s)
        hold = tuple(self._next(led, now_s))[: HELD_MAX - len(self._held_since)]
        self._held_since |= dict.fromkeys(hold, now_s)
        # Only when it is settled: a produce request whose append is not committed would end with an unknown outcome.
        ask = tuple(
            partition for partition in led if partition.partition_id in self._held_since and partition.is_settled
        )
        return Step(go_on, hold, ask)

    def _next(self, led: Sequence[Led], now_s: float) -> list[PartitionId]:
        return [
            partition.partition_id
            for partition in led
            if partition.has_heir
            and self._is_open(partition)
            and partition.partition_id not in self._held_since
            and self._not_before.get(partition.partition_id, now_s) <= now_s
        ]

    def refused(self, partition_ids: Collection[PartitionId], now_s: float) -> tuple[PartitionId, ...]:
        """Gives up partitions for which the controller has found no other leader, since all candidates are about to
        stop, too. Returns them, so that their appends are resumed."""
        for partition_id in partition_ids:
            self._hopeless[partition_id] = None
            self._release(partition_id, now_s)
        return tuple(partition_ids)

    def _release(self, partition_id: PartitionId, now_s: float) -> None:
        self._held_since.pop(partition_id, None)
        self._not_before[partition_id] = now_s + RETRY_S

    def end(self) -> tuple[PartitionId, ...]:
        """Returns the partitions that are still held, so that their appends are resumed."""
        return tuple(self._held_since)
