"""Decisions about committed offsets.

A member's commit counts if it has owned the partition since an epoch not later than the epoch of the commit (KIP-1251).
So a commit made while the member owned the partition counts even after a rebalance. One made before the member lost the
partition does not, even if it has got the partition back since.

Members number their commits, and the committed offset keeps the number, so that a delayed commit cannot overwrite a
newer one (`_is_kept`).
"""

from __future__ import annotations

from msgspec import structs

from tidelog.groups.decide_members import member_of
from tidelog.groups.decision import Decision
from tidelog.groups.group import Current, Group
from tidelog.groups.records import GroupLogRecord, OffsetKey, OffsetRecord, gone
from tidelog.groups.settings import GroupSettings, Now, TopicSeen, TopicsView
from tidelog.groups.shard import Shard
from tidelog.model.errors import (
    FencedMember,
    GroupNotEmpty,
    InvalidRequest,
    MetadataTooLong,
    NotOwned,
    StaleCommit,
    TidelogError,
    UnknownPartition,
    UnknownTopic,
)
from tidelog.model.groups import (
    NO_OFFSET,
    CommitAnswer,
    CommitOffsets,
    CommittedOffset,
    CommitVerdict,
    FetchOffsets,
    GroupDone,
    OffsetsAnswer,
    SetOffsets,
    check_group_name,
    pairs,
)

OFFSET_MAX = 2**63 - 1


def commit(shard: Shard, request: CommitOffsets, view: TopicsView, settings: GroupSettings, now: Now) -> Decision:
    """Commits offsets, of a member or of a group without members. A refused offset has its own error, and the others
    count. Raises `UnknownMember`, `FencedMember`, `GroupNotEmpty` or `InvalidRequest`."""
    group, current = _committer(shard, request, settings)
    return _commit(group, current, request, view, settings, now)


def commit_unowned(
    shard: Shard, request: CommitOffsets, view: TopicsView, settings: GroupSettings, now: Now
) -> Decision:
    """Commits offsets without an ownership check, for a caller already checked, in a group whose members assign
    partitions themselves. Raises `GroupFull` or `InvalidRequest`."""
    return _commit(shard.known_or_new(request.group, settings.groups_max), None, request, view, settings, now)


def _commit(
    group: Group,
    current: Current | None,
    request: CommitOffsets,
    view: TopicsView,
    settings: GroupSettings,
    now: Now,
) -> Decision:
    for offset in request.offsets:
        # Such a number is a client's mistake: it refuses the whole request, before any of it is decided.
        _check_numbers(offset, 0)
    records, verdicts = list[GroupLogRecord](), list[CommitVerdict]()
    for offset in request.offsets:
        try:
            committed = _record(request.group, offset, view, settings, now)
            if current is not None:
                committed = structs.replace(committed, member_id=request.member_id, sequence=request.sequence)
                _check_owned(current, committed, request.member_epoch)
            # A repetition is answered as the first time, and written once.
            if not _is_kept(group, committed):
                records.append(committed)
            verdicts.append(CommitVerdict(offset.topic, offset.partition))
        except TidelogError as error:
            # One bad offset does not take the others with it, as in Kafka.
            verdicts.append(CommitVerdict(offset.topic, offset.partition, error.code, error.message))
    return Decision(tuple(records), CommitAnswer(tuple(verdicts)))


def _committer(shard: Shard, request: CommitOffsets, settings: GroupSettings) -> tuple[Group, Current | None]:
    """Returns the group, and the state of the committing member, None if the caller is no member."""
    if not request.member_id:
        group = shard.known_or_new(check_group_name(request.group), settings.groups_max)
        # A tool's commit under a running group would be undone by the next commit of the partition's owner.
        _check_no_members(group, "who is no member commits nothing")
        return group, None
    group = member_of(shard, request.group, request.member_id)
    current = group.currents[request.member_id]
    # An older epoch is not refused here: the partition may be the member's since before it. `_check_owned` compares.
    if not 0 < request.member_epoch <= current.epoch:
        raise FencedMember(
            f"member {request.member_id} is at epoch {current.epoch}, and commits with {request.member_epoch}"
        )
    return group, current


def _check_no_members(group: Group, so: str) -> None:
    if group.has_members:
        raise GroupNotEmpty(
            f"group {group.name} has {group.members_count} members, and as long as there are any {so}; stop them first"
        )


def _check_numbers(offset: CommittedOffset, least: int) -> None:
    if not least <= offset.offset <= OFFSET_MAX:
        raise InvalidRequest(f"{offset.topic}-{offset.partition}: {offset.offset} is no offset")
    if not -1 <= offset.leader_epoch < 2**31:
        raise InvalidRequest(f"{offset.topic}-{offset.partition}: {offset.leader_epoch} is no leader epoch")


def _record(group: str, offset: CommittedOffset, view: TopicsView, settings: GroupSettings, now: Now) -> OffsetRecord:
    """Returns the record of a commit, without member id and commit number. Raises `UnknownTopic`, `UnknownPartition` or
    `MetadataTooLong`."""
    seen = _topic(offset, view)
    if len(offset.metadata.encode()) > settings.offset_metadata_bytes_max:
        raise MetadataTooLong(
            f"{offset.topic}-{offset.partition}: the metadata has more than {settings.offset_metadata_bytes_max} bytes "
            "(offset.metadata.max.bytes)"
        )
    return OffsetRecord(
        group=group,
        topic=offset.topic,
        # The topic's id as it is now: a topic created anew under the name has another, and so no committed offset.
        topic_id=seen.topic_id,
        partition=offset.partition,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        member_id="",
        sequence=0,
        committed_ms=now.wall_ms,
    )


