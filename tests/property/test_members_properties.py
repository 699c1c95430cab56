"""Who votes in a partition's log and who leads it, whatever brokers, disks, operators and late reports do.

The log itself is played by the members in force and the leader that they have elected. One that the controller has
replaced goes on changing members, by the order that it knows, until they elect the next; a report may come late, twice,
or never.
"""

from __future__ import annotations

from itertools import combinations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.controller.cluster import Cluster, registration, topic_id
from tidelog.controller.commands import Command, CommandAnswer, CreateTopic, NewTopic
from tidelog.controller.commands import FenceBroker as Fence
from tidelog.controller.member_steps import MemberSet, is_report_due, next_step
from tidelog.controller.partition_commands import (
    AlterMembers,
    AlterReassignments,
    ElectionType,
    ElectLeaders,
    LostTerm,
    LostVote,
    MembersAltered,
    MembersAsked,
    NewReplicas,
    ReportLostVotes,
    ReportPaxosLeader,
    TermEnd,
)
from tidelog.controller.quorum_leadership import ids_of, is_electable
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionInfo, PartitionMember
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId

NODES = st.integers(1, 6)
TOPIC = topic_id("t")
STEPS_MAX = 60


def majorities(members: MemberSet) -> list[set[int]]:
    ids = ids_of(members.members)
    return [set(chosen) for chosen in combinations(ids, len(ids) // 2 + 1)]


class MembersMachine(RuleBasedStateMachine):
    """One partition on some of six brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.processes = 0
        self.log = MemberSet((), 1)
        self.view: PartitionInfo
        """What the elected leader knows of the partition."""
        self.life = -1
        """Its broker's epoch when it was elected; a process of another one is not elected."""
        self.reports: list[AlterMembers] = []
        self.in_force: list[tuple[PartitionMember, ...]] = []
        self.disks: dict[int, PartitionMember] = {}
        self.leaders: dict[int, int] = {}
        self.forgotten: set[int] = set()
        """Engine ids whose journals are lost."""
        self.before: PartitionInfo

    @property
    def image(self) -> ClusterImage:
        return self.cluster.image

    @property
    def info(self) -> PartitionInfo:
        return self.image.topics["t"].partitions[0]

    def ask(self, command: Command) -> CommandAnswer | None:
        before = self.image
        try:
            return self.cluster.do(command)
        except TidelogError:
            assert self.image is before
            return None

    def is_voting(self, member: PartitionMember) -> bool:
        return self.image.is_live(member.node_id) and self.can_vote(member)

    @initialize(replicas=st.lists(NODES, min_size=1, max_size=5, unique=True))
    def begin(self, replicas: list[int]) -> None:
        self.cluster.start(1, 2, 3, 4, 5, 6)
        configs = {"commit.protocol": "paxos"}
        self.cluster.do(CreateTopic(NewTopic("t", None, None, {0: replicas}, configs), TOPIC))
        self.log = MemberSet(self.info.members, self.info.next_engine_id)
        self.in_force.append(self.log.members)
        self.view = self.before = self.info
        self.win()

    # -- brokers and operators ---------------------------------------------------------------------------------------

    @rule(node=NODES)
    def fence(self, node: int) -> None:
        self.ask(Fence(node, self.image.brokers[NodeId(node)].epoch))

    @rule(node=NODES)
    def stop(self, node: int) -> None:
        self.cluster.heartbeat(node, wants_shutdown=True)

    @rule()
    def come_back(self) -> None:
        for node in range(1, 7):
            self.cluster.heartbeat(node)

    @rule(node=NODES, new_disk=st.booleans(), is_heard=st.booleans())
    def restart(self, node: int, new_disk: bool, is_heard: bool) -> None:
        """Disks are lost only as long as the rest can decide."""
        self.processes += 1
        is_survivable = self.is_survivable(node)
        storage = self.image.brokers[NodeId(node)].storage
        if new_disk and is_survivable:
            self.fence(node)
            storage = f"disk-{node}-{self.processes}"
        self.ask(registration(node, process=f"p{self.processes}", storage=storage))
        if is_heard:
            self.cluster.heartbeat(node)

    def is_survivable(self, node: int) -> bool:
        """May this broker's votes be lost, too?"""
        dead = [one for one in self.log.members if one.node_id == node or not self.can_vote(one)]
        return 2 * len(dead) < len(self.log.members)

    def can_vote(self, member: PartitionMember) -> bool:
        return self.has_disk(member) and member.engine_id not in self.forgotten

    @rule(node=NODES)
    def forget(self, node: int) -> None:
        """A journal is lost, and its disk is not."""
        votes = [one for one in self.info.wanted if one.node_id == node]
        if votes and self.is_survivable(node):
            self.forgotten.update(one.engine_id for one in (*votes, *self.log.members) if one.node_id == node)
            self.tell_of_lost_votes()

    def tell_of_lost_votes(self) -> None:
        for one in self.info.wanted:
            if one.engine_id in self.forgotten:
                epoch = self.image.brokers[NodeId(one.node_id)].epoch
                self.ask(ReportLostVotes(one.node_id, epoch, [LostVote(TOPIC, 0, one.engine_id)]))

    def has_disk(self, member: PartitionMember) -> bool:
        return self.image.brokers[NodeId(member.node_id)].storage == member.storage

    @rule(nodes=st.none() | st.lists(NODES, min_size=1, max_size=5, unique=True))
    def reassign(self, nodes: list[int] | None) -> None:
        self.ask(AlterReassignments([NewReplicas(TOPIC, 0, nodes)]))

    @rule()
    def prefer(self) -> None:
        self.ask(ElectLeaders(ElectionType.PREFERRED))

    # -- the leader --------------------------------------------------------------------------------------------------

    @rule()
    def win(self) -> None:
        """Whom the metadata names is elected, by the members in force, and knows the metadata so far; or it knows them
        better than before."""
        leader = self.info.leader
        votes = sum(map(self.is_voting, self.log.members))
        own = [one for one in self.log.members if one.node_id == leader and self.is_voting(one)]
        if own and 2 * votes > len(self.log.members):
            self.view, self.life = self.info, self.image.brokers[leader].epoch

    @property
    def is_led(self) -> bool:
        """Also by one that is fenced, and does not know it."""
        return self.image.brokers[self.view.leader].epoch == self.life

    @rule(behind=st.integers(0, 6), is_told=st.booleans())
    def step(self, behind: int, is_told: bool) -> None:
        """The elected leader goes on, by what it knows."""
        if is_told:
            self.win()
        if not self.is_led or self.view.leader not in [one.node_id for one in self.log.members]:
            return
        step = next_step(
            self.view,
            self.log,
            is_live=self.is_voting,
            has_caught_up=lambda one: one.node_id != behind,
            keeps=lambda one: True,
        )
        if step is None:
            return
        after = step.of(self.log)
        assert all(one & other for one in majorities(self.log) for other in majorities(after))
        assert abs(len(after.members) - len(self.log.members)) == 1
        self.log = after
        self.in_force.append(after.members)

    @rule(arrives=st.booleans())
    def report(self, arrives: bool) -> None:
        if self.is_led and is_report_due(self.view, self.log):
            asked = MembersAsked(TOPIC, 0, self.view.leader_epoch, self.view.partition_epoch, self.log)
            self.reports.append(AlterMembers(self.view.leader, self.life, [asked]))
            if arrives:
                self.ask(self.reports.pop())

    @precondition(lambda self: self.reports)
    @rule(data=st.data(), again=st.booleans())
    def arrive(self, data: st.DataObject, again: bool) -> None:
        at = data.draw(st.integers(0, len(self.reports) - 1))
        command = self.reports[at]
        if not again:
            del self.reports[at]
        self.ask(command)

    @rule(end=st.sampled_from(TermEnd), is_late=st.booleans())
    def lose(self, end: TermEnd, is_late: bool) -> None:
        if self.info.leader != NO_LEADER:
            broker = self.image.brokers[self.info.leader]
            lost = LostTerm(TOPIC, 0, self.info.leader_epoch - is_late, end)
            self.ask(ReportPaxosLeader(broker.node_id, broker.epoch, [lost]))

    # -- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def an_epoch_has_one_leader(self) -> None:
        for topic in self.image.topics.values():
            info = topic.partitions[0]
            assert self.leaders.setdefault(info.leader_epoch, info.leader) == info.leader

    @invariant()
    def an_id_is_one_disk_for_ever(self) -> None:
        if self.in_force:
            for one in (*self.info.members, *self.info.wanted, *self.log.members):
                assert self.disks.setdefault(one.engine_id, one) == one
                assert one.engine_id < self.info.next_engine_id
            nodes = [one.node_id for one in self.info.wanted]
            assert sorted(nodes) == sorted(self.info.target)
            assert all(self.has_disk(one) for one in self.info.wanted)

    @invariant()
    def who_votes_has_a_replica(self) -> None:
        """Or its data would be deleted."""
        if self.in_force:
            assert all(one.node_id in self.info.replicas for one in self.log.members)
            assert self.info.members in self.in_force, "the controller believes only what was true"

    @invariant()
    def the_leader_is_a_live_member(self) -> None:
        if not self.in_force:
            return
        old, new = self.before, self.info
        replaced = {one.node_id: one for one in new.wanted}
        voting = [
            one.node_id
            for one in new.members
            if self.image.is_live(one.node_id) and self.has_disk(one) and replaced.get(one.node_id, one) == one
        ]
        assert sorted(new.isr) == sorted(voting)
        assert new.leader in (*new.isr, NO_LEADER)
        if new.leader not in (NO_LEADER, old.leader):
            assert is_electable(new)
        if new.leader == NO_LEADER:
            assert 2 * len(new.isr) <= len(new.members), "a majority is led"

    @invariant()
    def epochs_only_rise(self) -> None:
        if self.in_force:
            old, new = self.before, self.info
            assert new.leader_epoch - old.leader_epoch >= (new.leader != old.leader)
            assert new.partition_epoch - old.partition_epoch >= (new != old)
            assert new.next_engine_id >= old.next_engine_id
            self.before = new

    @invariant()
    def a_snapshot_is_the_image(self) -> None:
        assert decode_image(encode_image(self.image)) == self.image

    def teardown(self) -> None:
        """When all brokers are back, members become those wanted, and what moves arrives."""
        if not self.in_force:
            return
        self.come_back()
        for _ in range(STEPS_MAX):
            if self.log.members == self.info.wanted and not is_report_due(self.info, self.log):
                break
            self._go_on()
        assert self.info.members == self.info.wanted == self.log.members
        assert not self.info.is_moving
        assert self.info.leader in self.info.target

    def _go_on(self) -> None:
        self.tell_of_lost_votes()
        if all(one.node_id != self.info.leader or not self.can_vote(one) for one in self.log.members):
            self.lose(TermEnd.YIELD, False)
        self.step(0, is_told=True)
        asked = MembersAsked(TOPIC, 0, self.info.leader_epoch, self.info.partition_epoch, self.log)
        if is_report_due(self.info, self.log):
            epoch = self.image.brokers[self.info.leader].epoch
            assert isinstance(self.ask(AlterMembers(self.info.leader, epoch, [asked])), MembersAltered)


MembersMachine.TestCase.settings = settings(stateful_step_count=50)
TestMembersMachine = MembersMachine.TestCase
