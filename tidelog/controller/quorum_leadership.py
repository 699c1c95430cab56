"""Who leads a partition that commits by majority, and who is to vote in its log: the rules beside `leadership`. Pure.

The partition's *members* are its Paxos log's voters, each a disk under an engine id of its own. Who they are is decided
by that log alone: its leader changes them, one at a time, and reports the set in force (`AlterMembers`). The controller
says whom it *wants*: one member for each replica that stays, on the disk that the replica's broker has now. So a disk
that was replaced is another member, a replica that is to move is one more, and both go the same way.

Any member may lead, since a candidate learns from a majority whatever may have been chosen; no set of eligible replicas
is kept, and there are no unclean elections. Whoever leads goes on while it is live. Another is named only if a majority
of the members is live, in the order of the replicas; if none is, nobody leads until enough are back. While the members
are being changed the log may be one step ahead of what is known here, and there half of them may be a majority. Naming
somebody in vain costs an epoch, and no more: whether it leads is for the log to say.

A leader that is to go itself goes last, and not by its own hand: when nothing else is left to do, the next one is
named, and removes it. Unless the next one cannot be elected: then the log is ahead, and has only members that are to
go; the lead goes round until one of them leads, and reports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionInfo, PartitionMember
from tidelog.model.ids import NodeId

ENGINE_ID_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True)
class Brokers:
    """Which brokers a decision takes for live, and what disks they have."""

    image: ClusterImage
    absent: NodeId = NO_LEADER
    """Not live, whatever the image says."""
    present: NodeId = NO_LEADER
    """Live, whatever the image says."""
    new_disk: str = ""
    """Of `absent`, if it comes back with another one than the image has."""

    def is_live(self, node: NodeId) -> bool:
        return node != self.absent and (node == self.present or self.image.is_live(node))

    def storage_of(self, node: NodeId) -> str:
        if node == self.absent and self.new_disk:
            return self.new_disk
        return self.image.brokers[node].storage

    def is_voting(self, member: PartitionMember) -> bool:
        """Is its broker live, on the very disk that votes?"""
        node = NodeId(member.node_id)
        return self.is_live(node) and self.storage_of(node) == member.storage


def quorum_settled(was: PartitionInfo, asked: PartitionInfo, brokers: Brokers) -> PartitionInfo:
    """The entry that follows `was` if `asked` (it, with other replicas, members, leader or leader epoch) is wanted:
    members wanted as the replicas call for, a leader found, epochs counted."""
    now = replace(with_wanted(asked, brokers), is_founding=was.is_founding and asked.members == was.members)
    voting = [member.node_id for member in now.members if brokers.is_voting(member) and not _is_replaced(now, member)]
    now = replace(now, isr=tuple(node for node in now.replicas if node in voting))
    now = replace(now, leader=_leader(was, now))
    leader_epoch = max(now.leader_epoch, was.leader_epoch + (now.leader != was.leader))
    now = replace(now, leader_epoch=leader_epoch)
    return was if now == was else replace(now, partition_epoch=was.partition_epoch + 1)


def with_wanted(info: PartitionInfo, brokers: Brokers) -> PartitionInfo:
    """One wanted member for each target replica, on its present disk. A disk keeps the id under which it is wanted, or
    votes; another gets a new one."""
    wanted, next_engine_id = [], info.next_engine_id
    for node in info.target:
        disk = (node, brokers.storage_of(node))
        known = [one for one in (*info.wanted, *info.members) if (one.node_id, one.storage) == disk]
        if not known:
            assert next_engine_id <= ENGINE_ID_MAX, "a partition that has used up its engine ids"
            known = [PartitionMember(next_engine_id, *disk)]
            next_engine_id += 1
        wanted.append(known[0])
    ordered = tuple(sorted(wanted, key=lambda member: member.engine_id))
    return replace(info, wanted=ordered, next_engine_id=next_engine_id)


def with_new_id(info: PartitionInfo, lost: PartitionMember) -> PartitionInfo:
    """The disk of a wanted member is wanted under another id."""
    assert info.next_engine_id <= ENGINE_ID_MAX, "a partition that has used up its engine ids"
    fresh = PartitionMember(info.next_engine_id, lost.node_id, lost.storage)
    wanted = tuple(one for one in info.wanted if one != lost)
    return replace(info, wanted=(*wanted, fresh), next_engine_id=info.next_engine_id + 1)


def _is_replaced(info: PartitionInfo, member: PartitionMember) -> bool:
    """Is another id wanted for its node?"""
    return any(one.node_id == member.node_id and one.engine_id != member.engine_id for one in info.wanted)


def ids_of(members: Sequence[PartitionMember]) -> tuple[int, ...]:
    """Their engine ids."""
    return tuple(member.engine_id for member in members)


def is_electable(info: PartitionInfo) -> bool:
    """May the live members be a majority, of those known here or of those one step further?"""
    is_open = info.members != info.wanted or info.is_moving
    return len(info.isr) >= info.majority or (is_open and 2 * len(info.isr) >= len(info.members))


def next_candidate(info: PartitionInfo) -> NodeId:
    """Who is to lead if the leader cannot: the next of the live members, in a circle; the leader if it is alone."""
    at = info.isr.index(info.leader)
    return info.isr[(at + 1) % len(info.isr)]


def _leader(was: PartitionInfo, now: PartitionInfo) -> NodeId:
    stays = was.leader if was.leader in now.isr else NO_LEADER
    if not is_electable(now):
        return stays
    if now.leader in now.isr and now.leader != was.leader:
        return now.leader
    leader = now.leader if now.leader in now.isr else now.isr[0]
    return _successor(now, leader) if _is_last_to_go(now, leader) else leader


def _is_last_to_go(now: PartitionInfo, leader: NodeId) -> bool:
    going = [member.node_id for member in now.members if member.engine_id not in ids_of(now.wanted)]
    is_complete = all(engine_id in ids_of(now.members) for engine_id in ids_of(now.wanted))
    return is_complete and going == [leader]


def _successor(now: PartitionInfo, leader: NodeId) -> NodeId:
    """The first that stays; the leader itself if none of them is live."""
    return next((node for node in now.isr if node in now.target), leader)
