"""Recovery: rebuilding a cluster's metadata log at an operator's command, when a majority of its voters is lost.

The new log continues from the state that the remaining directories hold (`remains`), under the same cluster id and a
higher *generation*. One of the given directories gets it, as its only voter; the others receive it from there, and
become voters again as the controller decides. No disk of a topic counts as lost because of it: a directory keeps the
storage id under which its replicas are known.

Two recoveries from different directories have the same generation, so each draws an id: brokers of the two refuse each
other, and a further recovery from both is refused. An operator has to choose one.

The last decisions may be lost: elections, registrations, new topics. So positions, offsets, voter ids and epochs jump;
and of each partition with in-sync replicas, the replicas whose logs reach furthest count as in sync.

Nothing is removed: the old replicas of the log stay, the old snapshots are renamed. Brokers whose directories were not
given are of the generation before, and refused. After a crash in the middle the same directories can be given again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from tidelog.broker.consensus.log_member import MemberMetainfo
from tidelog.broker.consensus.payloads import digest_of
from tidelog.broker.consensus.stored import Identity, encode_identity
from tidelog.broker.metadata.remains import Remains, Restored, differences, restore
from tidelog.broker.metadata.snapshots import SnapshotVoters
from tidelog.controller.apply import with_voters
from tidelog.controller.records import ClusterRecovered, SyncedReplicas, encode_record, level_of
from tidelog.controller.snapshot import encode_image
from tidelog.model.cluster import ISR, ClusterImage, Voter
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import NodeId, PartitionId
from tidelog.model.ports import Entropy, Files
from tidelog.replication.paxos.numbers import next_number
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Status, Value
from tidelog.replication.paxos.voters import VoterSet, encode_voters
from tidelog.storage.directory_identity import DirectoryIdentity
from tidelog.storage.log_manager import LogManager, log_directory, stored_logs
from tidelog.storage.read_only import open_read_only

POSITIONS_SKIPPED = 1 << 20
"""The number of positions, and of offsets, that the new log skips; more than the lost part of the log can have had."""
VOTER_IDS_SKIPPED = 64


class CannotRecover(InvalidRequest):
    """These directories do not belong to one cluster, or none of them has the cluster's topics. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The recovery that `carry_out` will write."""

    cluster_id: str
    generation: int
    recovery_id: str
    base: Remains
    """The directory that gets the new log."""
    given: tuple[Remains, ...]
    restored: Restored
    voter: Voter
    synced: tuple[SyncedReplicas, ...]
    given_up: tuple[str, ...]


def plan_recovery(given: Sequence[Remains], entropy: Entropy) -> RecoveryPlan:
    """Returns the plan of a recovery from these directories. Changes nothing. Raises `CannotRecover`, `OSError`."""
    cluster_id = _check(given)
    restored = restore(given)
    if restored is None or not restored.image.cluster_id:
        raise CannotRecover(
            "no metadata log and no snapshot is left in these directories, so the names and settings of the topics are "
            f"lost: {'; '.join(_topics_left(given)) or 'no topics are there either'}. Nothing was changed; look for a "
            "copy of metadata/ or snapshots/ of any broker of the cluster, or give the other brokers' directories"
        )
    image = restored.image
    # Above all that any given directory has seen, so that no broker of before takes part.
    generation = 1 + max([image.generation, *(remains.identity.generation for remains in given if remains.identity)])
    base, voter = _choose_base(given, restored)
    synced = tuple(_synced(given, image))
    given_up = tuple(_given_up(given, restored, synced))
    # Two recoveries from different directories come to the same generation; only this tells them apart.
    recovery_id = entropy.token_hex(8)
    return RecoveryPlan(cluster_id, generation, recovery_id, base, tuple(given), restored, voter, synced, given_up)


def _check(given: Sequence[Remains]) -> str:
    """Returns the cluster's id. Raises `CannotRecover` if these are not directories of one cluster with one history."""
    ids = sorted(set().union(*(remains.cluster_ids for remains in given)))
    if len(ids) > 1:
        of = "; ".join(f"{remains.name} is of {', '.join(sorted(remains.cluster_ids)) or 'none'}" for remains in given)
        raise CannotRecover(f"these directories are of several clusters: {of}")
    if not ids:
        raise CannotRecover(f"nothing in {', '.join(remains.name for remains in given)} says of which cluster it is")
    nodes = [remains.node_id for remains in given if remains.node_id]
    doubled = sorted({node for node in nodes if nodes.count(node) > 1})
    # One of the two is an old copy, and only the operator can know which.
    if doubled:
        raise CannotRecover(f"several of these directories are broker {doubled[0]}'s; give the newest of them only")
    nameless = [remains.name for remains in given if not remains.node_id]
    if nameless:
        raise CannotRecover(
            f"nothing in {nameless[0]} says whose it is; start that broker on an empty directory instead"
        )
    _check_recoveries(given)
    for difference in differences(given):
        raise CannotRecover(f"these directories have different histories: {difference}; leave out the wrong one")
    return ids[0]


