"""Opening a replica's disk: its journal and its log, and whether this disk may vote.

A disk votes under the engine id that it was given. If a journal is lost, or has lost what it promised, that id is dead:
its disk must never vote under it again, though nobody would notice from the empty journal alone. So the order of things
tells: a journal is begun, and its metainfo is durable, before the log next to it is made. A log without a journal has
lost it. If both are gone, the disk still knows that they were made (`LogManager.held_position`).

An id dies in three other ways: its directory is an old copy, its disk may have forgotten values that it accepted in
memory, or its log holds what its journal has lost (`comparison`). The journal is kept then: it is true as far as it
goes.

A journal keeps what it has a sound row of, at its end as anywhere: an entry that has lost its payload is a faulty
slot, known by its name, and the others say what becomes of it. If all have lost it, the log goes on without it
(`lost_values`). A partition with one replica has no others to say it. There the log says it, as far as it goes: what
it has applied was in the journal, and the log has the payload. A bad end beyond it is torn. Its rows say how far it
goes; where a power cut has taken them and left their batches, the journal's names say which values these are.

A log keeps a batch as damaged that does not verify: the journals can give it again. An only replica's does if its row
says that the journal had it durably: nobody else has what was torn before.

An operator may have had the partition go on from what was left of it: then the replica enters that era first
(`regrouping`).

What is lost is begun anew and remembers which id it must not use. Such a replica learns, and serves its log; it votes
when the controller has given its disk another id.
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
"""The treatment of a bad log end at the only replica of a partition."""

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
    """Opens journal and log, or makes them. `founders` are the voters that the partition began with, if that is sure;
    `since` is when this broker began the replica; `is_alone`: no other broker holds one; `era` is entered if the
    replica is in an earlier one.

    Blocking. Raises as `LogOpener.open_journal` and `open_log`.
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
    """Returns the `ReplicaMetainfo` with which the journal of a new replica begins. `founders` are the partition's
    first voters, if this replica is one of its first; `renewals` counts how often the broker has begun anew on this
    directory; `era` is the leader epoch in which the partition was last continued with what was left of it, 0 if it
    never was."""
    founding = b"" if founders is None else encode_voters(founders)
    return ReplicaMetainfo(engine_id, Metadata(incarnation), founding, renewals=renewals, era=era)


def _applied_below(opener: LogOpener, partition_id: PartitionId, log: PartitionLog) -> int:
    """Returns the position behind the last value of which an only replica's log shows that it has applied it."""
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
    """Compares the log with the journal, which may have lost its end."""
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
    """Returns the metainfo of a disk that has perhaps forgotten what it accepted under its engine id: it keeps that id
    only as forgotten, and may not vote.
    """
    metadata = structs.replace(metainfo.metadata, status=Status.EMPTY, may_forget=False)
    # Ids rise, so the largest one stands for all: none up to it may vote again.
    forgotten_id = max(metainfo.engine_id, *metainfo.former_ids, metainfo.forgotten_id)
    return structs.replace(metainfo, engine_id=0, metadata=metadata, forgotten_id=forgotten_id, former_ids=())
