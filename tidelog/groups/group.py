"""A group: the newest record of each of its keys, indexed for decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.groups.assignors.subscriber import Partition
from tidelog.groups.classic.state import ClassicGroup, from_record
from tidelog.groups.records import (
    AnyKey,
    ClassicKey,
    ClassicRecord,
    CurrentKey,
    CurrentRecord,
    GroupKey,
    GroupLogRecord,
    GroupRecord,
    HeldTopic,
    MemberKey,
    MemberRecord,
    OffsetKey,
    OffsetRecord,
    TargetKey,
    TargetRecord,
    TargetTopic,
)
from tidelog.model.groups import LEAVE_STATIC


class GroupState(Enum):
    """States of a group, with Kafka's names. `ASSIGNING` never occurs, because a target is made in the decision that
    raises the group epoch. The last two belong to classic groups (`classic/state.py`)."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"


CLASSIC_STATES: Final = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
"""States that only a classic group can have."""


class Held(NamedTuple):
    """A partition that a member holds."""

    topic_id: str
    since: int
    """Member epoch at which the partition was given to the member."""


NO_TARGET: Final[Mapping[Partition, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Current:
    """The current assignment of a member: its epoch, and the partitions that it holds or is revoking, as in its
    `CurrentRecord`."""

    epoch: int
    previous_epoch: int
    held: Mapping[Partition, Held] = field(default_factory=dict)
    revoking: Mapping[Partition, Held] = field(default_factory=dict)
    is_told: bool = False

    @property
    def is_away(self) -> bool:
        """True for a static member that has left temporarily and keeps its partitions."""
        return self.epoch == LEAVE_STATIC

    def of(self, partition: Partition) -> Held | None:
        """Returns the partition, if the member holds or is still revoking it; otherwise None."""
        # Also what it is giving up: its last commits for that come while it does, and must count.
        return self.held.get(partition) or self.revoking.get(partition)


class Group:
    """A group: its members, their target assignments (`targets`), their current assignments (`currents`), and the
    committed offsets."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.record: GroupRecord | None = None
        self.members: Final = dict[str, MemberRecord]()
        self.targets: Final = dict[str, Mapping[Partition, str]]()
        """Target assignments by member id: topic id of each partition."""
        self.currents: Final = dict[str, Current]()
        self.offsets: Final = dict[Partition, OffsetRecord]()
        self.owners: Final = dict[Partition, str]()
        """Member id that holds, or is still revoking, each partition. Invariant: no other member has the partition in
        `currents`."""
        self.instances: Final = dict[str, str]()
        """Member id of each `group.instance.id`."""
        self.classic_record: ClassicRecord | None = None
        self._classic: ClassicGroup | None = None
        """The classic group, made from its record at first use."""

    @property
    def classic(self) -> ClassicGroup | None:
        """The classic group, with the state that is not in the log: joining members and waiting requests. Invariant:
        there is one exactly if there is a `classic_record`; then `members` is empty."""
        # Phases and waits are not in the log: a group that was just loaded has nobody waiting.
        if self._classic is None and self.classic_record is not None:
            self._classic = from_record(self.classic_record)
        return self._classic

    @classic.setter
    def classic(self, classic: ClassicGroup) -> None:
        assert self.classic_record is not None, "a classic group has a record from the beginning"
        self._classic = classic

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return 0 if self.record is None else self.record.epoch

    @property
    def is_simple(self) -> bool:
        """True if the group has committed offsets but never had a member."""
        return self.record is None and self.classic is None

    @property
    def has_members(self) -> bool:
        """True if there are members of either type, or member ids handed out for a join."""
        return bool(self.members) or (self.classic is not None and self.classic.is_in_use)

    @property
    def members_count(self) -> int:
        """Number of members of either type."""
        return len(self.members) if self.classic is None else len(self.classic.members)

    @property
    def empty_since_ms(self) -> int | None:
        """Wall-clock time (ms) since when the group has no members; None if it has some, or never had any."""
        record = self.record or self.classic_record
        return None if record is None else record.empty_since_ms

    @property
    def is_nothing(self) -> bool:
        """True if the group has no live record: each of its keys has a tombstone."""
        return not (self.record or self.members or self.targets or self.currents or self.offsets or self.classic_record)

    def target_of(self, member_id: str) -> Mapping[Partition, str]:
        return self.targets.get(member_id, NO_TARGET)

    def is_settled(self, member_id: str) -> bool:
        """Returns True if the member holds its whole target and has nothing left to revoke."""
        current = self.currents[member_id]
        return current.is_away or (
            # `held` is always within the target of the member's epoch, so equal lengths mean equal sets.
            current.epoch == self.epoch and not current.revoking and len(current.held) == len(self.target_of(member_id))
        )

    @property
    def state(self) -> GroupState:
        if self.classic is not None:
            return GroupState(self.classic.phase.value)
        if not self.members:
            return GroupState.EMPTY
        is_stable = all(self.is_settled(member_id) for member_id in self.members)
        return GroupState.STABLE if is_stable else GroupState.RECONCILING

    # -- how it changes ----------------------------------------------------------------------------------------------

    def apply(self, record: GroupLogRecord) -> None:
        match record:
            case GroupRecord():
                self.record = record
            case MemberRecord():
                # A member may have come back without its instance id, or with another.
                self._forget_instance(record.member_id)
                if record.instance_id is not None:
                    self.instances[record.instance_id] = record.member_id
                self.members[record.member_id] = record
            case TargetRecord():
                self.targets[record.member_id] = target_from(record)
            case CurrentRecord():
                # What the member had is struck out first: the record is its whole new state.
                self._disown(record.member_id)
                self.currents[record.member_id] = current = current_from(record)
                self._own(record.member_id, current)
            case OffsetRecord():
                self.offsets[record.topic, record.partition] = record
            case ClassicRecord():
                # The copy in memory belongs to the record before; a turn that wrote this one sets its own copy.
                self.classic_record, self._classic = record, None
            case _:
                raise AssertionError(f"not a record of a group: {record!r}")

    def remove(self, key: AnyKey) -> None:
        match key:
            case GroupKey():
                self.record = None
            case MemberKey():
                # Before the record goes: it has the instance id.
                self._forget_instance(key.member_id)
                self.members.pop(key.member_id, None)
            case TargetKey():
                self.targets.pop(key.member_id, None)
            case CurrentKey():
                # Before the state goes: it has the partitions to be struck out of `owners`.
                self._disown(key.member_id)
                self.currents.pop(key.member_id, None)
            case OffsetKey():
                self.offsets.pop((key.topic, key.partition), None)
            case ClassicKey():
                self.classic_record = self._classic = None
            case _:
                raise AssertionError(f"not a key of a group: {key!r}")

    def _forget_instance(self, member_id: str) -> None:
        """Removes the member's `group.instance.id` from the index, unless another member has taken it over."""
        was = self.members.get(member_id)
        if was is not None and was.instance_id is not None and self.instances.get(was.instance_id) == member_id:
            del self.instances[was.instance_id]

    def _disown(self, member_id: str) -> None:
        was = self.currents.get(member_id)
        # `held` and `revoking` have no partition in common, so each is struck out once.
        for partition in () if was is None else (*was.held, *was.revoking):
            del self.owners[partition]

    def _own(self, member_id: str, current: Current) -> None:
        for partition in (*current.held, *current.revoking):
            # This is the promise of the protocol, so it is checked at each record, also when a log is replayed.
            owner = self.owners.setdefault(partition, member_id)
            assert owner == member_id, f"{self.name}: {partition} is given to {member_id}, and {owner} has it"

    # -- as records --------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of live records of the group in the log."""
        # As many as `live_keys` yields, but without a walk over all committed offsets.
        several = len(self.members) + len(self.targets) + len(self.currents) + len(self.offsets)
        return bool(self.record) + bool(self.classic_record) + several

    def live_keys(self) -> Iterator[AnyKey]:
        """Yields the keys of all live records of the group."""
        if self.record is not None:
            yield GroupKey(self.name)
        if self.classic_record is not None:
            yield ClassicKey(self.name)
        yield from (MemberKey(self.name, member_id) for member_id in self.members)
        yield from (TargetKey(self.name, member_id) for member_id in self.targets)
        yield from (CurrentKey(self.name, member_id) for member_id in self.currents)
        yield from (OffsetKey(self.name, topic, partition) for topic, partition in self.offsets)

    def record_of(self, key: AnyKey) -> GroupLogRecord | None:
        """Returns the newest record of a key; None if there is none."""
        match key:
            case GroupKey():
                return self.record
            case ClassicKey():
                return self.classic_record
            case MemberKey():
                return self.members.get(key.member_id)
            case TargetKey():
                target = self.targets.get(key.member_id)
                return None if target is None else target_record(self.name, key.member_id, target)
            case CurrentKey():
                current = self.currents.get(key.member_id)
                return None if current is None else current_record(self.name, key.member_id, current)
            case OffsetKey():
                return self.offsets.get((key.topic, key.partition))
        raise AssertionError(f"not a key of a group: {key!r}")


# -- targets and currents, as records and back -------------------------------------------------------------------------


def target_record(group: str, member_id: str, target: Mapping[Partition, str]) -> TargetRecord:
    """Returns the record of a target assignment; equal targets give equal records."""
    by_topic = dict[tuple[str, str], list[int]]()
    # Sorted: equal targets make equal bytes, whatever the assignor's order.
    for (topic, partition), topic_id in sorted(target.items()):
        by_topic.setdefault((topic, topic_id), []).append(partition)
    topics = tuple(TargetTopic(topic, topic_id, tuple(numbers)) for (topic, topic_id), numbers in by_topic.items())
    return TargetRecord(group, member_id, topics)


def target_from(record: TargetRecord) -> Mapping[Partition, str]:
    return {(entry.topic, partition): entry.topic_id for entry in record.topics for partition in entry.partitions}


def current_record(group: str, member_id: str, current: Current) -> CurrentRecord:
    return CurrentRecord(
        group,
        member_id,
        current.epoch,
        current.previous_epoch,
        _held_topics(current.held),
        _held_topics(current.revoking),
        current.is_told,
    )


def current_from(record: CurrentRecord) -> Current:
    return Current(
        record.member_epoch, record.previous_epoch, _held(record.held), _held(record.revoking), record.is_told
    )


def _held_topics(held: Mapping[Partition, Held]) -> tuple[HeldTopic, ...]:
    by_topic = dict[tuple[str, str], tuple[list[int], list[int]]]()
    # Sorted for the same reason as targets are: equal states make equal bytes.
    for (topic, partition), (topic_id, since) in sorted(held.items()):
        partitions, epochs = by_topic.setdefault((topic, topic_id), ([], []))
        partitions.append(partition)
        epochs.append(since)
    return tuple(
        HeldTopic(topic, topic_id, tuple(partitions), tuple(epochs))
        for (topic, topic_id), (partitions, epochs) in by_topic.items()
    )


def _held(topics: tuple[HeldTopic, ...]) -> Mapping[Partition, Held]:
    return {
        (entry.topic, partition): Held(entry.topic_id, since)
        for entry in topics
        for partition, since in zip(entry.partitions, entry.epochs, strict=True)
    }
