"""A broker that is about to stop hands over what it leads, without an outcome that is unknown. Pure.

After Kafka's controlled shutdown: another replica in sync, or another live voter, leads before this broker ends, which
stays a good follower meanwhile. Kafka's clients find the new leader by themselves; ours need not notice:

    led -> held: nothing new is appended -> settled: what was appended is committed -> the controller is asked
        -> another leads: what was held goes on there

A partition is held for `HOLD_S_MAX` at most, and for so long only if a commit takes so long: then its requests go on
here, and it is tried again. One without anybody to lead it is waited for if a live replica may yet come in sync. All of
it ends at `HAND_OVER_S_MAX`: what is led then is given up with the broker, as if it had failed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from tidelog.model.ids import PartitionId

HOLD_S_MAX: Final = 2.0
"""How long a produce request may wait for the change of its leader, beside its own deadline."""
RETRY_S: Final = 0.5
HAND_OVER_S_MAX: Final = 5.0
HELD_MAX: Final = 256
"""Partitions that are handed over together; so many are opened anew in less than a held request can wait."""


class Led(NamedTuple):
    """A partition that this broker leads, as things stand."""

    partition_id: PartitionId
    leader_epoch: int
    has_heir: bool
    """True if another replica may lead at once."""
    may_get_heir: bool
    """True if another replica's broker is live, and may yet come in sync."""
    is_settled: bool
    """True if all that was appended here is committed."""


class Step(NamedTuple):
    """The steps to be done now, in this order."""

    go_on: tuple[PartitionId, ...]
    """Partitions that append again."""
    hold: tuple[PartitionId, ...]
    """Partitions that append nothing from now on."""
    ask: tuple[Led, ...]
    """Partitions for which the controller is asked to name other leaders."""


class HandOver:
    """Decides for one broker that stops."""

    def __init__(self, now_s: float) -> None:
        self._ends_s = now_s + HAND_OVER_S_MAX
        self._held_since: dict[PartitionId, float] = {}
        self._not_before: dict[PartitionId, float] = {}
        self._hopeless: dict[PartitionId, None] = {}

    def is_over(self, led: Sequence[Led], now_s: float) -> bool:
        """Returns True if nothing is left that can be handed over, or no time."""
        return now_s >= self._ends_s or not any(self._is_open(partition) for partition in led)

    def _is_open(self, partition: Led) -> bool:
        return (partition.has_heir or partition.may_get_heir) and partition.partition_id not in self._hopeless

    def step(self, led: Sequence[Led], now_s: float) -> Step:
        """Returns what follows from what is led now."""
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
        """Gives up partitions for which the controller has nobody: all others that might lead are about to stop, too.
        Returns those that go on here."""
        for partition_id in partition_ids:
            self._hopeless[partition_id] = None
            self._release(partition_id, now_s)
        return tuple(partition_ids)

    def _release(self, partition_id: PartitionId, now_s: float) -> None:
        self._held_since.pop(partition_id, None)
        self._not_before[partition_id] = now_s + RETRY_S

    def end(self) -> tuple[PartitionId, ...]:
        """Returns what is held still, to go on here."""
        return tuple(self._held_since)
