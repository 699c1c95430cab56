"""A new leader settles damage at the end of its log before its epoch begins (the CTRL paper's rule, for in-sync sets).

Below the high watermark everything is committed: a batch damaged there is repaired from any replica that has it,
however long that takes, and nothing else waits. At or above the high watermark a damaged batch may be committed or not,
and the leader cannot tell by itself: its high watermark may be older than the last commit. The leader must know before
it appends, since all that it appends comes behind the batch; and before it fixes the start offset of its epoch. It asks
the other replicas about each damaged batch:

    answer     from                            decision
    have       any replica                     the batch's digest proves the copy; the batch is put back
    dont have  one member                      not committed, as a commit takes every member: truncate there
    faulty     every other member              taken as committed; from fewer members: wait for another answer
    faulty     a replica that knows the commit the leader begins behind it, and it waits for its repair
    deleted    any replica                     committed, as below its high watermark: it is left to its repair

"Dont have" proves that only from a *member* of the ISR or the ELR under which this leader was elected, since these hold
everything committed. Any other replica may lack a committed batch. The decisions are right in any order: a truncation
takes away nothing that is committed, and what a copy proves stays true.

*Faulty* means that the same batch is damaged there, too: its index entry is intact and has the same digest. If every
other member answers so, all hold the index entry of the batch, so to treat it as committed loses nothing: every later
leader has the same entry. The batch keeps its offset, fetches of it are answered with an error, and the epoch begins.
So a batch that a power cut has torn on all members at once does not block the partition. A member that has not answered
may have the batch intact, or lack it, and is waited for. A follower with a damaged batch acknowledges nothing from
there on until it hears that the batch is committed: so the leader has to begin behind it, or, if no sound copy is left,
would wait for that follower for ever.

Nothing is truncated later in the epoch: the same (epoch, offset) would name two batches, and followers could not see
it. A leader that finds damage above its high watermark during its epoch has another replica elected, which settles it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.model.holdings import Holding


class Answered(msgspec.Struct, frozen=True):
    """Event: the answer of another replica about the damaged batch at `offset`."""

    node: int
    broker_epoch: int
    """The broker epoch of the answering process."""
    leader_epoch: int
    """The leader epoch that the answering replica has adopted."""
    high_watermark: int
    """The high watermark that the answering replica knows."""
    offset: int
    holding: Holding
    is_named: bool = True
    """True if the request named the batch by its digest; False if it asked for any batch at that offset."""


class Repaired(msgspec.Struct, frozen=True):
    """Event: the batch at `offset` can be read again."""

    offset: int


class TruncatedAt(msgspec.Struct, frozen=True):
    """Event: a `TruncateAt` was carried out durably; the log ends at `end`."""

    log_end_offset: int


class MembersLost(msgspec.Struct, frozen=True):
    """Event: members have lost their logs or disks since this replica became the leader."""

    nodes: frozenset[int]


SettlementEvent = Answered | Repaired | TruncatedAt | MembersLost


class PutBack(msgspec.Struct, frozen=True):
    """Effect: write the copy of the batch that came with this answer in place of the damaged one; then report
    `Repaired` if that succeeded."""

    offset: int


class TruncateAt(msgspec.Struct, frozen=True):
    """Effect: truncate the log durably before the batch at `offset`, then report `TruncatedAt`. Neither this batch nor
    what follows was committed."""

    offset: int


SettlementEffect = PutBack | TruncateAt


class Settlement:
    """The damaged batches of one new leader, each *undecided* until it is repaired, truncated or taken as committed.
    Invariant: every undecided batch is at or above the high watermark, and below the log's end."""

    def __init__(
        self, leader_epoch: int, members: Mapping[int, int], high_watermark: int, damaged: Mapping[int, int]
    ) -> None:
        """Begins with all damaged batches at or above the high watermark undecided.

        `members` are the *other* members of ISR and ELR, with their broker epochs in the metadata that made this broker
        the leader; `damaged` has the end offset of each damaged batch by its base offset.
        """
        self.committed_end = high_watermark
        """The high watermark with which the leader may begin. Everything below is known to be committed, from answers
        of members, or of a replica that has the same batch below its own high watermark."""
        self._leader_epoch = leader_epoch
        self._members = dict(members)
        self._high_watermark = high_watermark
        # Below the high watermark everything is committed, and left to its repair: nothing waits for it.
        self._open = {offset: end for offset, end in damaged.items() if offset >= high_watermark}
        self._ends = dict(self._open)
        """The end offset of each damaged batch by its base offset, decided or not, as long as it is in the log."""
        self._faulty_at: dict[int, set[int]] = {}
        """For each undecided batch, by its offset: the members that have answered that their copy is damaged, too."""
        self._lost: frozenset[int] = frozenset()
        # Nobody's word could ever prove that a batch is not committed. To take it for committed is always safe.
        if not members:
            self._learn_faulty()

    @property
    def open(self) -> list[int]:
        """Returns the offsets of the undecided batches, in order: those neither repaired, nor truncated, nor taken as
        committed."""
        return sorted(self._open)

    @property
    def is_settled(self) -> bool:
        """True if every damaged batch is repaired, truncated or taken as committed, so that the leader may fix the
        start offset of its epoch, and append."""
        return not self._open

    @property
    def awaited(self) -> frozenset[int]:
        """Returns the members whose answer about the first undecided batch may still decide it."""
        if not self._open:
            return frozenset()
        # A member that has the first batch damaged as well gains nothing from leading in this one's place, whatever it
        # has behind it: it would wait for the same members. So a leader makes way only for one of the others.
        return frozenset(self._members) - self._lost - self._faulty_at.get(min(self._open), set())

    def step(self, event: SettlementEvent) -> list[SettlementEffect]:
        """Takes an answer, or the result of an effect; returns the effects."""
        match event:
            case Repaired(offset):
                self._open.pop(offset, None)
                return []
            case TruncatedAt(end):
                self._open = {offset: batch_end for offset, batch_end in self._open.items() if offset < end}
                self._ends = {offset: batch_end for offset, batch_end in self._ends.items() if offset < end}
                return []
            case MembersLost(nodes):
                # They will never say more than that they do not know, and lead nobody before they are filled again: to
                # wait for them would be to wait for ever.
                self._lost |= nodes
                self._learn_faulty()
                return []
            case Answered():
                return self._on_answer(event)

    def _on_answer(self, answer: Answered) -> list[SettlementEffect]:
        # First what the answer proves committed: an offset below that is left to its repair, whatever is said of it.
        proved_end = self._proved_committed(answer)
        self.committed_end = max(self.committed_end, 0 if proved_end is None else proved_end)
        # A high watermark that proves nothing may be another log's. To leave a batch to its repair for it is safe; to
        # begin the epoch with it would call batches committed that are not.
        self._learn_committed(max(answer.high_watermark if proved_end is None else proved_end, self.committed_end))
        if answer.offset not in self._open:
            return []
        match answer.holding:
            case Holding.HAVE:
                # From any replica: the batch's digest proves the copy.
                return [PutBack(answer.offset)]
            case Holding.DELETED:
                # Only what is committed is ever deleted.
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
        # The same life: a later one may have lost what the member had. And this leader epoch: before the member adopts
        # it, an earlier leader can still have the batch acknowledged there, after the denial, and commit it.
        is_member = self._members.get(answer.node) == answer.broker_epoch
        return is_member and answer.leader_epoch == self._leader_epoch

    def _is_of_a_member(self, answer: Answered) -> bool:
        """Returns True if the answer comes from a member that follows this leader epoch, and its broker epoch is the
        one in the metadata or a later one."""
        # A later life is as good here, since what it holds it has. But in an earlier leader's epoch, that leader could
        # still have it truncate the batch.
        member_epoch = self._members.get(answer.node)
        return (
            member_epoch is not None
            and answer.broker_epoch >= member_epoch
            and answer.leader_epoch == self._leader_epoch
        )

    def _proved_committed(self, answer: Answered) -> int | None:
        """Returns the offset below which an answer proves everything to be committed; None if it proves nothing."""
        # A member follows this leader epoch, so no later leader has moved its high watermark.
        if self._is_of_a_member(answer):
            return answer.high_watermark
        # Anybody else's may be another log's: while this leader settles, a later one may have committed another batch
        # at that offset. But a replica with the very same batch, whole or not, has the same log up to its end, since
        # equal batches have one past; and what of that is below its high watermark is committed.
        is_same = answer.holding in (Holding.HAVE, Holding.HAVE_FAULTY) and answer.is_named
        end = self._ends.get(answer.offset)
        return min(end, answer.high_watermark) if is_same and end is not None else None

    def _count_faulty(self, answer: Answered) -> None:
        self._faulty_at.setdefault(answer.offset, set()).add(answer.node)
        self._learn_faulty()

    def _learn_faulty(self) -> None:
        """Takes as committed each batch that is damaged on every member, apart from members that have lost
        their logs."""
        # All before such a batch is committed with it, since a log has no other past.
        awaited = self._members.keys() - self._lost
        ends = [end for offset, end in self._open.items() if awaited <= self._faulty_at.get(offset, set())]
        self.committed_end = max([self.committed_end, *ends])
        self._learn_committed(self.committed_end)

    def _learn_committed(self, end: int) -> None:
        self._high_watermark = max(self._high_watermark, end)
        self._open = {offset: batch_end for offset, batch_end in self._open.items() if offset >= self._high_watermark}
