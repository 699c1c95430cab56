"""The decision which offsets of a partition are lost on all disks and can be given up, from the replicas' answers.

Replicas name damaged batches by their catalog rows, and each may have lost other rows. So the offsets that
any of them reports as damaged are divided wherever one of them knows that a batch begins or ends, and each piece is
decided by itself. It can be given up if every replica has answered that it has no good copy. A replica that cannot be
asked may have one, and has to be named by the operator (`even_though`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.broker.repair.repair_messages import DamageReply, Suspect
from tidelog.controller.decide_losses import DIGESTS_MAX, RANGES_MAX
from tidelog.controller.records import GivenUpRange
from tidelog.model.holdings import Holding
from tidelog.model.losses import AcceptedLoss, LossStatement
from tidelog.storage.copies import Identity

PIECES_MAX = 512
"""Maximum number of damaged batches, or runs of damaged offsets, that one command decides about."""
GOOD, DAMAGED, MISSING, DELETED = "good copy", "damaged", "missing", "deleted"
UNKNOWN, UNREACHABLE = "unknown", "unreachable"


@dataclass(slots=True)
class Piece:
    """A damaged batch; or damaged offsets of which no replica has a catalog row."""

    start: int
    end: int
    row: Suspect | None = None
    statements: dict[int, str] = field(default_factory=dict)
    """Status of this piece on each replica, by node id: good copy, damaged, missing, deleted, unknown or
    unreachable."""
    kept_because: str | None = None
    """Reason why the piece cannot be given up as lost; None if it can."""

    @property
    def identity(self) -> Identity:
        """The batch as other replicas are asked for it: offset, leader epoch and digest."""
        return Identity(self.start) if self.row is None else Identity(self.start, self.row.epoch, self.row.digest)


@dataclass(frozen=True, slots=True)
class LossReport:
    """The result for one partition. Nothing can be given up while there are `refusals`."""

    pieces: tuple[Piece, ...]
    refusals: tuple[str, ...]
    before: tuple[AcceptedLoss, ...]
    """Losses accepted earlier that overlap the requested offsets."""
    is_whole: bool = True
    """False if there is more damage than one command decides about: the command has to be repeated."""

    @property
    def lost(self) -> list[GivenUpRange]:
        """The ranges that can be given up. Adjacent pieces with the same answers of the replicas are joined."""
        ranges: list[GivenUpRange] = []
        for piece in self.pieces:
            if piece.kept_because is not None:
                continue
            said = tuple(LossStatement(node, status) for node, status in sorted(piece.statements.items()))
            digests = () if piece.row is None else (piece.row.digest.hex(),)
            last = ranges[-1] if ranges else None
            if last and (last.end, last.statements) == (piece.start, said) and len(last.digests) < DIGESTS_MAX:
                ranges[-1] = GivenUpRange(last.start, piece.end, said, (*last.digests, *digests))
            else:
                ranges.append(GivenUpRange(piece.start, piece.end, said, digests))
        return ranges[:RANGES_MAX]


def divided(replies: Iterable[DamageReply]) -> list[Piece]:
    """Returns the damaged offsets of all replies as pieces, divided where a replica knows that a batch begins
    or ends."""
    suspects = [suspect for reply in replies for suspect in reply.suspects]
    rows = {(suspect.start, suspect.end): suspect for suspect in reversed(suspects) if suspect.digest}
    edges = sorted({edge for suspect in suspects for edge in (suspect.start, suspect.end)})
    pieces = []
    for start, end in itertools.pairwise(edges):
        if any(suspect.start <= start and end <= suspect.end for suspect in suspects):
            pieces.append(Piece(start, end, rows.get((start, end))))
    return pieces


def status_of(holding: Holding, leader_epoch: int, piece: Piece, own: DamageReply | None) -> str:
    """Returns the status of a piece on a replica, from its answer. A replica that has lost the catalog row
    of these offsets as well answers UNKNOWN, but counts as damaged if its earlier reply `own` names them as damaged."""
    if holding is Holding.UNKNOWN and own is not None:
        is_damaged = any(suspect.start <= piece.start and piece.end <= suspect.end for suspect in own.suspects)
        return DAMAGED if is_damaged and leader_epoch >= 0 else UNKNOWN
    return _WORDS[holding]


_WORDS = {
    Holding.HAVE: GOOD,
    Holding.HAVE_FAULTY: DAMAGED,
    Holding.DONT_HAVE: MISSING,
    Holding.DELETED: DELETED,
    Holding.UNKNOWN: UNKNOWN,
}


def judge(
    pieces: Sequence[Piece],
    offsets: tuple[int, int] | None,
    replies: Mapping[int, DamageReply],
    even_though: Sequence[int],
    before: Sequence[AcceptedLoss],
    members: Sequence[int] = (),
) -> LossReport:
    """Returns which pieces can be given up, and what stands against it. `offsets` are the offsets [start, end) that the
    operator named, or None; `replies` are by node id. `members` of the ISR and ELR have every acknowledged record."""
    high_watermark = max((reply.high_watermark for reply in replies.values()), default=0)
    for piece in pieces:
        piece.kept_because = _why_kept(piece, offsets, high_watermark, members)
    silent = sorted(
        {
            node
            for piece in pieces
            for node, status in piece.statements.items()
            if piece.kept_because is None and status in (UNKNOWN, UNREACHABLE) and node not in even_though
        }
    )
    refusals = [
        f"broker {node} cannot be asked now, and may have a good copy: start it, or say --even-though {node}"
        for node in silent
    ]
    is_lost = any(piece.kept_because is None for piece in pieces)
    if not is_lost and not before:
        kept = next((piece.kept_because for piece in pieces), None)
        refusals.append(kept or _nothing(offsets))
    report = LossReport(tuple(pieces[:PIECES_MAX]), tuple(refusals), tuple(before), len(pieces) <= PIECES_MAX)
    lost_end = report.lost[-1].end if report.lost else 0
    if any(piece.kept_because is None and piece.end > lost_end for piece in pieces):
        return LossReport(report.pieces, report.refusals, report.before, is_whole=False)
    return report


def _why_kept(piece: Piece, offsets: tuple[int, int] | None, high_watermark: int, members: Sequence[int]) -> str | None:
    name = f"offsets {piece.start}-{piece.end - 1}"
    if offsets is not None and not offsets[0] <= piece.start < piece.end <= offsets[1]:
        return f"{name} are one batch, which is given up as a whole or not at all"
    good = sorted(node for node, status in piece.statements.items() if status == GOOD)
    if good:
        return f"broker {good[0]} has a good copy of {name}; the others are repaired from it"
    if piece.end > high_watermark:
        return _why_not_known(piece, name, members)
    if DELETED in piece.statements.values():
        return f"{name} were deleted"
    return None


def _why_not_known(piece: Piece, name: str, members: Sequence[int]) -> str:
    silent = [node for node in members if piece.statements.get(node) in (UNKNOWN, UNREACHABLE)]
    if not silent:
        return f"{name} are not known to be committed; the partition's leader finds out when it begins: ask again"
    named = ", ".join(map(str, sorted(silent)))
    return (
        f"{name} are the end of the log, damaged before it was known whether they are committed. Nobody leads before "
        f"broker {named} has said so: start it; if it does not come back, give it up with --votes, and then ask again"
    )


def _nothing(offsets: tuple[int, int] | None) -> str:
    where = "in this partition" if offsets is None else f"in offsets {offsets[0]}-{offsets[1] - 1}"
    return f"nothing is known to be damaged {where}"
