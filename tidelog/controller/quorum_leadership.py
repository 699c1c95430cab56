"""The leader of a partition that commits by majority (Paxos), and the wanted voters of its log. Pure.

The partition's *members* are its Paxos log's voters, each a disk under an engine id of its own. They are decided in
that log alone: its leader changes them, one at a time, and reports the set in force (`AlterMembers`). The controller
decides which members it *wants*: one for each replica that stays, on the disk that the replica's broker has now. So a
replaced disk is another member, a reassignment's new replica is one more, and both are handled in the same way.

Any member may lead, since a candidate learns from a majority which values may have been chosen; there is no set of
eligible replicas, and there are no unclean elections. The leader continues while it is live. Another is named only if a
majority of the members is live, in the order of the replicas; without a majority the partition has no leader until
enough members are back. While the members are being changed, the log may be one step ahead of the metadata, and half of
the members known here may be a majority there. To name a leader in vain costs an epoch, and no more: whether it leads
is decided in the log.

A leader that is to be removed itself is removed last, and by another: when nothing else remains to do, the next broker
is named leader, and removes it. If that broker cannot be elected, the log is ahead, and has only members that are to be
removed; then they are named in turn until one of them leads, and reports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidelog.config.schema import TopicConfig
from tidelog.controller.broker_state import Brokers, Lost
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionInfo, PartitionMember
from tidelog.model.ids import NodeId, TopicPartition

ENGINE_ID_MAX = 2**15 - 1


def quorum_new_partition(image: ClusterImage, partition: int, replicas: tuple[NodeId, ...]) -> PartitionInfo:
    """Returns the entry of a new partition, whose log is founded by all its replicas. (If no majority is live, which no
    decision permits, it has no leader yet.)"""
    isr = tuple(node for node in replicas if image.is_live(node))
    # `apply` is total: a broker that is not registered gets no disk here, rather than an error.
    disks = [image.brokers[node].storage if node in image.brokers else "" for node in replicas]
    members = tuple(PartitionMember(1 + i, node, disks[i]) for i, node in enumerate(replicas))
    # A leader that no majority can promise to would use up epochs in vain.
    leader = isr[0] if len(isr) > len(members) // 2 else NO_LEADER
    return PartitionInfo(
        partition,
        leader,
        0,
        replicas,
        isr,
        members=members,
        wanted=members,
        next_engine_id=1 + len(members),
        is_founding=True,
    )


def quorum_settled(
    was: PartitionInfo, proposed: PartitionInfo, _rules: TopicConfig, brokers: Brokers, _lost: Lost | None
) -> PartitionInfo:
    """Returns the entry that follows `was`. `proposed` is the same entry with the requested replicas, members, leader
    or leader epoch. Wanted members follow from the replicas, a leader is named, and the epochs are raised. Settings and
    losses do not matter: a disk that has lost its promises votes under another id."""
    # Once the voters have changed nobody founds the log: a disk without it must rejoin, or its empty log would vote.
    now = replace(with_wanted(proposed, brokers), is_founding=was.is_founding and proposed.members == was.members)
    # A live broker on another disk casts no vote of the old one, and an id that is replaced has lost its promises.
    voting = [member.node_id for member in now.members if brokers.is_voting(member) and not is_replaced(now, member)]
    now = replace(now, isr=tuple(node for node in now.replicas if node in voting))
    now = replace(now, leader=_leader(was, now))
    # The epoch is the high part of the ballot. Under the old one a new leader's numbers could be its predecessor's, and
    # two values be accepted under one number.
    leader_epoch = max(now.leader_epoch, was.leader_epoch + (now.leader != was.leader))
    now = replace(now, leader_epoch=leader_epoch)
    # The same object tells callers that there is nothing to record.
    return was if now == was else replace(now, partition_epoch=was.partition_epoch + 1)


def quorum_called_off(info: PartitionInfo, _name: TopicPartition) -> PartitionInfo:
    """Returns the entry with its reassignment cancelled, as a reassignment back: a replica that has become a member
    meanwhile must be removed again."""
    leaving = tuple(node for node in info.replicas if node not in info.original)
    return replace(info, replicas=(*info.original, *leaving), adding=leaving, removing=leaving)


def with_wanted(info: PartitionInfo, brokers: Brokers) -> PartitionInfo:
    """Returns the entry with one wanted member for each target replica, on its present disk. A disk that is wanted or
    votes already keeps its engine id; another disk gets a new one."""
    targets, next_engine_id = [], info.next_engine_id
    for node in info.target:
        disk = (node, brokers.storage_of(node))
        # An id stands for the promises on its disk: a second id would give one disk two votes.
        members = [member for member in (*info.wanted, *info.members) if (member.node_id, member.storage) == disk]
        if not members:
            # An id is never given out twice, and a ballot number has only so many bits for it.
            assert next_engine_id <= ENGINE_ID_MAX, "a partition that has used up its engine ids"
            members = [PartitionMember(next_engine_id, *disk)]
            next_engine_id += 1
        targets.append(members[0])
    # In the order of the ids, as members are kept: a move has ended when the two tuples are equal.
    ordered = tuple(sorted(targets, key=lambda member: member.engine_id))
    return replace(info, wanted=ordered, next_engine_id=next_engine_id)


def with_new_id(info: PartitionInfo, lost: PartitionMember) -> PartitionInfo:
    """Returns the entry in which the disk of a wanted member has a new engine id."""
    assert info.next_engine_id <= ENGINE_ID_MAX, "a partition that has used up its engine ids"
    fresh = PartitionMember(info.next_engine_id, lost.node_id, lost.storage)
    # The lost id goes with its promises; a vote under it would contradict what nobody remembers.
    others = tuple(member for member in info.wanted if member != lost)
    return replace(info, wanted=(*others, fresh), next_engine_id=info.next_engine_id + 1)


def quorum_regrouped(info: PartitionInfo, kept: Sequence[NodeId], brokers: Brokers) -> PartitionInfo:
    """Returns the entry of a partition that continues with the replicas of the brokers `kept`, each as a new member. No
    earlier member votes any more; a replica that is missing now gets a new id, too, when it is back."""
    # No old id votes again: its owner may be away, with promises and values that this era does not know.
    first = info.next_engine_id
    assert first + len(kept) <= ENGINE_ID_MAX, "a partition that has used up its engine ids"
    members = tuple(PartitionMember(first + i, node, brokers.storage_of(node)) for i, node in enumerate(kept))
    now = replace(info, members=members, wanted=members, next_engine_id=first + len(kept))
    # The new leader epoch names the era; replicas of an earlier one are listened to no more.
    return replace(now, leader=kept[0], leader_epoch=info.leader_epoch + 1)


def is_replaced(info: PartitionInfo, member: PartitionMember) -> bool:
    """Returns True if another engine id is wanted for the member's node: its disk has lost its vote, or is gone."""
    return any(
        successor.node_id == member.node_id and successor.engine_id != member.engine_id for successor in info.wanted
    )


