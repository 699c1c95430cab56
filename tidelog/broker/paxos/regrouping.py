"""A replica enters the era that an operator's word has begun: its log goes on from what was left of it.

A partition whose majority has lost its votes elects nobody for ever. An operator may have it go on (`Regrouping`): the
replicas that are left get new ids, and all of them together, not a majority, elect the first leader of the era. Its
fill is the union of what they show: for each position what is learned, else the value that was accepted under the
highest number, else a NOP. What it finds is accepted by all of them, and so are VOTERS behind it, by which a majority
of them decides from then on. docs/replication-paxos.md has the argument.

*Who is left* was asked before the decision, and enters with all that it has. Its journal stays as it is, is true as far
as it goes, and promises nothing below the era. Where no journal accounts for all that the longest log holds, that log
is the evidence: what a log holds was chosen. Its journal then begins behind its log, at a floor (the *source*), and the
others copy, as from any floor.

What a log holds beyond its journal is compared with the union in this life of the replica, as ever, but kills no id any
more: what was forgotten, was under the old one.

*Who was given up* may come back. Its journal speaks of an era that ended otherwise, so it begins anew, and its log is
truncated to where those who were left ended: below that both hold what was chosen before.

Either is done once, before the replica takes part: the floor is on the disk before the metainfo says that the era has
begun, and so is the truncated log. A crash between has it done once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import structlog
from msgspec import structs

from tidelog.broker.paxos.comparison import birth_of
from tidelog.broker.paxos.context import voters_of
from tidelog.broker.paxos.files import ReplicaFiles
from tidelog.broker.paxos.journal import Floor, ReplicaMetainfo, era_begin
from tidelog.model.cluster import PartitionInfo, Regrouping
from tidelog.model.ids import PartitionId
from tidelog.replication.paxos.state import Metadata, Status
from tidelog.replication.paxos.voters import encode_voters
from tidelog.storage.log_opener import LogOpener
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.rows import Row
from tidelog.storage.slot_store import SlotStore

logger = structlog.get_logger("tidelog.paxos")


@dataclass(frozen=True, slots=True)
class Era:
    """The era of a partition, as one replica enters it."""

    epoch: int
    previous: int
    regrouping: Regrouping
    node_id: int

    @property
    def voters(self) -> bytes:
        """Returns the voters that are left, encoded."""
        return encode_voters(voters_of(self.regrouping.members))

    def keeps(self, files: ReplicaFiles, engine_id: int) -> bool:
        """Returns True if this replica is one of those who were left, and has forgotten nothing since it was asked."""
        is_named = engine_id in [member.engine_id for member in self.regrouping.members]
        # A replica that has forgotten something since it was asked would show less than the operator has decided on.
        return is_named and files.metainfo.era == self.previous and files.may_vote_as(engine_id)


def era_of(info: PartitionInfo, node_id: int) -> Era | None:
    """Returns the era that a replica is to be in; None if the partition is in its first."""
    begun = [regrouping for regrouping in info.regroupings if regrouping.members]
    return Era(*info.eras, begun[-1], node_id) if begun else None


def enter(opener: LogOpener, files: ReplicaFiles, era: Era, engine_id: int, now_ms: int) -> ReplicaFiles:
    """Enters the era, unless the replica is in it. Blocking. Raises as `LogOpener.open_journal`, `OSError`."""
    # Entered once: a second time would take back what was promised in this era.
    if files.metainfo.era == era.epoch:
        return files
    partition_id = files.log.identity
    is_kept = era.keeps(files, engine_id)
    logger.warning("a replica enters a new era", partition=str(partition_id), era=era.epoch, is_kept=is_kept)
    if not is_kept:
        return _begin_anew(opener, files, era, partition_id, now_ms)
    if era.regrouping.source == era.node_id:
        # The floor before the metainfo: a crash in between has it done once more.
        _set_floor(files.store, files.log, era)
        files = replace(files, beyond=(), unnamed=(), forgotten=None)
    metadata = structs.replace(
        files.metainfo.metadata,
        # It votes under a new id, which has promised nothing yet.
        status=Status.EMPTY,
        # Numbers of earlier eras are fenced here, so no leader of before can write any more.
        promised=max(files.metainfo.metadata.promised, era_begin(era.epoch)),
        may_forget=False,
        founders=(),
    )
    metainfo = structs.replace(
        files.metainfo,
        engine_id=engine_id,
        metadata=metadata,
        founders=era.voters,
        forgotten_id=_last_id(files.metainfo),
        former_ids=(),
        believed_to=files.log.log_end_offset,
        era=era.epoch,
    )
    files.store.store_metainfo(msgspec.msgpack.encode(metainfo))()
    store, stored = opener.open_journal(partition_id, now_ms, bad_end=files.bad_end)
    return replace(files, store=store, stored=stored, metainfo=metainfo)


def _set_floor(store: SlotStore, log: PartitionLog, era: Era) -> None:
    position = max(era.regrouping.position, store.floor_position)
    ends = (log.log_end_offset, log.log_start_offset)
    floor = Floor(position, era.regrouping.birth, *ends, voters=era.voters, era=era.epoch)
    store.set_floor(position, msgspec.msgpack.encode(floor))
    flush = store.begin_flush()
    flush.run()
    store.end_flush(flush, None)


def _begin_anew(
    opener: LogOpener, files: ReplicaFiles, era: Era, partition_id: PartitionId, now_ms: int
) -> ReplicaFiles:
    log = files.log
    end = max(era.regrouping.end, log.log_start_offset)
    if log.log_end_offset > end:
        logger.error("a log is truncated to where it was regrouped", partition=str(partition_id), offset=end)
        # Below `end` both hold what was chosen; behind it this log speaks of an era that ended otherwise.
        log.truncate_to(end, high_watermark=end, now_ms=now_ms)
    forgotten_id, renewals = _last_id(files.metainfo), opener.renewals
    store, stored = opener.open_journal(partition_id, now_ms, anew=True)
    metainfo = ReplicaMetainfo(
        0,
        Metadata(store.incarnation),
        era.voters,
        forgotten_id=forgotten_id,
        renewals=renewals,
        believed_to=log.log_end_offset,
        era=era.epoch,
    )
    store.store_metainfo(msgspec.msgpack.encode(metainfo))()
    return ReplicaFiles(log, store, stored, metainfo, files.report, bad_end=files.bad_end)


def _last_id(metainfo: ReplicaMetainfo) -> int:
    return max(metainfo.engine_id, *metainfo.former_ids, metainfo.forgotten_id)


def end_of_rows(log: PartitionLog) -> tuple[int, int, bool]:
    """Returns the position behind the last batch that names one, its birth, and whether the log ends with it. Blocking,
    for one segment or as many as name none; raises `Overloaded`."""
    rows = [entry for entry in log.entries(log.segments[-1].base_offset) if isinstance(entry, Row)]
    # Copied batches name no position, and may fill the last segment.
    if not any(row.number > 0 for row in rows):
        rows = [entry for entry in log.entries(log.log_start_offset) if isinstance(entry, Row)]
    named = [row for row in rows if row.number > 0]
    if not named:
        return 0, 0, log.log_end_offset == log.log_start_offset
    return named[-1].position + 1, birth_of(named[-1].number), named[-1].next_offset == log.log_end_offset