def _check_recoveries(given: Sequence[Remains]) -> None:
    """Raises `CannotRecover` if the directories have metadata logs of different recoveries."""
    by_generation: dict[int, dict[str, list[str]]] = {}
    for remains in given:
        identity = remains.identity
        if identity is not None and (remains.floors or remains.snapshot is not None):
            by_generation.setdefault(identity.generation, {}).setdefault(identity.recovery_id, []).append(remains.name)
    for generation, recoveries in sorted(by_generation.items()):
        if len(recoveries) > 1:
            of = "; ".join(
                f"{', '.join(names)} of recovery {recovery_id or '(no id)'}"
                for recovery_id, names in recoveries.items()
            )
            raise CannotRecover(
                f"these directories are of generation {generation}, and were recovered apart: {of}; choose one "
                "recovery, move metadata*/ and snapshots/ of the others away, and give all directories again"
            )


def _topics_left(given: Sequence[Remains]) -> Iterator[str]:
    for remains in given:
        topics = sorted({identity.topic_id for identity in stored_logs(remains.files).values()} - {"0" * 32})
        if topics:
            yield f"{remains.name} has data of topics {', '.join(topics)}"


def _choose_base(given: Sequence[Remains], restored: Restored) -> tuple[Remains, Voter]:
    """Returns the directory of a registered broker whose metadata reach furthest, and the voter that it becomes."""
    image = restored.image
    candidates = [remains for remains in given if NodeId(remains.node_id) in image.brokers]
    if not candidates:
        brokers = ", ".join(map(str, image.brokers)) or "none"
        raise CannotRecover(f"none of these directories is of a broker that the metadata know ({brokers})")
    # A disk that the metadata know first: its replicas count as before, and nothing has to be copied to it.
    base = max(
        candidates,
        key=lambda remains: (remains.storage == _storage(image, remains), remains.position, -remains.node_id),
    )
    broker = image.brokers[NodeId(base.node_id)]
    next_voter_id = max(image.next_voter_id, 1 if restored.voters is None else restored.voters.next_voter_id)
    # Ids of the lost part may have promised something, and must never be given out again.
    voter_id = next_voter_id + VOTER_IDS_SKIPPED
    return base, Voter(voter_id, base.node_id, base.storage, broker.peer_host, broker.peer_port)


def _storage(image: ClusterImage, remains: Remains) -> str:
    broker = image.brokers.get(NodeId(remains.node_id))
    return "" if broker is None else broker.storage


# -- in-sync replicas ------------------------------------------------------------------------------------------------


def _synced(given: Sequence[Remains], image: ClusterImage) -> Iterator[SyncedReplicas]:
    """Yields the in-sync sets of the partitions for which the logs on the disks show others than the image."""
    for topic in image.topics.values():
        for partition in topic.partitions if topic.commit_protocol == ISR else ():
            ends = {
                remains.node_id: end
                for remains in given
                if NodeId(remains.node_id) in partition.replicas and remains.storage == _storage(image, remains)
                if (end := _log_end(remains.files, PartitionId(topic.topic_id, partition.partition))) is not None
            }
            furthest = max(ends.values(), default=None)
            nodes = tuple(node for node in partition.replicas if ends.get(node) == furthest)
            # What the metadata decided last about this set may be lost: what lies on the disks is the better witness.
            if furthest is not None and set(nodes) != {*partition.isr, *partition.elr}:
                yield SyncedReplicas(topic.topic_id, partition.partition, nodes)


def _log_end(files: Files, partition_id: PartitionId) -> tuple[int, int] | None:
    """Returns the last leader epoch of a partition's log, and its end offset; None if there is no log, or it cannot be
    read."""
    directory = log_directory(partition_id)
    if not files.exists(directory):
        return None
    log, _ = open_read_only(files, directory, partition_id)
    try:
        # The epoch first: a longer log of an older epoch has a tail that may have been truncated elsewhere.
        return (log.lineage[-1][0] if log.lineage else -1), log.log_end_offset
    finally:
        log.close(0)


