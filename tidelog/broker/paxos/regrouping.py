"""How a replica enters a new *era*: an operator has ordered that the partition go on from the replicas that are left.

A partition that has lost a majority of its votes can never elect a leader. An operator may have it go on
(`Regrouping`): the remaining replicas get new ids, and all of them together, not a majority, elect the first leader of
the era. That leader proposes the union of what they show: at each position the learned value, else the value accepted
under the highest number, else a NOP. These values are accepted by all of them, and so is a VOTERS value behind them,
from which on a majority decides. docs/replication-paxos.md has the proof.

*A remaining replica* was asked for its state before the decision (`state_of`), and enters with everything that it has.
Its journal stays as it is, and its promises below the era do not count. If no journal accounts for everything that the
longest log holds, that log is the evidence, since a log holds chosen values only. The journal of that replica (the
*source*) then begins behind its log, at a floor, and the other replicas copy its log.

Rows of a log behind its journal are compared with the union as after any restart, but do not revoke the vote: what was
forgotten was promised under the old id.

*A replica that was given up* may come back. Its journal describes an era that ended otherwise, so it is begun anew, and
its log is truncated to the end of the remaining replicas' logs: below that both hold chosen values.

Either is done once, before the replica takes part: the floor and the truncated log are durable before the metainfo says
that the era has begun. After a crash in between it is done again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import structlog
from msgspec import structs

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.paxos.comparison import birth_of
from tidelog.broker.paxos.context import voters_of
from tidelog.broker.paxos.files import ReplicaFiles
from tidelog.broker.paxos.journal import Floor, ReplicaMetainfo, era_begin
from tidelog.broker.repair.repair_messages import ReplicaState
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
    """An era of a partition (the time since an operator had it go on from what was left of it), and how one replica
    enters it. `epoch` is the leader epoch since when it holds, `previous` that of the era before."""

    epoch: int
    previous: int
    regrouping: Regrouping
    node_id: int

    @property
    def voters(self) -> bytes:
        """Returns the encoded voters that remain."""
        return encode_voters(voters_of(self.regrouping.members))

    def keeps(self, files: ReplicaFiles, engine_id: int) -> bool:
        """Returns True if this replica is one of those that remain, and has forgotten nothing since it was asked."""
        is_named = engine_id in [member.engine_id for member in self.regrouping.members]
        # A replica that has forgotten something since it was asked would show less than the operator has decided on.
        return is_named and files.metainfo.era == self.previous and files.may_vote_as(engine_id)


def era_of(info: PartitionInfo, node_id: int) -> Era | None:
    """Returns the era (since when the partition has gone on from what was left of it) that a replica on this broker has
    to be in, according to the metadata; None for the partition's first era."""
    begun = [regrouping for regrouping in info.regroupings if regrouping.members]
    return Era(*info.eras, begun[-1], node_id) if begun else None


def enter(opener: LogOpener, files: ReplicaFiles, era: Era, engine_id: int, now_ms: int) -> ReplicaFiles:
    """Has the replica enter the era (since when the partition goes on from what was left of it), unless it is already
    in it; returns the files as they are then. Blocking. Raises `ConfigError` if the journal's files are no slot store,
    or `OSError`."""
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


def state_of(engine: Engine, log: PartitionLog, *, partition_epoch: int, era: int, engine_id: int) -> ReplicaState:
    """Returns the state of a replica, by which an operator decides whether the partition goes on from what is left of
    it. Its disk votes under `engine_id`, 0 if it has none. Raises `Overloaded`."""
    node, replica = engine.node, engine.node.replica
    may_vote = bool(engine_id) and replica.metadata.status is Status.VOTING
    # Values that are only accepted may be chosen, so an operator has to know how far they reach.
    ends = [slot.value.base_offset + slot.value.count for slot in replica.slots.values() if slot.value.count]
    position, birth, is_named = end_of_rows(log)
    return ReplicaState(
        log.log_start_offset,
        log.log_end_offset,
        log.tail.epoch,
        partition_epoch,
        era,
        (*engine.former_ids, engine_id) if may_vote else (),
        node.coordinator is not None,
        replica.applied.next_offset,
        max(ends, default=replica.applied.next_offset),
        replica.end,
        position,
        birth,
        is_named,
        unheard=node.unheard,
        unsettled=min(node.unsettled, default=-1),
    )


def end_of_rows(log: PartitionLog) -> tuple[int, int, bool]:
    """Returns the position behind the last batch whose row names one, the birth of its value (the ballot number that
    first proposed it), and whether the log ends with that batch. Blocking; reads the last segment, or all if that names
    none. Raises `Overloaded`."""
    rows = [entry for entry in log.entries(log.segments[-1].base_offset) if isinstance(entry, Row)]
    # Copied batches name no position, and may fill the last segment.
    if not any(row.number > 0 for row in rows):
        rows = [entry for entry in log.entries(log.log_start_offset) if isinstance(entry, Row)]
    named = [row for row in rows if row.number > 0]
    if not named:
        return 0, 0, log.log_end_offset == log.log_start_offset
    return named[-1].position + 1, birth_of(named[-1].number), named[-1].next_offset == log.log_end_offset
