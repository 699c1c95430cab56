"""Copies of damaged batches: finds what a log has of a batch that another replica has lost.

A batch is named as its catalog row names it, by offset, leader epoch and digest of all its bytes. The offset alone is
not enough: two leader epochs may have written different batches there, and the wrong one, put in place, would be a
record that nobody committed. Where the catalog row is lost as well, the batch committed at that offset is fetched.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model.holdings import Holding
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.rows import Row
from tidelog.storage.segment import Damage, Segment


class Identity(NamedTuple):
    """The identity of a batch, from its row in the catalog (the index file of its segment). If the row is lost, `epoch`
    is -1 and `digest` empty."""

    offset: int
    epoch: int = -1
    digest: bytes = b""

    @property
    def is_known(self) -> bool:
        return bool(self.digest)


def identity_at(log: PartitionLog, offset: int) -> Identity:
    """Returns the identity of the batch that holds `offset`; without epoch and digest if its catalog row is lost."""
    entry = next(log.entries(offset), None)
    if isinstance(entry, Row) and entry.base_offset <= offset:
        return Identity(entry.base_offset, entry.epoch, entry.digest)
    return Identity(offset)


def find_copy(log: PartitionLog, identity: Identity) -> tuple[Holding, bytes]:
    """Returns whether this log has the wanted batch, and its bytes if they are undamaged. Reads one batch. Raises
    `Overloaded`."""
    if identity.offset < log.log_start_offset:
        return Holding.DELETED, b""
    # DONT_HAVE is the answer by which a new leader may truncate. It is given only where this log excludes the batch:
    # behind its end, or by a sound row of another one.
    if identity.offset >= log.log_end_offset:
        return Holding.DONT_HAVE, b""
    for part in log.parts(identity.offset):
        if isinstance(part, Damage):
            return _lost(log, part, identity), b""
        if part.end_offset > identity.offset:
            return _in_segment(log, part, identity)
    return Holding.UNKNOWN, b""


def _in_segment(log: PartitionLog, segment: Segment, identity: Identity) -> tuple[Holding, bytes]:
    entry = next(segment.entries(identity.offset), None)
    if entry is None:
        return Holding.UNKNOWN, b""
    if isinstance(entry, Damage):
        return _lost(log, entry, identity), b""
    if identity.is_known and entry.digest != identity.digest:
        # One leader gives an offset out once in its epoch. If one offset and epoch have two digests, one of the rows
        # lies, and it may be ours: that denies nothing.
        is_contradiction = (entry.base_offset, entry.epoch) == (identity.offset, identity.epoch)
        return (Holding.UNKNOWN if is_contradiction else Holding.DONT_HAVE), b""
    # Verified before it leaves: elsewhere a damaged copy would be refused by its digest, after all its bytes were sent.
    extent = log.extent(entry.base_offset, 1, log.log_end_offset)
    return (Holding.HAVE, bytes(extent.data)) if extent.data else (Holding.HAVE_FAULTY, b"")


def _lost(log: PartitionLog, damage: Damage, identity: Identity) -> Holding:
    """Adds the damage that holds a wanted batch, whose catalog row is lost here, to the log's list. Returns UNKNOWN if
    the batch is wanted by its digest, since it may or may not be the lost one; else HAVE_FAULTY."""
    # Whoever asked has found damage that this broker's own scrubber may be hours away from.
    log.damage.note(damage)
    return Holding.UNKNOWN if identity.is_known else Holding.HAVE_FAULTY
