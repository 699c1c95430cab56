"""Ballot numbers of a Paxos partition. The controller appoints the leader; the ballot encodes its leader epoch.

A partition has no elections of its own. The controller names its leader, in a leader epoch that it gives to nobody
else, and a number is made of that epoch:

    (leader epoch << 24) | (attempt << 16) | engine id

A larger epoch makes every number larger, so a later leader wins against all earlier ones, whatever these still try. An
epoch needs several numbers because a term ends where the voters change, and after a round that went wrong; the
attempts count them. The batches carry the epoch alone.

A candidate that has lost to a larger epoch tries no more: it waits for the metadata.
"""

from __future__ import annotations

import asyncio

import structlog

from tidelog.broker.consensus.engine import Engine
from tidelog.model.ports import Entropy
from tidelog.replication.paxos.events import Demote, Elect, Lost
from tidelog.replication.paxos.numbers import NODE_BITS
from tidelog.replication.paxos.state import Status
from tidelog.replication.paxos.voters import Membership

ATTEMPT_BITS = 8
ATTEMPTS_MAX = (1 << ATTEMPT_BITS) - 1
AGAIN_S = 0.05
"""T in seconds: a failed attempt to be elected is repeated after a time drawn from [T, 2T)."""

logger = structlog.get_logger("tidelog.paxos")


def number_of(leader_epoch: int, attempt: int, engine_id: int) -> int:
    """Returns the ballot number of an attempt in a leader epoch; attempts count from 1."""
    assert leader_epoch >= 0 and 1 <= attempt <= ATTEMPTS_MAX and 0 < engine_id < 1 << NODE_BITS
    # The epoch in the high bits: a later leader's number exceeds all earlier ones, whatever these still try. The engine
    # id in the low ones: no two disks ever make the same number.
    return (leader_epoch << ATTEMPT_BITS | attempt) << NODE_BITS | engine_id


def epoch_of(number: int) -> int:
    """Returns the leader epoch that is encoded in a ballot number."""
    return number >> (ATTEMPT_BITS + NODE_BITS)


def number_after(leader_epoch: int) -> int:
    """Returns the smallest ballot number above all numbers of this leader epoch and of earlier ones."""
    return (leader_epoch + 1) << (ATTEMPT_BITS + NODE_BITS)


class BallotNumbers:
    """The attempts of one replica to be elected leader, and the ballot numbers of these attempts."""

    def __init__(self, engine: Engine, membership: Membership, entropy: Entropy, *, engine_id: int) -> None:
        self._engine = engine
        self._membership = membership
        self._entropy = entropy
        self._again: asyncio.TimerHandle | None = None
        self.leader_epoch: int | None = None
        """The leader epoch in which the controller has appointed this broker; None if it has not, or if a later leader
        has overtaken this one."""
        self.attempt = 0
        """The ballot number under which this replica leads, or campaigns now; 0 if it does neither."""
        self.engine_id = engine_id

    def seek(self, leader_epoch: int) -> None:
        """Campaigns in this leader epoch, for which the controller has appointed this replica."""
        self.leader_epoch = leader_epoch
        self.attempt = 0
        self._cancel()
        self.campaign()

    def abdicate(self) -> None:
        """Stops campaigning in this leader epoch, even while the metadata still name this replica as the leader."""
        self.leader_epoch = None
        self.attempt = 0
        self._cancel()

    def give_up(self) -> None:
        """Stops campaigning and ends the engine's term: the metadata name another leader, or none."""
        self.abdicate()
        self._engine.step(Demote())

    def campaign(self) -> None:
        """Asks the engine to be elected under a fresh ballot number; does nothing if not appointed or if an attempt is
        under way, and tries later while the disk may not vote or does not know the voters."""
        if self.leader_epoch is None or self.attempt or self._again is not None:
            return
        status = self._engine.node.replica.metadata.status
        # A candidate that does not know the voters could be elected by those of the past.
        if status is not Status.VOTING or not self.engine_id or not self._membership.is_known:
            self._try_again()
            return
        number = self.next_number()
        if number is None:
            logger.error("no number is left in this leader epoch", leader_epoch=self.leader_epoch)
            self.abdicate()
            return
        self.attempt = number
        self._engine.step(Elect(number))

    def next_number(self) -> int | None:
        """Returns the ballot number of the next attempt in this leader epoch; None if the epoch has no number left or
        is over."""
        # Durable before it was used, so no number is used twice, not even after a crash.
        issued = self._engine.node.replica.metadata.issued
        if self.leader_epoch is None or epoch_of(issued) > self.leader_epoch:
            return None
        attempt = 1
        if epoch_of(issued) == self.leader_epoch:
            attempt = (issued >> NODE_BITS) % (1 << ATTEMPT_BITS) + 1
        # One attempt more would run over into the next leader epoch, which may be another broker's.
        return None if attempt > ATTEMPTS_MAX else number_of(self.leader_epoch, attempt, self.engine_id)

    def begin_anew(self) -> None:
        """Forgets the attempt under way, since other voters decide now; the next attempt asks those."""
        self.attempt = 0
        self._cancel()

    def on_lost(self, lost: Lost) -> bool:
        """Notes that a ballot number was overtaken by a larger one; returns True if it was the number of this replica's
        current term or attempt."""
        # The end of an earlier attempt says nothing about this one.
        if lost.number != self.attempt:
            return False
        self.attempt = 0
        # A later leader is at work; another attempt in this epoch would only disturb it, and could not win.
        if self.leader_epoch is not None and epoch_of(lost.highest) > self.leader_epoch:
            self.leader_epoch = None
        self._try_again()
        return True

    def on_refused(self, number: int) -> None:
        """Schedules another attempt, since the engine could not begin one under this number."""
        if number == self.attempt:
            self.attempt = 0
            self._try_again()

    def _try_again(self) -> None:
        if self.leader_epoch is not None and self._again is None:
            delay_s = AGAIN_S * self._entropy.uniform(1, 2)
            self._again = asyncio.get_running_loop().call_later(delay_s, self._retry)

    def _retry(self) -> None:
        self._again = None
        self.campaign()

    def _cancel(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
