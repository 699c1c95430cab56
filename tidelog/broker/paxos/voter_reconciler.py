"""Reconciles the voters in the logs of Paxos partitions with the members that the controller wants.

It looks at all replicas every `LOOK_S` seconds, so a failed step is made good by the next look. It

- reports to the controller which members are in force in a log that is led here, where the metadata differ;
- changes the members by the next step (`controller.member_steps`), one at a time;
- requests a new leader epoch where this leader cannot go on, and another leader where none is elected, or where the
  leader's disk has been full for a while;
- requests another engine id for a disk that has forgotten its promises;
- has replicas report how far their logs are durable, while one of them is to become a member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import starmap

import structlog

from tidelog.broker.partitions.roles import ProtocolContext
from tidelog.broker.paxos.context import voter_of
from tidelog.broker.paxos.replica import PaxosReplica
from tidelog.broker.paxos.roles import PaxosRoles
from tidelog.controller.commands import Command, CommandAnswer, Done
from tidelog.controller.member_steps import MemberSet, is_report_due, next_step
from tidelog.controller.partition_commands import (
    AlterMembers,
    LostTerm,
    LostVote,
    MembersAltered,
    MembersAsked,
    ReportLostVotes,
    ReportPaxosLeader,
    TermEnd,
)
from tidelog.model.cluster import PartitionInfo, PartitionMember
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId, PartitionId
from tidelog.replication.paxos.voters import VoterSet

LOOK_S = 0.2
ANSWER_S_MAX = 5.0
BEHIND_S = 2.0
"""A replica counts as caught up if its log has everything that was agreed on this many seconds ago."""
PATIENCE_S = 5.0
"""Seconds without an elected leader, or with a full disk at the leader, after which another broker may be appointed."""
AT_ONCE = 1_000
"""Maximum number of partitions that one command to the controller reports."""

logger = structlog.get_logger("tidelog.paxos")


@dataclass
class _Watch:
    """The observations of one partition that the reconciler has made in the current leader epoch."""

    leader_epoch: int
    since_s: float
    """Monotonic time in seconds when the leader was last elected and had room on its disk."""
    marked_s: float
    old_end: int | None = None
    new_end: int | None = None
    """The end offset of the chosen values when it was last noted; `old_end` was noted at least `BEHIND_S` seconds
    before that."""
    engine_ids: tuple[int, ...] = ()
    begin_end: int = 0
    """The end offset of the chosen values when the current members were first seen in force. The leader's log may end
    before it: only members that are to leave may have the rest."""

    def note(self, engine_ids: tuple[int, ...], end: int) -> None:
        """Notes the members in force, and the end offset of the chosen values if the members have changed."""
        if engine_ids != self.engine_ids:
            self.engine_ids, self.begin_end = engine_ids, end

    def mark(self, end: int, now_s: float) -> None:
        """Notes the end offset of the chosen values as `new_end`, and moves the earlier one to `old_end`, if that was
        noted at least `BEHIND_S` seconds ago."""
        # Two marks: the older one is `BEHIND_S` old at least, so whoever has reached it is less than two marks behind.
        if self.new_end is None or now_s - self.marked_s >= BEHIND_S:
            self.old_end, self.new_end, self.marked_s = self.new_end, end, now_s


class VoterReconciler:
    """Reconciles the voters of the logs that one broker leads with the members that the controller wants. `run` is its
    task."""

    def __init__(self, context: ProtocolContext, roles: PaxosRoles) -> None:
        self._context = context
        self._roles = roles
        self._watches: dict[PartitionId, _Watch] = {}

    async def run(self) -> None:
        """Looks at all replicas every `LOOK_S` seconds until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            partitions = list(self._roles.infos.items())
            self._watches = {
                partition_id: watch
                for partition_id, watch in self._watches.items()
                if partition_id in self._roles.infos
            }
            # Everything is looked up before the first wait: the partitions may be others afterwards.
            votes = list(self._lost_votes(partitions))
            lost = list(filter(None, starmap(self._lost_term, partitions)))
            changes = list(filter(None, starmap(self._reconcile_members, partitions)))
            node_id, epoch = self._context.node_id, self._context.own_epoch()
            if votes:
                await self._submit(ReportLostVotes(node_id, epoch, votes[:AT_ONCE]), Done)
            if lost:
                await self._submit(ReportPaxosLeader(node_id, epoch, lost[:AT_ONCE]), Done)
            if changes:
                await self._submit(AlterMembers(node_id, epoch, changes[:AT_ONCE]), MembersAltered)

    async def _submit(self, command: Command, answer: type[CommandAnswer]) -> None:
        try:
            done = await self._context.channel.submit(command, answer, seconds_max=ANSWER_S_MAX)
        except TidelogError as error:
            logger.info("the controller could not be told now", command=type(command).__name__, reason=str(error))
        else:
            # Else the next look would go by the old metadata, and say all of it again.
            await self._context.in_force(done.position)

    # -- what is lost ------------------------------------------------------------------------------------------------

    def _lost_votes(self, partitions: list[tuple[PartitionId, PartitionInfo]]) -> Iterator[LostVote]:
        for partition_id, info in partitions:
            lost = self._roles.holders[partition_id].lost_engine_id
            if lost in [member.engine_id for member in info.wanted]:
                yield LostVote(partition_id.topic_id, partition_id.partition, lost)

    def _lost_term(self, partition_id: PartitionId, info: PartitionInfo) -> LostTerm | None:
        replica = self._roles.holders[partition_id]
        if replica.leader is None or replica.leader_epoch != info.leader_epoch:
            return None
        now_s = self._context.clock.monotonic_s()
        watch = self._watches.get(partition_id)
        if watch is None or watch.leader_epoch != info.leader_epoch:
            watch = self._watches[partition_id] = _Watch(info.leader_epoch, now_s, now_s)
        if replica.is_elected and not replica.is_out_of_room:
            watch.since_s = now_s
        # Another broker: this one's disk has failed, or it finds no majority that answers.
        if replica.is_halted or now_s - watch.since_s > PATIENCE_S:
            end = TermEnd.YIELD
        # A larger number overtook this one: the same broker may go on in the next leader epoch.
        elif replica.is_deposed:
            end = TermEnd.RENEW
        else:
            return None
        watch.since_s = now_s
        return LostTerm(partition_id.topic_id, partition_id.partition, info.leader_epoch, end)

    # -- members -----------------------------------------------------------------------------------------------------

    def _reconcile_members(self, partition_id: PartitionId, info: PartitionInfo) -> MembersAsked | None:
        """Begins the next change of a partition's members; returns a report of its members if the controller needs one,
        else None."""
        replica = self._roles.holders[partition_id]
        # A step of members waits for a report of how far this log is durable.
        if info.members != info.wanted:
            replica.tell_durable()
        if replica.leader is None:
            return None
        # An open change may still come to either set, and a report must name the one in force.
        if replica.leader_epoch != info.leader_epoch or not replica.voting.is_settled:
            return None
        watch = self._watches[partition_id]
        watch.mark(replica.agreed_end, self._context.clock.monotonic_s())
        now = _member_set(replica.voters)
        # What was agreed on before these members came in force may be on disks that have left: `next_step` asks for it.
        watch.note(replica.voters.ids, replica.agreed_end)
        if is_report_due(info, now):
            where = (partition_id.topic_id, partition_id.partition)
            return MembersAsked(*where, info.leader_epoch, info.partition_epoch, now)
        step = next_step(
            info,
            now,
            is_live=partial(self._is_live, replica),
            has_caught_up=partial(_has_caught_up, replica, watch.old_end),
            keeps=partial(_has_caught_up, replica, watch.begin_end),
        )
        if step is not None:
            add = None if step.add is None else voter_of(step.add)
            remove = None if step.remove is None else step.remove.engine_id
            voters = replica.voters.with_change(add=add, remove=remove)
            self._context.tasks.spawn(f"paxos-members-{partition_id}", _change(replica, voters))
        return None

    def _is_live(self, replica: PaxosReplica, member: PartitionMember) -> bool:
        broker = self._context.image().brokers.get(NodeId(member.node_id))
        # On that very disk: a broker that lives on another one casts no vote of this member.
        is_there = broker is not None and not broker.is_fenced and broker.storage == member.storage
        return is_there and not replica.is_silent(member.engine_id)


def _has_caught_up(replica: PaxosReplica, end: int | None, member: PartitionMember) -> bool:
    # Durable, not in memory: a copied log counts for a majority that others leave.
    return end is not None and replica.durable_end_of(member.engine_id) >= end


def _member_set(voters: VoterSet) -> MemberSet:
    members = tuple(PartitionMember(voter.voter_id, voter.node_id, voter.incarnation) for voter in voters.voters)
    return MemberSet(members, voters.next_voter_id)


async def _change(replica: PaxosReplica, voters: VoterSet) -> None:
    partition = str(replica.partition_id)
    try:
        await replica.voting.change(voters)
    except TidelogError as error:
        logger.info("the members of a partition could not be changed now", partition=partition, reason=str(error))
    else:
        logger.info("the members of a partition were changed", partition=partition, engine_ids=voters.ids)