def _topic(offset: CommittedOffset, view: TopicsView) -> TopicSeen:
    seen = view.get(offset.topic)
    if seen is None:
        raise UnknownTopic(f"there is no topic {offset.topic!a}")
    if not 0 <= offset.partition < seen.partitions:
        raise UnknownPartition(f"topic {offset.topic} has {seen.partitions} partitions, and no {offset.partition}")
    return seen


def _check_owned(current: Current, committed: OffsetRecord, member_epoch: int) -> None:
    has = current.of((committed.topic, committed.partition))
    # The partition may have another owner, who has read further: this commit would take the group back.
    if has is None or has.topic_id != committed.topic_id:
        raise NotOwned(f"member {committed.member_id} does not own {committed.topic}-{committed.partition}")
    # The member owned it, lost it and got it back. In between another member may have read and committed.
    if has.since > member_epoch:
        raise NotOwned(
            f"member {committed.member_id} owns {committed.topic}-{committed.partition} since epoch {has.since}, and "
            f"commits with {member_epoch}"
        )


def _is_kept(group: Group, committed: OffsetRecord) -> bool:
    """Returns True if this commit is already stored (a repetition). Raises `StaleCommit` if a later commit of the
    member is."""
    was = group.offsets.get((committed.topic, committed.partition))
    # Numbers are each member's own, so only its own commits can be compared.
    if was is None or was.topic_id != committed.topic_id or was.member_id != committed.member_id:
        return False
    # Of two commits that overtake each other the later stays, and a repeated one finds its work done. Sequence 0 is no
    # number: whoever has only one request under way needs none.
    if not 0 < committed.sequence <= was.sequence:
        return False
    if committed.sequence == was.sequence and (committed.offset, committed.metadata) == (was.offset, was.metadata):
        return True
    raise StaleCommit(
        f"{committed.topic}-{committed.partition}: commit {was.sequence} of member {committed.member_id} is kept, and "
        f"this is {committed.sequence}"
    )


# -- asking and setting -----------------------------------------------------------------------------------------------


def fetch(shard: Shard, request: FetchOffsets, view: TopicsView) -> Decision:
    """Returns committed offsets; an unknown group has none. In a classic group the caller's membership is not checked,
    as in Kafka. Raises `UnknownMember` or `FencedMember`."""
    entry = shard.groups.get(request.group)
    is_classic = entry is not None and entry.classic is not None and entry.classic.is_in_use
    if request.member_id and not is_classic:
        group = member_of(shard, request.group, request.member_id)
        current = group.currents[request.member_id]
        # One epoch behind, the member has only missed an answer; what it asks for may still be its own.
        if request.member_epoch not in (current.epoch, current.previous_epoch) or request.member_epoch <= 0:
            raise FencedMember(
                f"member {request.member_id} is at epoch {current.epoch}, and asks with {request.member_epoch}"
            )
    else:
        group = shard.groups.get(check_group_name(request.group), Group(request.group))
    if request.partitions is None:
        valid = [committed for _, committed in sorted(group.offsets.items()) if _is_valid(committed, view)]
        return Decision((), OffsetsAnswer(tuple(_committed(committed) for committed in valid)))
    offsets = list[CommittedOffset]()
    for topic, partition in pairs(request.partitions):
        committed = group.offsets.get((topic, partition))
        # The offset of a deleted topic must not be used in one of the same name.
        is_there = committed is not None and _is_valid(committed, view)
        offsets.append(
            _committed(committed) if committed and is_there else CommittedOffset(topic, partition, NO_OFFSET)
        )
    return Decision((), OffsetsAnswer(tuple(offsets)))


def _is_valid(committed: OffsetRecord, view: TopicsView) -> bool:
    """Returns True if the topic still has the id for which the offset was committed."""
    seen = view.get(committed.topic)
    return seen is not None and seen.topic_id == committed.topic_id


def _committed(committed: OffsetRecord) -> CommittedOffset:
    return CommittedOffset(
        committed.topic, committed.partition, committed.offset, committed.leader_epoch, committed.metadata
    )


def set_offsets(shard: Shard, request: SetOffsets, view: TopicsView, settings: GroupSettings, now: Now) -> Decision:
    """Sets or deletes committed offsets of a group without members, all of them or none. Raises `GroupNotEmpty`,
    `InvalidRequest`, `UnknownTopic`, `UnknownPartition` or `MetadataTooLong`."""
    group = shard.known_or_new(check_group_name(request.group), settings.groups_max)
    # Members would go on from where they are, and commit over what was set.
    _check_no_members(group, "its committed offsets are theirs")
    records = list[GroupLogRecord]()
    # Any bad offset raises before a record is returned: a group that is reset by half would read some partitions again,
    # and skip in others.
    for offset in request.offsets:
        _check_numbers(offset, NO_OFFSET)
        if offset.offset != NO_OFFSET:
            records.append(_record(request.group, offset, view, settings, now))
        # There is nothing to delete otherwise, and a tombstone would only make the log longer.
        elif (offset.topic, offset.partition) in group.offsets:
            records.append(gone(OffsetKey(group.name, offset.topic, offset.partition)))
    return Decision(tuple(records), GroupDone())
