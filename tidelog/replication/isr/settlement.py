"""A new leader settles damage at the end of its log before its epoch begins (CTRL, for in-sync sets).

Below the high watermark everything is committed: what is damaged there is repaired from whoever has it, however long
that takes, and nothing else waits. At or above the high watermark a damaged batch may be committed or not, and the
leader cannot tell by itself: its high watermark may be older than what was committed. It must know before it appends,
for all it appends lies behind; and before it fixes where its epoch begins (LESO).

    have       from anybody: its digest proves it; the batch is put back
    dont have  from one member: not committed, since a commit takes every member of the set; the log is truncated there
    faulty     from every other member: committed, as far as anybody will ever know; from fewer: wait for another
    faulty, from anybody who knows that it is committed: the leader begins behind it, and it waits for its repair
    deleted, or a high watermark beyond it, from anybody: it is left to its repair, as all below the high watermark is

A denial proves that much only from a *member*: of the ISR or the ELR under which this leader was elected, since these
hold everything committed; in the same life (broker epoch), since a later one may have lost what it had; and once it has
adopted this leader's epoch, since from then on it acknowledges nothing to an earlier leader. Whoever else lacks the
batch just lacks it. The decisions go well in any order: a truncation takes away nothing that is committed, and what a
copy proves stays true.

*Faulty* means that the very same batch is damaged there, too: its row is sound and has the same digest. If every other
member says so, all hold what would be committed, so to call it committed takes nothing from anybody: whoever leads next
has its row as well. It keeps its offset, is answered with an error, and the epoch begins. That is how a batch which a
power cut has torn on all members at once is got over. One that says so must follow this leader epoch, or an earlier
leader could still have it truncate the batch; a later life is as good, since it has the row. While one member is silent
it may have the batch whole, or lack it, and it is waited for; unless it has lost its log, as the metadata tell: then it
will never say more than that it does not know, and leads nobody before it is filled again. A member that has said so
gains nothing from leading in this one's place: it would wait for the same member. So a leader makes way only while
somebody who is live has not said it (`awaited`).

A member's *high watermark* is taken as it is: it follows this leader epoch, so no later leader has moved it. Anybody
else's may be another log's, for while this leader settles, a later one may have committed another batch at that offset.
So it counts up to the batch that the answer names: if a replica has the very same batch, all before it is the same,
too, since equal batches have one past; and what of that stands below its high watermark is committed, in whichever
epoch that was learned. What stands behind stays open, to be asked for by its own name. A follower that has a batch
damaged, too, acknowledges nothing from there on until it hears that it is committed: so the leader has to begin behind
it, or, if no sound copy is left, would wait for that follower for ever.

Never is anything truncated later in the epoch: the same (epoch, offset) would name two batches, and followers could not
see it. So who finds damage above its high watermark then lets another be elected, which settles it.

If there is no other member, or none is left, nobody's word could ever prove that the batch is not committed. Then it is
taken for committed, which is always safe, and the leader begins with a high watermark behind it: or a follower that has
it damaged, too, would wait for ever to hear that, and no in-sync set could ever be large enough again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.model.holdings import Holding


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of another replica about the damaged batch at `offset`."""

    node: int
    broker_epoch: int
    """The broker epoch of the process that answers."""
    leader_epoch: int
    """The leader epoch that the answering replica has adopted."""
    high_watermark: int
    """The high watermark that the answering replica knows."""
    offset: int
    holding: Holding
    is_named: bool = True
    """The question named the batch by its digest; else it meant whatever is at that offset."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """The batch at `offset` can be read."""

    offset: int


@dataclass(frozen=True, slots=True)
class TruncatedAt:
    """A `TruncateAt` was carried out, durably: the log ends here."""

    log_end_offset: int


@dataclass(frozen=True, slots=True)
class MembersLost:
    """These have lost their logs, or disks, since this became the leader."""

    nodes: frozenset[int]


SettlementEvent = Answered | Repaired | TruncatedAt | MembersLost


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
    """The damaged batches of one new leader, until each is repaired, truncated or known to be committed. Invariant:
    every open offset is at or above the high watermark, and below the log's end."""

    def __init__(
        self, leader_epoch: int, members: Mapping[int, int], high_watermark: int, damaged: Mapping[int, int]
    ) -> None:
        """`members` are the *other* members of ISR and ELR, with the broker epochs of the metadata that made this the
        leader; `damaged` where damaged batches begin, and end."""
        self.committed_end = high_watermark
        """All below is committed, by the word of members, or of somebody who has the same batch below its high
        watermark: the leader may begin with this one."""
        self._leader_epoch = leader_epoch
        self._members = dict(members)
        self._high_watermark = high_watermark
        self._open = {at: end for at, end in damaged.items() if at >= high_watermark}
        self._ends = dict(self._open)
        """The same, decided or not, as long as they are in the log."""
        self._faulty_at: dict[int, set[int]] = {}
        """Members that have said of an open offset that the batch is damaged with them, too."""
        self._lost: frozenset[int] = frozenset()
        if not members:
            self._learn_faulty()

    @property
    def open(self) -> list[int]:
        """Offsets that are not decided, in order."""
        return sorted(self._open)

    @property
    def is_settled(self) -> bool:
        """The epoch may begin."""
        return not self._open

    @property
    def awaited(self) -> frozenset[int]:
        """Members whose word on the first open offset may still settle it. Later offsets do not matter: whoever has
        the first one damaged as well cannot begin before it is settled."""
        if not self._open:
            return frozenset()
        return frozenset(self._members) - self._lost - self._faulty_at.get(min(self._open), set())

    def step(self, event: SettlementEvent) -> list[SettlementEffect]:
        """Takes an event; what is to be done."""
        match event:
            case Repaired(offset):
                self._open.pop(offset, None)
                return []
            case TruncatedAt(end):
                self._open = {at: until for at, until in self._open.items() if at < end}
                self._ends = {at: until for at, until in self._ends.items() if at < end}
                return []
            case MembersLost(nodes):
                self._lost |= nodes
                self._learn_faulty()
                return []
            case Answered():
                return self._on_answer(event)

    def _on_answer(self, answer: Answered) -> list[SettlementEffect]:
        proved = self._proved_committed(answer)
        self.committed_end = max(self.committed_end, 0 if proved is None else proved)
        self._learn_committed(max(answer.high_watermark if proved is None else proved, self.committed_end))
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
            case Holding.HAVE_FAULTY if self._is_of_a_member(answer):
                self._count_faulty(answer)
                return []
            case _:
                return []

    def _is_binding(self, answer: Answered) -> bool:
        is_member = self._members.get(answer.node) == answer.broker_epoch
        return is_member and answer.leader_epoch == self._leader_epoch

    def _is_of_a_member(self, answer: Answered) -> bool:
        """It holds what it says that it holds for whoever leads next, in this life or a later one."""
        known = self._members.get(answer.node)
        return known is not None and answer.broker_epoch >= known and answer.leader_epoch == self._leader_epoch

    def _proved_committed(self, answer: Answered) -> int | None:
        """Returns the end of what an answer proves to be committed; None if it proves nothing.

        A replica that is no member proves it with the very batch that is damaged here, whole or not: so far its log is
        this one, and what of that is below its high watermark is committed. What lies behind may be another batch.
        """
        if self._is_of_a_member(answer):
            return answer.high_watermark
        is_same = answer.holding in (Holding.HAVE, Holding.HAVE_FAULTY) and answer.is_named
        end = self._ends.get(answer.offset)
        return min(end, answer.high_watermark) if is_same and end is not None else None

    def _count_faulty(self, answer: Answered) -> None:
        self._faulty_at.setdefault(answer.offset, set()).add(answer.node)
        self._learn_faulty()

    def _learn_faulty(self) -> None:
        """With the last member's word a batch is committed, and all before it, since a log has no other past."""
        awaited = self._members.keys() - self._lost
        ends = [end for at, end in self._open.items() if awaited <= self._faulty_at.get(at, set())]
        self.committed_end = max([self.committed_end, *ends])
        self._learn_committed(self.committed_end)

    def _learn_committed(self, end: int) -> None:
        self._high_watermark = max(self._high_watermark, end)
        self._open = {at: until for at, until in self._open.items() if at >= self._high_watermark}
