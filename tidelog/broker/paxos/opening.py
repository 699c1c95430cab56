"""Opening the files of a Paxos replica, its journal and its log, and deciding whether this disk may vote.

A disk votes under its engine id. If a journal is lost, or has lost promises, that id is *dead*: the disk must never
vote under it again. An empty journal alone would not show that. So the order of creation does: a journal's metainfo is
durable before the log next to it is made. A log without a journal has therefore lost it. If both are gone, the disk
still knows that they were made (`LogManager.held_position`).

An id dies in three other cases: the directory is an old copy; the disk may have forgotten values that it had accepted
in memory only; the log holds values that the journal has lost (`comparison`). The journal is kept then.

A journal keeps every entry that has a sound catalog row: an entry that has lost its payload is a *faulty* slot, known
by the value's name, and the other replicas have the payload. If all have lost it, the log goes on without it
(`lost_values`). A partition with a single replica has no others. There the log decides: everything that it has applied
was in the journal, and the log has the payload. A bad end of the journal behind that is a torn write, and is truncated.
The log's rows tell how far it has applied; where a power cut has taken the rows and left the batches, the names in the
journal tell whose values they are.

A log keeps a batch that fails verification, as damaged: the journals can restore it. A single replica keeps it only if
its row says that the journal had it durably: no other replica has what was torn before.

An operator may have had the partition go on from what was left of it: then the replica enters that era first
(`regrouping`).

A lost journal is created anew, and remembers the dead id. Such a replica learns and serves its log; it votes when the
controller has given its disk another id.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import msgspec
import structlog
from msgspec import structs

from tidelog.broker.consensus.stored import stored_log
from tidelog.broker.paxos.applied_log import payload_in
from tidelog.broker.paxos.comparison import ACCOUNTED, find_forgotten, rows_beyond, unnamed_beyond
from tidelog.broker.paxos.files import ReplicaFiles
from tidelog.broker.paxos.journal import ReplicaMetainfo, metainfo_of
from tidelog.broker.paxos.regrouping import Era, end_of_rows, enter
from tidelog.model.ids import PartitionId
from tidelog.replication.paxos.state import Metadata, Status
from tidelog.replication.paxos.voters import VoterSet, encode_voters
from tidelog.storage.log_opener import LogOpener
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.scan import BadEnd

LONE_END = replace(BadEnd.KEEP, kept_from_number=ACCOUNTED)
"""How a damaged log end is treated at the only replica of a partition: batches whose row says that the journal had them
durably are kept, others truncated."""

logger = structlog.get_logger("tidelog.paxos")


def open_replica(
    opener: LogOpener,
    now_ms: int,
    *,
    partition_id: PartitionId,
    settings: LogSettings,
    engine_id: int,
    founders: VoterSet | None,
    since: int,
    is_alone: bool = False,
    era: Era | None = None,
) -> ReplicaFiles:
    """Opens or creates the journal and the log of a replica.

    `founders` are the first voters of the partition, None unless that is certain; `since` is when this broker began the
    replica; `is_alone` is True if no other broker holds a replica; `era` is entered if the replica is in an earlier
    one.

    Blocking. Raises `ConfigError` if the journal's files are no slot store, `OSError` if files cannot be opened or
    made.
    """
    # A journal is begun durably before the log beside it: a log without a journal tells that one was lost.
    was_begun = opener.has_log(partition_id) or opener.held(since).is_begun
    # A batch that does not verify may be rotten or torn; behind it may lie the last good copy of what the journals have
    # lost. So nothing is truncated here, but at an only replica, whose journal had it or nobody.
    open_log = partial(opener.open_log, partition_id, settings, now_ms, bad_end=LONE_END if is_alone else BadEnd.KEEP)
    # An only replica's log says what its journal must have had, so it is opened first.
    opened = open_log() if is_alone and opener.has_log(partition_id) else None
    bad_end = BadEnd.KEEP
    if is_alone:
        bad_end = BadEnd.TRUNCATE if opened is None else BadEnd(_applied_below(opener, partition_id, opened[0]))
    store, stored = opener.open_journal(partition_id, now_ms, bad_end=bad_end)
    metainfo = None if stored.is_amnesiac else metainfo_of(stored)
    if stored.is_amnesiac or (metainfo is None and was_begun):
        for finding in stored.report.findings:
            logger.error("loading", partition=str(partition_id), finding=finding)
        logger.error("a journal has lost what it promised; this replica needs another id", partition=str(partition_id))
        store, stored = opener.open_journal(partition_id, now_ms, anew=True)
        # The dead id is on disk before anything else is done with the new journal: a crash must not bring it back to
        # life.
        metainfo = ReplicaMetainfo(
            0, Metadata(store.incarnation), b"", forgotten_id=engine_id, renewals=opener.renewals
        )
        store.store_metainfo(msgspec.msgpack.encode(metainfo))()
    # The directory was put back from an old copy: its journals are of then, and all ids with them. What was promised
    # since is nowhere on it.
    elif metainfo is not None and metainfo.renewals < opener.renewals:
        logger.error("a journal is an old copy; this replica needs another id", partition=str(partition_id))
        metainfo = structs.replace(_without_vote(metainfo), renewals=opener.renewals)
        store.store_metainfo(msgspec.msgpack.encode(metainfo))()
    # The disk has accepted values before they were on it (`ack.durability=replicated`), and was neither stopped in good
    # order nor at rest. The mark was durable before the first of these answers, so no loss goes unnoticed.
    elif metainfo is not None and metainfo.metadata.may_forget:
        logger.error("a replica was not stopped in good order; it needs another id", partition=str(partition_id))
        metainfo = _without_vote(metainfo)
        store.store_metainfo(msgspec.msgpack.encode(metainfo))()
    # A new replica. Its metainfo is durable before the log beside the journal is made (`open_log` below), so that the
    # order of the two tells later whether a journal was lost.
    elif metainfo is None:
        era_epoch = 0 if era is None else era.epoch
        metainfo = founding_metainfo(engine_id, founders, store.incarnation, renewals=opener.renewals, era=era_epoch)
        store.store_metainfo(msgspec.msgpack.encode(metainfo))()
    log, report = opened or open_log()
    # Rows below were applied beside the lost journal; that this one lacks their slots proves nothing.
    if metainfo.forgotten_id and metainfo_of(stored) is None:  # the journal was begun anew just now
        metainfo = structs.replace(metainfo, believed_to=log.log_end_offset)
        store.store_metainfo(msgspec.msgpack.encode(metainfo))()
    files = _compared(ReplicaFiles(log, store, stored, metainfo, report, bad_end=bad_end), partition_id)
    return files if era is None else enter(opener, files, era, engine_id, now_ms)


def founding_metainfo(
    engine_id: int, founders: VoterSet | None, incarnation: str, *, renewals: int, era: int
) -> ReplicaMetainfo:
    """Returns the `ReplicaMetainfo` with which the journal of a new replica begins.

    `founders` are the partition's first voters, if this replica is one of them; `renewals` is the count of fresh starts
    of the broker on this directory; `era` is the leader epoch since when the partition has gone on from what was left
    of it, 0 if it never had to.
    """
    founding = b"" if founders is None else encode_voters(founders)
    return ReplicaMetainfo(engine_id, Metadata(incarnation), founding, renewals=renewals, era=era)


def _applied_below(opener: LogOpener, partition_id: PartitionId, log: PartitionLog) -> int:
    """Returns the position behind the last value that the log of a single replica shows as applied."""
    end, _, is_named = end_of_rows(log)
    stored = None if is_named else opener.look_at_journal(partition_id)
    if stored is None or stored.is_amnesiac:
        return end
    slots = stored_log(stored, Metadata("")).slots
    # A power cut may have taken the rows and left the batches: the digests in the journal's catalog tell whose they
    # are.
    held = [slot.position + 1 for slot in slots if slot.faulty and payload_in(log, slot.value) is not None]
    return max([end, *held])


def _compared(files: ReplicaFiles, partition_id: PartitionId) -> ReplicaFiles:
    """Returns the files with the log's rows compared with the journal; revokes the vote if the journal has lost a value
    that the log holds."""
    stored = stored_log(files.stored, files.metainfo.metadata)
    beyond = [row for row in rows_beyond(files.log, stored.floor) if row.base_offset >= files.metainfo.believed_to]
    # The log holds a value that the journal had on its disk, and has not any more: the journal's end was lost, and with
    # it what this id has accepted. Only rows behind the floor are read for that: as many as the journal has slots, or
    # had.
    forgotten = find_forgotten(beyond, stored.slots)
    unnamed = tuple(unnamed_beyond(files.log, stored.floor))
    files = replace(files, beyond=tuple(beyond), unnamed=unnamed, forgotten=forgotten)
    if forgotten is None or not files.metainfo.engine_id:
        return files
    logger.error(
        "a journal has lost what its log holds; this replica needs another id",
        partition=str(partition_id),
        position=forgotten.position,
        offset=forgotten.base_offset,
    )
    metainfo = _without_vote(files.metainfo)
    files.store.store_metainfo(msgspec.msgpack.encode(metainfo))()
    return replace(files, metainfo=metainfo)


def _without_vote(metainfo: ReplicaMetainfo) -> ReplicaMetainfo:
    """Returns the metainfo (ids and promises) of a disk whose promises may be forgotten: its ids are marked as
    forgotten, and it may not vote."""
    metadata = structs.replace(metainfo.metadata, status=Status.EMPTY, may_forget=False)
    # Ids rise, so the largest one stands for all: none up to it may vote again.
    forgotten_id = max(metainfo.engine_id, *metainfo.former_ids, metainfo.forgotten_id)
    return structs.replace(metainfo, engine_id=0, metadata=metadata, forgotten_id=forgotten_id, former_ids=())
