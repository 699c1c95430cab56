"""The files of a Paxos replica, as its disk gave them back (`opening`)."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.broker.paxos.comparison import AppliedRow, Comparison
from tidelog.broker.paxos.journal import ReplicaMetainfo, decode_floor
from tidelog.storage.load_report import LoadReport
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.scan import BadEnd
from tidelog.storage.slot_store import SlotStore, StoredSlots


@dataclass(frozen=True, slots=True)
class ReplicaFiles:
    """The files that a replica's disk gave back."""

    log: PartitionLog
    store: SlotStore
    stored: StoredSlots
    metainfo: ReplicaMetainfo
    report: LoadReport
    beyond: tuple[AppliedRow, ...] = ()
    """The rows of the log behind the journal's floor."""
    unnamed: tuple[tuple[int, int], ...] = ()
    """(base offset, leader epoch) of rows there that name no position."""
    forgotten: AppliedRow | None = None
    """The first of these that the journal has lost."""
    bad_end: BadEnd = BadEnd.KEEP
    """The treatment of a bad end of the journal."""

    def comparison(self) -> Comparison:
        """Returns what of the log is to be compared."""
        # From the first row that is forgotten on, nothing is shown before it is compared.
        hidden = [] if self.forgotten is None else [self.forgotten.base_offset]
        doubted_to = 0
        floor = None if self.stored.floor is None else decode_floor(self.stored.floor[1])
        # A restart begins again where the comparison with other logs had come to.
        if floor is not None and floor.hidden_from >= 0:
            hidden.append(floor.hidden_from)
            doubted_to = floor.next_offset
        return Comparison(self.beyond, min(hidden, default=None), self.unnamed, doubted_to)

    @property
    def is_offline(self) -> bool:
        """True if the log or the journal cannot be written to."""
        return self.log.offline_reason is not None or self.store.offline_reason is not None

    def may_vote_as(self, engine_id: int) -> bool:
        """Returns True if this disk may vote under the id: it is one, and the disk has not forgotten what it promised
        under it. Ids rise: whatever the metadata may still say, all up to the forgotten one are dead."""
        return engine_id > self.metainfo.forgotten_id

    def former_ids(self, engine_id: int) -> tuple[int, ...]:
        """Returns the other ids under which the journal has voted, or may have, and forgotten nothing."""
        ids = dict.fromkeys((*self.metainfo.former_ids, self.metainfo.engine_id))
        return tuple(former_id for former_id in ids if former_id != engine_id and self.may_vote_as(former_id))
