"""Rules for the metadata log and its meaning. That there is only one such log, and one image of each prefix, is checked
by `Truth` itself.

| rule | in words |
|---|---|
| controllers | each term has one controller, and a larger number than those before |
| registrations | a process registers once, and a broker's entry never goes back to an earlier registration |
| leader epochs | of a partition rise with each change of its leader: one leader an epoch; a loss stays accepted |
| fenced brokers | lead nothing |
| topics | are created if there is none of that name, and deleted if there is one |
| placement | replicas are distinct, leader in ISR in replicas, ELR apart from it; nobody leads without a majority |
| producer ids | are given out once |
| voter ids | belong to one disk, for ever |
| voter changes | one voter at a time |
| snapshots | of one position have one hash |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidelog.controller.records import (
    BrokerRegistered,
    BrokerUnregistered,
    ControllerElected,
    ProducerIdsAllocated,
    SnapshotAgreed,
    TopicCreated,
    TopicDeleted,
    VoterAssigned,
)
from tidelog.model.cluster import NO_LEADER, PartitionInfo, Voter
from tidelog.model.ids import NodeId
from tidelog.model.losses import LostRanges
from tidelog.sim.cluster.truth import Rule, Step, Truth


class Controllers(Rule):
    name = "controllers"

    def applied(self, truth: Truth, step: Step) -> Iterator[str]:
        record = step.record
        if isinstance(record, ControllerElected) and record.epoch <= step.before.controller_epoch:
            yield f"term {record.epoch} of node {record.node_id} begins after term {step.before.controller_epoch}"


class Registrations(Rule):
    """The rule that a process registers once, and that broker epochs never go back. A process whose broker an operator
    removed may register again."""

    name = "registrations"

    def __init__(self) -> None:
        self._incarnations: dict[str, int] = {}

    def applied(self, truth: Truth, step: Step) -> Iterator[str]:
        for node, broker in step.before.brokers.items():
            later = step.after.brokers.get(node)
            if later is not None and later.epoch < broker.epoch:
                yield f"node {node} goes back from epoch {broker.epoch} to {later.epoch}"
        record = step.record
        if isinstance(record, BrokerUnregistered):
            removed = step.before.brokers.get(NodeId(record.node_id))
            self._incarnations.pop(removed.incarnation if removed else "", None)
        elif isinstance(record, BrokerRegistered):
            before = self._incarnations.setdefault(record.incarnation, step.offset)
            if before != step.offset:
                yield f"process {record.incarnation} of node {record.node_id} is registered at {before} already"


class LeaderEpochs(Rule):
    name = "leader epochs"

    def applied(self, truth: Truth, step: Step) -> Iterator[str]:
        if step.before.topics is step.after.topics:
            return
        for name, topic in step.after.topics.items():
            old = step.before.topics.get(name)
            if old is None or old is topic or old.topic_id != topic.topic_id:
                continue
            for was, now in zip(old.partitions, topic.partitions, strict=False):
                yield from (f"{name}-{now.partition}: {wrong}" for wrong in _epochs(was, now))
                if any(not LostRanges(now.losses).covers(lost.start, lost.end) for lost in was.losses):
                    yield f"{name}-{now.partition}: what was given up is taken back"
            if len(topic.partitions) < len(old.partitions):
                yield f"{name} shrinks to {len(topic.partitions)} partitions"


def _epochs(was: PartitionInfo, now: PartitionInfo) -> Iterator[str]:
    if now.leader_epoch < was.leader_epoch:
        yield f"leader epoch goes back from {was.leader_epoch} to {now.leader_epoch}"
    if now.leader_epoch == was.leader_epoch and now.leader != was.leader:
        yield f"epoch {now.leader_epoch} has leaders {was.leader} and {now.leader}"
    if now.partition_epoch <= was.partition_epoch and now != replace(was, losses=now.losses):
        yield f"partition epoch stays {was.partition_epoch} over a change"


class FencedBrokers(Rule):
    """The rule that fenced brokers lead no partition, checked once a whole entry is applied, since its records take
    effect one after the other."""

    name = "fenced brokers"

    def settled(self, truth: Truth) -> Iterator[str]:
        image = truth.image
        for topic in image.topics.values():
            for info in topic.partitions:
                if info.leader != NO_LEADER and not image.is_live(info.leader):
                    yield f"{topic.name}-{info.partition} is led by node {info.leader}, which is fenced"


class Topics(Rule):
    name = "topics"

    def applied(self, truth: Truth, step: Step) -> Iterator[str]:
        match step.record:
            case TopicCreated(name, topic_id) if name in step.before.topics or step.before.topic_by_id(topic_id):
                yield f"{name} is created, and exists"
            case TopicDeleted(topic_id) if step.before.topic_by_id(topic_id) is None:
                yield f"{topic_id} is deleted, and does not exist"


class Placement(Rule):
    name = "placement"

    def applied(self, truth: Truth, step: Step) -> Iterator[str]:
        if step.before.topics is step.after.topics:
            return
        for name, topic in step.after.topics.items():
            if step.before.topics.get(name) is topic:
                continue
            for info in topic.partitions:
                yield from (f"{name}-{info.partition}: {wrong}" for wrong in _misplaced(info))


def _misplaced(info: PartitionInfo) -> Iterator[str]:
    if len(dict.fromkeys(info.replicas)) != len(info.replicas) or not info.replicas:
        yield f"replicas {info.replicas}"
    eligible = (*info.isr, *info.elr)
    if any(node not in info.replicas for node in eligible) or len(dict.fromkeys(eligible)) != len(eligible):
        yield f"ISR {info.isr} and ELR {info.elr} of replicas {info.replicas}"
    is_led = info.leader in (info.isr or (NO_LEADER,))
    if not is_led and not (info.members and info.leader == NO_LEADER):
        yield f"leader {info.leader} with ISR {info.isr}"


class ProducerIds(Rule):
    name = "producer ids"

    def applied(self, truth: Truth, step: Step) -> Iterator[str]:
        record = step.record
        if isinstance(record, ProducerIdsAllocated) and record.next_producer_id <= step.before.next_producer_id:
            yield f"gives out ids below {record.next_producer_id}, after those below {step.before.next_producer_id}"


class VoterIds(Rule):
    name = "voter ids"

    def __init__(self) -> None:
        self._owners: dict[int, tuple[int, str]] = {}

    def applied(self, truth: Truth, step: Step) -> Iterator[str]:
        record = step.record
        if isinstance(record, VoterAssigned):
            yield from self._check(record.voter_id, record.node_id, record.storage)

    def changed(self, truth: Truth, before: tuple[Voter, ...], after: tuple[Voter, ...]) -> Iterator[str]:
        for voter in after:
            yield from self._check(voter.voter_id, voter.node_id, voter.incarnation)

    def _check(self, voter_id: int, node: int, storage: str) -> Iterator[str]:
        owner = self._owners.setdefault(voter_id, (node, storage))
        if owner != (node, storage):
            yield f"voter id {voter_id} belongs to disk {owner[1]} of node {owner[0]}, and to {storage} of node {node}"


class VoterChanges(Rule):
    """The rule that consecutive voter sets differ by one voter at most. Their majorities need not meet: a change waits
    for both.
    """

    name = "voter changes"

    def changed(self, truth: Truth, before: tuple[Voter, ...], after: tuple[Voter, ...]) -> Iterator[str]:
        old, new = ([voter.voter_id for voter in voters] for voters in (before, after))
        added = [voter for voter in new if voter not in old]
        removed = [voter for voter in old if voter not in new]
        truth.saw("voter added", bool(old and added and not removed))
        truth.saw("voter removed", bool(removed and not added))
        if old and max(len(added), len(removed)) > 1:
            yield f"voters {old} become {new} in one step"


class Snapshots(Rule):
    name = "snapshots"

    def __init__(self) -> None:
        self._hashes: dict[int, str] = {}

    def applied(self, truth: Truth, step: Step) -> Iterator[str]:
        record = step.record
        if isinstance(record, SnapshotAgreed):
            yield from self.taken(record.position, record.root_hash)

    def taken(self, position: int, root_hash: str) -> Iterator[str]:
        """Checks that all snapshots of this position have one hash."""
        agreed = self._hashes.setdefault(position, root_hash)
        if agreed != root_hash:
            yield f"the snapshot at {position} has hashes {agreed} and {root_hash}"


def all_rules() -> list[Rule]:
    """Returns new instances of all rules, for one run."""
    kinds = (
        Controllers,
        Registrations,
        LeaderEpochs,
        FencedBrokers,
        Topics,
        Placement,
        ProducerIds,
        VoterIds,
        VoterChanges,
        Snapshots,
    )
    return [kind() for kind in kinds]
