"""A controller for the walks: one partition's entry, by Kafka's rules for ISR, ELR, elections and AlterPartition.

Each change is a version; brokers come to know versions late, and may skip some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tidelog.replication.isr.events import Outcome

NOBODY = -1


@dataclass(frozen=True)
class Version:
    replicas: tuple[int, ...]
    leader: int = NOBODY
    leader_epoch: int = 0
    partition_epoch: int = 0
    isr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    live: dict[int, int] = field(default_factory=dict)
    """Broker epochs of those that are not fenced."""


class Controller:
    checks_broker_epochs = True
    detects_unclean = True

    def __init__(self, replicas: Sequence[int], min_isr: int, *, is_fsynced: bool) -> None:
        self.min_isr = min_isr
        self._is_fsynced = is_fsynced
        self.registered = {node: node for node in replicas}
        self._next_broker_epoch = max(replicas) + 1
        self.now = Version(tuple(replicas), replicas[0], 1, 1, tuple(replicas), (), dict(self.registered))
        self.history = [self.now]

    def _put(self, now: Version, gone: int = NOBODY) -> None:
        """Fenced members leave, and whoever is gone; a leader is found, the ELR is kept, epochs are counted."""
        was = self.now
        isr = tuple(node for node in now.replicas if node in now.isr and node in now.live and node != gone)
        complete = [node for node in now.replicas if node in (*was.isr, *was.elr) and node != gone]
        leader = now.leader
        if not isr:
            leader = next((node for node in complete if node in now.live), NOBODY)
            isr = () if leader == NOBODY else (leader,)
        elif leader not in isr:
            leader = isr[0]
        elr = () if len(isr) >= self.min_isr else tuple(node for node in complete if node not in isr)
        now = replace(now, isr=isr, elr=elr, leader=leader)
        is_changed = (now.isr, now.elr, now.leader) != (was.isr, was.elr, was.leader)
        self.now = replace(
            now,
            leader_epoch=was.leader_epoch + (now.leader != was.leader),
            partition_epoch=was.partition_epoch + is_changed,
        )
        self.history.append(self.now)

    # -- brokers -----------------------------------------------------------------------------------------------------

    def fence(self, node: int) -> None:
        live = {other: epoch for other, epoch in self.now.live.items() if other != node}
        self._put(replace(self.now, live=live))

    def unfence(self, node: int) -> None:
        live = {**self.now.live, node: self.registered[node]}
        self._put(replace(self.now, live=live))

    def register(self, node: int, *, is_clean: bool) -> int:
        """A new process; its predecessor is fenced by this. Returns its broker epoch."""
        self.fence(node)
        if not is_clean and not self._is_fsynced and self.detects_unclean:
            self._put(self.now, gone=node)
        self.registered[node] = self._next_broker_epoch
        self._next_broker_epoch += 1
        return self.registered[node]

    def prefer(self, node: int) -> None:
        """Elects another member of the set."""
        if node in self.now.isr:
            self._put(replace(self.now, leader=node))

    @property
    def is_lost(self) -> bool:
        """Nobody is left that may lead without loss."""
        return not self.now.isr and not self.now.elr

    def elect_unclean(self, node: int) -> None:
        assert self.is_lost and node in self.now.live
        self._put(replace(self.now, isr=(node,), leader=node))

    # -- the set -----------------------------------------------------------------------------------------------------

    def alter(
        self, sender: int, leader_epoch: int, isr: Sequence[tuple[int, int]], partition_epoch: int
    ) -> tuple[Outcome, int, tuple[int, ...]]:
        now = self.now
        if leader_epoch != now.leader_epoch or sender != now.leader:
            return Outcome.AMBIGUOUS, -1, ()
        nodes = tuple(node for node, _ in isr)
        if partition_epoch != now.partition_epoch:
            is_done = partition_epoch == now.partition_epoch - 1 and sorted(nodes) == sorted(now.isr)
            return (Outcome.APPLIED, now.partition_epoch, now.isr) if is_done else (Outcome.AMBIGUOUS, -1, ())
        if not all(self._is_admitted(node, epoch) for node, epoch in isr):
            self.now = replace(now, partition_epoch=now.partition_epoch + 1)
            self.history.append(self.now)
            return Outcome.PROVEN_NOT_APPLIED, self.now.partition_epoch, now.isr
        self._put(replace(now, isr=nodes))
        if self.now.leader_epoch != leader_epoch:
            return Outcome.AMBIGUOUS, -1, ()
        return Outcome.APPLIED, self.now.partition_epoch, self.now.isr

    def _is_admitted(self, node: int, broker_epoch: int) -> bool:
        known = self.now.live.get(node)
        return known is not None and (known == broker_epoch or not self.checks_broker_epochs)
