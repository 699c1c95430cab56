"""Logs that are truncated, or kept, with one rule removed: by followers, disks, and leaders that settle damage."""

from __future__ import annotations

from typing import Any

from tidelog.replication.isr.events import FetchDue, FollowerEffect, Truncate
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.settlement import Answered, Settlement, SettlementEffect, TruncateAt
from tidelog.sim.isr.disk import Disk

# -- followers ---------------------------------------------------------------------------------------------------------


class TruncateToHighWatermark(IsrFollower):
    """Cuts down to what it knows to be committed whenever the leader changes, as Kafka did before KIP-101."""

    def step(self, event: Any) -> list[FollowerEffect]:
        is_first = isinstance(event, FetchDue) and not self._is_aligned and self._truncating is None
        if is_first and self._high_watermark < self._log_end_offset:
            return self._truncate(Truncate(self._high_watermark))
        return super().step(event)


class OneRoundOnly(IsrFollower):
    """Truncates where the leader says, without a look at its own epochs (KIP-101 without KIP-279)."""

    def _on_diverging(self, epoch: int, end_offset: int) -> list[FollowerEffect]:
        if end_offset >= self._log_end_offset:
            return self._distrust("nothing to truncate")
        return self._truncate(Truncate(max(end_offset, self._log_start_offset)))


class AnyAnswer(IsrFollower):
    """Uses any answer of this epoch."""

    _since = -1

    def step(self, event: Any) -> list[FollowerEffect]:
        if isinstance(event, FetchDue) and self._since == -1:
            self._since = event.correlation
        return super().step(event)

    def _is_awaited(self, correlation: int) -> bool:
        is_free = self._truncating is None and self._appending is None and not self._is_distrusting
        return correlation >= self._since != -1 and is_free


class AnyAnswerThatFits(AnyAnswer):
    """The same, without the other checks that would notice: what one connection for each leader hides in Kafka."""

    def _on_answer(self, answer: Any) -> list[FollowerEffect]:
        self._is_aligned = False
        return super()._on_answer(answer)

    def _distrust(self, reason: str) -> list[FollowerEffect]:
        return []


# -- disks -------------------------------------------------------------------------------------------------------------


class RetriesSync(Disk):
    """Syncs again after a failure. The system, which has dropped what it could not write, says that all is well."""

    _hole: int | None = None

    def fail_sync(self) -> None:
        self._hole = self.kept if self._hole is None else self._hole

    def sync(self, to: int) -> None:
        self.durable = max(self.durable, to)
        self.kept = self.durable if self._hole is None else self._hole

    def open(self) -> None:
        if self._hole is not None:
            del self.log[self._hole :]
        self._hole = None
        super().open()


class CheckpointCuts(Disk):
    """Opens a log at its checkpoint of the high watermark: what lies behind is not known to be committed."""

    def open(self) -> None:
        del self.log[max(self.high_watermark, self.start) :]
        super().open()


class CutsAtDamage(Disk):
    """Opens a log up to its first damaged batch, as if that were a torn tail."""

    def open(self) -> None:
        if self.faulty:
            self.truncate(min(self.faulty))
        super().open()


# -- settling damage ---------------------------------------------------------------------------------------------------


class AnybodyDenies(Settlement):
    """Takes a denial from any replica, member or not."""

    def _is_binding(self, answer: Answered) -> bool:
        is_other_life = self._members.get(answer.node, answer.broker_epoch) != answer.broker_epoch
        return not is_other_life and answer.leader_epoch == self._leader_epoch


class AnyLifeDenies(Settlement):
    """Takes a denial from a member that lives again, and may have lost what it had."""

    def _is_binding(self, answer: Answered) -> bool:
        return answer.node in self._members and answer.leader_epoch == self._leader_epoch


class AnyEpochDenies(Settlement):
    """Takes a denial from a member that may still acknowledge to an earlier leader."""

    def _is_binding(self, answer: Answered) -> bool:
        return self._members.get(answer.node) == answer.broker_epoch


class SettlesNothing(Settlement):
    """Cuts what is damaged at or above the high watermark, and asks nobody."""

    def _on_answer(self, answer: Answered) -> list[SettlementEffect]:
        return [TruncateAt(answer.offset)] if answer.offset in self._open else []


class AnybodysHighWatermark(Settlement):
    """Begins with the high watermark of whoever answers, whichever log that is of."""

    def _is_of_a_member(self, answer: Answered) -> bool:
        return True


class MinorityIsAll(Settlement):
    """Takes what one member has damaged, too, for what all have."""

    def _count_faulty(self, answer: Answered) -> None:
        self.committed_end = max(self.committed_end, self._open[answer.offset])
        self._learn_committed(self.committed_end)
