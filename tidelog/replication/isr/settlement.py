"""What a new leader does about damage at the end of its log, before its epoch begins (CTRL, for in-sync sets).

Below the high watermark everything is committed: what is damaged there is repaired from whoever has it, however long
that takes, and nothing else waits. At or above the high watermark a damaged batch may be committed or not, and the
leader cannot tell by itself: its high watermark may be older than what was committed. It must know before it appends,
for all it appends lies behind; and before it fixes where its epoch begins (LESO).

    have       from anybody: its digest proves it; the batch is put back
    dont have  from one member: not committed, since a commit takes every member of the set; the log is truncated there
    faulty     from anybody: says nothing; wait for another
    deleted, or a high watermark beyond it, from anybody: committed; it waits for its repair with the others below

A denial proves that much only from a *member*: of the ISR or the ELR under which this leader was elected, since these
hold everything committed; in the same life (broker epoch), since a later one may have lost what it had; and once it
has adopted this leader's epoch, since from then on it acknowledges nothing to an earlier leader. Whoever else lacks the
batch just lacks it. The decisions go well in any order: a truncation takes away nothing that is committed, and what a
copy proves stays true.

Never is anything truncated later in the epoch: the same (epoch, offset) would name two batches, and followers could not
see it. So who finds damage above its high watermark then lets another be elected, which settles it.

If there is no other member, nobody's word could ever prove that the batch is not committed. Then it is taken for
committed, which is always safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.model.holdings import Holding


@dataclass(frozen=True, slots=True)
class Answered:
    """What another replica says about the damaged batch at `offset`."""

    node: int
    broker_epoch: int
    """Of the process that answers."""
    leader_epoch: int
    """Which it has adopted."""
    high_watermark: int
    """What it knows to be committed."""
    offset: int
    holding: Holding


@dataclass(frozen=True, slots=True)
class Repaired:
    """The batch at `offset` can be read."""

    offset: int


@dataclass(frozen=True, slots=True)
class TruncatedAt:
    """A `TruncateAt` was carried out, durably: the log ends here."""

    log_end_offset: int


SettlementEvent = Answered | Repaired | TruncatedAt


@dataclass(frozen=True, slots=True)
class PutBack:
    """Put the copy that came with this answer in its place; then `Repaired`, if it went well."""

    offset: int


@dataclass(frozen=True, slots=True)
class TruncateAt:
    """Truncate the log before the batch at `offset`, durably; then `TruncatedAt`. Neither it nor what follows was
    committed."""

    offset: int


SettlementEffect = PutBack | TruncateAt


class Settlement:
    """One new leader's. Invariant: every open offset is at or above the high watermark, and below the log's end."""

    def __init__(
        self, leader_epoch: int, members: Mapping[int, int], high_watermark: int, damaged: Iterable[int]
    ) -> None:
        """`members` are the *other* members of ISR and ELR, with the broker epochs of the metadata that made this the
        leader; `damaged` the base offsets of damaged batches."""
        self._leader_epoch = leader_epoch
        self._members = dict(members)
        self._high_watermark = high_watermark
        self._open = {offset for offset in damaged if offset >= high_watermark} if members else set()

    @property
    def open(self) -> list[int]:
        """Offsets that are not decided, in order."""
        return sorted(self._open)

    @property
    def is_settled(self) -> bool:
        """The epoch may begin."""
        return not self._open

    def step(self, event: SettlementEvent) -> list[SettlementEffect]:
        """Takes an event; what is to be done."""
        match event:
            case Repaired(offset):
                self._open.discard(offset)
                return []
            case TruncatedAt(end):
                self._open = {offset for offset in self._open if offset < end}
                return []
            case Answered():
                return self._on_answer(event)

    def _on_answer(self, answer: Answered) -> list[SettlementEffect]:
        self._learn_committed(answer.high_watermark)
        if answer.offset not in self._open:
            return []
        match answer.holding:
            case Holding.HAVE:
                return [PutBack(answer.offset)]
            case Holding.DELETED:
                self._learn_committed(answer.offset + 1)
                return []
            case Holding.DONT_HAVE if self._is_binding(answer):
                return [TruncateAt(answer.offset)]
            case _:
                return []

    def _is_binding(self, answer: Answered) -> bool:
        is_member = self._members.get(answer.node) == answer.broker_epoch
        return is_member and answer.leader_epoch == self._leader_epoch

    def _learn_committed(self, end: int) -> None:
        self._high_watermark = max(self._high_watermark, end)
        self._open = {offset for offset in self._open if offset >= self._high_watermark}