# -- in words --------------------------------------------------------------------------------------------------------


def _given_up(given: Sequence[Remains], restored: Restored, synced: Sequence[SyncedReplicas]) -> Iterator[str]:
    if restored.unreached:
        yield (
            f"{len(restored.unreached)} entries of the metadata log, at positions {restored.unreached[0]} to "
            f"{restored.unreached[-1]}: the one at {restored.position} is on none of these disks"
        )
    nodes = {remains.node_id for remains in given}
    absent = [str(node) for node in restored.image.brokers if node not in nodes]
    if absent:
        yield f"all that only brokers {', '.join(absent)} know, which are not given and join with another disk"
    for entry in synced:
        topic = restored.image.topic_by_id(entry.topic_id)
        assert topic is not None, "it is of the image"
        yield (
            f"what the metadata say of the in-sync replicas of {topic.name}-{entry.partition}: now they are those that "
            f"hold the most, on {'brokers' if len(entry.nodes) > 1 else 'broker'} {', '.join(map(str, entry.nodes))}"
        )
    yield f"what was decided from position {restored.position} on, if anything was"


# -- doing it --------------------------------------------------------------------------------------------------------


def carry_out(plan: RecoveryPlan, managers: dict[str, LogManager], now_ms: int, by: str) -> None:
    """Writes the recovery. `managers` are the opened directories, by name. Blocking. Raises `OSError`, after which it
    can be repeated."""
    # The base last: a crash before it leaves no log of the new generation, and all can be given again.
    for remains in sorted(plan.given, key=lambda remains: remains is plan.base):
        manager = managers[remains.name]
        # A snapshot of before must not be loaded in the place of the new one; under another name it is kept.
        manager.set_snapshots_aside(plan.generation)
        if remains is plan.base:
            _write_log(plan, manager, now_ms, by)
        else:
            manager.open_slots(now_ms, anew=True, incarnation=remains.storage)
        identity = manager.identity.current or DirectoryIdentity(
            cluster_id=plan.cluster_id, node_id=remains.node_id, storage=remains.storage
        )
        manager.identity.store(
            msgspec.structs.replace(
                identity,
                storage=remains.storage,
                founds=False,
                generation=plan.generation,
                recovery_id=plan.recovery_id,
            )
        )


def _write_log(plan: RecoveryPlan, manager: LogManager, now_ms: int, by: str) -> None:
    """Writes a snapshot of the recovered state, and behind it a log with one entry: the audit record of the
    recovery."""
    restored, voter = plan.restored, plan.voter
    # Positions and offsets of the lost part may have been told to somebody: none of them may name something else now.
    position = restored.position + POSITIONS_SKIPPED
    offset = restored.image.position + POSITIONS_SKIPPED
    voters = VoterSet((voter,), voter.voter_id + 1)
    kept = restored.image.position
    record = ClusterRecovered(plan.generation, now_ms, by, kept, plan.given_up, plan.synced, plan.recovery_id)
    level = max(restored.image.level, level_of(record))
    image = replace(with_voters(restored.image, voters.voters, voters.next_voter_id), position=offset, level=level)
    # As if the voters' value stood right before the log's beginning.
    header = msgspec.msgpack.encode(SnapshotVoters(voters, position - 1))
    manager.snapshots.write(position, header, encode_image(image))

    # Above every number that a given disk has heard of, so no leader of before can write to the new log.
    number = next_number(max(remains.number_max for remains in plan.given), voter.voter_id)
    payload = encode_record(record, level)
    value = Value(Kind.APPEND, number, offset, 1, digest_of(payload))
    floor = Prefix(position, restored.prefix.epoch, offset)
    metadata = Metadata(plan.base.storage, Status.VOTING, number, number, plan.cluster_id)
    contacts = encode_voters(voters)
    metainfo = MemberMetainfo(voter.node_id, plan.cluster_id, metadata, b"", contacts, voter.voter_id)

    store, _ = manager.open_slots(now_ms, anew=True, incarnation=plan.base.storage)
    store.set_floor(position, msgspec.msgpack.encode(floor))
    store.put(position, number, encode_identity(Identity(value, True), level), payload, digest=value.digest)
    flush = store.begin_flush()
    flush.run()
    store.end_flush(flush, None)
    # Last: without its metainfo the disk is new, and a crash before this has the recovery done once more.
    store.store_metainfo(msgspec.msgpack.encode(metainfo))()
