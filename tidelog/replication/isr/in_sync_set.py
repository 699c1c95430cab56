"""The in-sync set of a partition as its leader knows it: the set in force at the controller, and a requested change.

A change is requested together with the partition epoch, which the controller compares and sets. From the request until
it is known which set is in force, the leader commits only records that all members of *both* sets have acknowledged:
the members of the **maximal** set. So it never matters when, or whether, the controller applied the change, and a
leader elected from its set holds everything committed.

An answer proves little, since an attempt that timed out may be applied later. Only a newer partition epoch, in metadata
or in an answer, settles a change. Until then it stays pending, and is repeated unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.replication.isr.events import NO_BROKER_EPOCH, AlterPartition, AlterPartitionAnswered, Outcome


class InSyncSet:
    """The ISR in force, and at most one pending change with at most one `AlterPartition` request in flight."""

    def __init__(self, isr: Sequence[int], partition_epoch: int, retry_ms: int) -> None:
        self.committed = tuple(isr)
        self.partition_epoch = partition_epoch
        self._retry_ms = retry_ms
        self._proposed: tuple[tuple[int, int], ...] = ()
        self._attempts = 0
        self._in_flight: int | None = None
        self._retry_at_ms = 0

    @property
    def maximal(self) -> tuple[int, ...]:
        """Returns every replica that may be in the controller's ISR: the members in force and those of the pending
        change."""
        # Where members are to leave, this is the committed set: they are waited for until the controller lets them go.
        if not self._proposed:
            return self.committed
        return self.committed + tuple(node for node, _ in self._proposed if node not in self.committed)

    @property
    def is_pending(self) -> bool:
        """Returns True if a change was requested and it is not known whether the controller applied it."""
        return bool(self._proposed)

    def may_ask(self, now_ms: int) -> bool:
        return not self.is_pending and now_ms >= self._retry_at_ms

    def ask(self, isr: Sequence[int], broker_epochs: Mapping[int, int]) -> AlterPartition:
        """Returns the request for another ISR. Its members count as possible members from now on."""
        assert not self.is_pending
        # The new members count from here on, whether or not the request arrives. A leader or member that is fenced just
        # now has no broker epoch here, and the controller does not compare it.
        self._proposed = tuple((node, broker_epochs.get(node, NO_BROKER_EPOCH)) for node in isr)
        return self._attempt()

    def retry(self, now_ms: int) -> AlterPartition | None:
        """Returns the next attempt at the pending change, or None if none is due yet."""
        if not self.is_pending or self._in_flight is not None or now_ms < self._retry_at_ms:
            return None
        return self._attempt()

    def _attempt(self) -> AlterPartition:
        assert self.is_pending and self._in_flight is None
        self._attempts += 1
        self._in_flight = self._attempts
        # Every attempt names the partition epoch of the first, so at most one of them is ever applied.
        return AlterPartition(self._attempts, self._proposed, self.partition_epoch)

    def answered(self, answer: AlterPartitionAnswered) -> None:
        """Records the result of an attempt. The next attempt, or the next change after a refusal, has to wait for
        `retry_ms`."""
        if answer.attempt == self._in_flight:
            self._in_flight = None
            self._retry_at_ms = answer.now_ms + self._retry_ms
        # A refusal as stale is ambiguous, too: an earlier attempt may be its cause. To drop the change for it would let
        # the leader commit without a member that the controller has already taken in, and may elect.
        if answer.outcome is not Outcome.AMBIGUOUS:
            self.adopt(answer.isr, answer.partition_epoch)
        if answer.outcome is Outcome.APPLIED:
            self._retry_at_ms = 0

    def adopt(self, isr: Sequence[int], partition_epoch: int) -> None:
        """Takes over the controller's ISR if its partition epoch is newer, which settles the pending change."""
        # The controller compares and sets: what was asked for under an older epoch was applied before this one began,
        # or never will be. A late answer must not bring back an older set.
        if partition_epoch > self.partition_epoch:
            self.committed, self.partition_epoch = tuple(isr), partition_epoch
            self._proposed, self._in_flight = (), None