def ids_of(members: Sequence[PartitionMember]) -> tuple[int, ...]:
    """Returns the engine ids of the members, in the order given."""
    return tuple(member.engine_id for member in members)


def is_electable(info: PartitionInfo) -> bool:
    """Returns True if the live members may be a majority, of the members in the metadata or of a set one change
    ahead."""
    is_open = info.members != info.wanted or info.is_moving
    # During a change the log may be one step ahead, with one member less: half of those known here is a majority there.
    return len(info.isr) >= info.majority or (is_open and 2 * len(info.isr) >= len(info.members))


def next_candidate(info: PartitionInfo) -> NodeId:
    """Returns the broker that is to lead if the leader cannot: the next live member in the order of the replicas,
    cyclically; the leader itself if no other is live."""
    # In a circle, so that each live member has its turn before the first is named again.
    at = info.isr.index(info.leader)
    return info.isr[(at + 1) % len(info.isr)]


def _leader(was: PartitionInfo, now: PartitionInfo) -> NodeId:
    stays = was.leader if was.leader in now.isr else NO_LEADER
    # Naming another leader that no majority can promise to would end a term for nothing.
    if not is_electable(now):
        return stays
    # Somebody has asked for this leader: an operator, a hand-over, or a report that the term is lost.
    if now.leader in now.isr and now.leader != was.leader:
        return now.leader
    leader = now.leader if now.leader in now.isr else now.isr[0]
    return _successor(now, leader) if _is_last_to_go(now, leader) else leader


def _is_last_to_go(now: PartitionInfo, leader: NodeId) -> bool:
    going = [member.node_id for member in now.members if member.engine_id not in ids_of(now.wanted)]
    is_complete = all(engine_id in ids_of(now.members) for engine_id in ids_of(now.wanted))
    # Only when nothing else is left to do: a leader that removed itself earlier would leave steps that nobody takes.
    return is_complete and going == [leader]


def _successor(now: PartitionInfo, leader: NodeId) -> NodeId:
    """Returns the first live member that is not to be removed; the leader itself if none of them is live."""
    return next((node for node in now.isr if node in now.target), leader)
