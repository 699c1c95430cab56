"""The files of a Paxos replica as they were read from the disk (`opening`)."""

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
    """The log and the journal of a replica, and what was found when they were opened."""

    log: PartitionLog
    store: SlotStore
    stored: StoredSlots
    metainfo: ReplicaMetainfo
    report: LoadReport
    beyond: tuple[AppliedRow, ...] = ()
    """Rows of the log that name a position at or behind the journal's floor."""
    unnamed: tuple[tuple[int, int], ...] = ()
    """(base offset, leader epoch) of the log's rows behind the floor that name no position."""
    forgotten: AppliedRow | None = None
    """The first row of `beyond` whose value the journal had durably and has lost; None if there is none."""
    bad_end: BadEnd = BadEnd.KEEP
    """How a damaged end of the journal is treated: kept or truncated."""

    def comparison(self) -> Comparison:
        """Returns the comparison of this log with the values that will be applied again."""
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
        """Returns True if this disk may vote under the voter id `engine_id`. Later ids are higher, and this disk has
        forgotten its promises under all ids up to `metainfo.forgotten_id`."""
        return engine_id > self.metainfo.forgotten_id

    def former_ids(self, engine_id: int) -> tuple[int, ...]:
        """Returns the ids other than `engine_id` under which this journal may have voted, without having forgotten its
        promises."""
        ids = dict.fromkeys((*self.metainfo.former_ids, self.metainfo.engine_id))
        return tuple(former_id for former_id in ids if former_id != engine_id and self.may_vote_as(former_id))
