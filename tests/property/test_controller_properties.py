"""Whatever a cluster goes through: its image keeps the rules, and comes back the same from its log and from snapshots.

The numbers are those of the invariants in docs/cluster.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.controller.cluster import Cluster, newest, registration, topic_id
from tidelog.controller.apply import apply, with_voters
from tidelog.controller.commands import (
    AddPartitions,
    AllocateProducerIds,
    AlterTopicConfigs,
    AssignVoter,
    BrokerHeartbeat,
    Command,
    CommandAnswer,
    CreateTopic,
    DeleteTopic,
    FenceBroker,
    LeadCluster,
    NewTopic,
    ProducerIdBlock,
    RegistrationOutdated,
    RemoveBroker,
    ReportRemoved,
    TakeSnapshot,
)
from tidelog.controller.partition_commands import AcceptLoss
from tidelog.controller.records import GivenUpRange, MetadataRecord
from tidelog.controller.sessions import Sessions
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.controller.voting import ChangeVoters, next_step
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionInfo, Voter
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId
from tidelog.model.losses import LossStatement, LostRanges

NODES = st.integers(1, 6)
NAMES = st.sampled_from(["a", "b", "c"])


def replayed(
    history: list[tuple[MetadataRecord, int] | tuple[tuple[Voter, ...], int]], image: ClusterImage
) -> ClusterImage:
    for entry, number in history:
        image = apply(image, entry, number) if isinstance(entry, MetadataRecord) else with_voters(image, entry, number)
    return image


class ClusterMachine(RuleBasedStateMachine):
    """One cluster, founded by three voters."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(voters=3)
        self.snapshot = (0, encode_image(ClusterImage("")))
        self.before = self.cluster.image
        self.terms = 1
        self.processes = 0
        self.racks: dict[int, str] = {}
        self.topics_made = 0
        self.voter_ids = {one.voter_id: one.incarnation for one in self.cluster.image.voters}

    @property
    def image(self) -> ClusterImage:
        return self.cluster.image

    def ask(self, command: Command) -> CommandAnswer | None:
        """None if it is refused; then nothing has changed."""
        before = self.image
        try:
            return self.cluster.do(command)
        except TidelogError as error:
            definite = error.definite
        assert definite
        assert self.image is before
        return None

    def again(self, command: Command, first: CommandAnswer | None) -> None:
        """A repetition changes nothing, and is answered alike."""
        before = self.image
        if first is not None:
            second = self.cluster.do(command)
            assert self.image == before
            assert msgspec.structs.replace(second, position=first.position) == first

    # -- brokers -----------------------------------------------------------------------------------------------------

    @initialize(has_racks=st.booleans(), others=st.booleans())
    def begin(self, has_racks: bool, others: bool) -> None:
        self.racks = {node: f"rack-{node % 2}" for node in range(7)} if has_racks else {}
        self.cluster.start(1, 2, 3, racks=self.racks)
        if others:
            self.cluster.start(4, 5, racks=self.racks)

    @rule(node=NODES, new_disk=st.booleans(), is_late=st.booleans())
    def start_broker(self, node: int, new_disk: bool, is_late: bool) -> None:
        self.processes += 1
        storage = f"disk-{node}-{self.processes}" if new_disk else ""
        epoch = newest(self.image, node) - is_late
        command = registration(
            node, process=f"p{self.processes}", storage=storage, rack=self.racks.get(node), replaces=epoch
        )
        answer = self.ask(command)
        assert isinstance(answer, RegistrationOutdated) == is_late
        self.again(command, answer)

    @rule(node=NODES, lag=st.integers(0, 3), wants_shutdown=st.booleans())
    def heartbeat(self, node: int, lag: int, wants_shutdown: bool) -> None:
        broker = self.image.brokers.get(NodeId(node))
        epoch = self.image.position - 1 if broker is None else broker.epoch
        command = BrokerHeartbeat(node, epoch, self.image.position - lag, wants_shutdown)
        answer = self.ask(command)
        assert (answer is None) == (broker is None)
        self.again(command, answer)

    @rule(node=NODES)
    def heartbeat_soundly(self, node: int) -> None:
        if NodeId(node) in self.image.brokers:
            assert not self.cluster.heartbeat(node).is_fenced

    @rule(node=NODES, is_late=st.booleans())
    def fence(self, node: int, is_late: bool) -> None:
        broker = self.image.brokers.get(NodeId(node))
        epoch = 0 if broker is None else broker.epoch - is_late
        self.again(FenceBroker(node, epoch), self.ask(FenceBroker(node, epoch)))

    @rule(node=NODES)
    def remove(self, node: int) -> None:
        broker = self.image.brokers.get(NodeId(node))
        command = RemoveBroker(node, -1 if broker is None else broker.epoch)
        self.again(command, self.ask(command))

    @rule()
    def elect(self) -> None:
        self.terms += 1
        self.ask(LeadCluster(1, self.terms << 16, "other"))
        assert self.image.cluster_id == "c1"

    @rule()
    def change_voters(self) -> None:
        sessions = Sessions(9_000, 1_000)
        sessions.begin(self.image, 0.0)
        for node, broker in self.image.brokers.items():
            sessions.heard(node, broker.epoch, 0.0, position=self.image.position)
        step = next_step(self.image, sessions, 1.0, replace_ms=1_000)
        if isinstance(step, AssignVoter):
            self.again(step, self.ask(step))
        elif isinstance(step, ChangeVoters):
            self._change(step)

    def _change(self, change: ChangeVoters) -> None:
        voters = tuple(one for one in self.image.voters if one.voter_id != change.remove)
        if change.add is not None:
            assert change.add.voter_id >= self.image.voters_end
            assert self.voter_ids.setdefault(change.add.voter_id, change.add.incarnation) == change.add.incarnation
            voters = (*voters, change.add)
        nodes = [one.node_id for one in voters]
        assert len(nodes) == len(set(nodes)), "one vote a node"
        live = [one for one in voters if self.image.is_live(one.node_id)]
        assert len(live) > len(voters) // 2, "those left can decide"
        self.cluster.set_voters(voters, max(self.image.voters_end, *(one.voter_id + 1 for one in voters)))

    # -- topics ------------------------------------------------------------------------------------------------------

    @rule(name=NAMES, partitions=st.integers(1, 8), replicas=st.none() | st.integers(0, 7), only_asked=st.booleans())
    def create(self, name: str, partitions: int, replicas: int | None, only_asked: bool) -> None:
        self.topics_made += 1
        command = CreateTopic(NewTopic(name, partitions, replicas), topic_id(str(self.topics_made)), only_asked)
        self.again(command, self.ask(command))

    @rule(name=NAMES, more=st.integers(-1, 4))
    def add_partitions(self, name: str, more: int) -> None:
        topic = self.image.topics.get(name)
        have = 1 if topic is None else len(topic.partitions)
        command = AddPartitions(name, have, have + more)
        self.again(command, self.ask(command))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        topic = self.image.topics.get(name)
        command = DeleteTopic(name, "" if topic is None else topic.topic_id)
        self.again(command, self.ask(command))

    @rule(node=NODES)
    def report_removed(self, node: int) -> None:
        command = ReportRemoved(node, list(self.image.deleted_topics))
        self.again(command, self.ask(command))
        assert all(node not in holders for holders in self.image.deleted_topics.values())

    @rule(name=NAMES, value=st.sampled_from(["1000", "2000", "soon", None]))
    def alter(self, name: str, value: str | None) -> None:
        command = AlterTopicConfigs(name, {"retention.ms": value})
        self.again(command, self.ask(command))

    @rule(name=NAMES, starts=st.lists(st.integers(0, 30), min_size=1, max_size=3), size=st.integers(0, 5))
    def accept_loss(self, name: str, starts: list[int], size: int) -> None:
        topic = self.image.topics.get(name)
        ranges = tuple(GivenUpRange(start, start + size, (LossStatement(1, "damaged"),)) for start in starts)
        command = AcceptLoss("none" if topic is None else topic.topic_id, 0, ranges, "op", 1, self.image.position)
        answer = self.ask(command)
        self.again(command, answer)
        if answer is not None and topic is not None:
            lost = LostRanges(self.image.topics[name].partitions[0].losses)
            assert all(lost.covers(one.start, one.end) for one in ranges)

    @rule()
    def allocate(self) -> None:
        taken = self.image.next_producer_id
        block = cast("ProducerIdBlock", self.ask(AllocateProducerIds()))
        assert (block.first, block.first + block.count) == (taken, self.image.next_producer_id)

    @rule()
    def take_snapshot(self) -> None:
        self.ask(TakeSnapshot())
        assert self.image.snapshot_position == self.image.position
        self.snapshot = (len(self.cluster.history), encode_image(self.image))

    # -- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def replicas_are_sound(self) -> None:
        """39: distinct brokers of the cluster, as many in each partition of a topic."""
        for topic in self.image.topics.values():
            factors = {len(info.replicas) for info in topic.partitions}
            assert len(factors) == 1
            for info in topic.partitions:
                assert len(set(info.replicas)) == len(info.replicas)
                assert all(node in self.image.brokers for node in info.replicas)

    @invariant()
    def leaders_are_in_sync_and_live(self) -> None:
        """21: a fenced broker leads nothing, and whoever may lead does."""
        for topic in self.image.topics.values():
            for info in topic.partitions:
                assert set(info.isr) <= set(info.replicas)
                assert all(self.image.is_live(node) for node in info.isr)
                assert info.leader in (info.isr or (NO_LEADER,))
                assert info.isr or not any(self.image.is_live(node) for node in info.elr)

    @invariant()
    def epochs_only_rise(self) -> None:
        """5 and 23: another leader is another epoch, and each change of a partition is the next one."""
        before = {topic.topic_id: topic for topic in self.before.topics.values()}
        for topic in self.image.topics.values():
            if topic.topic_id in before:
                for old, new in zip(before[topic.topic_id].partitions, topic.partitions, strict=False):
                    _check_change(old, new)
        assert self.image.controller_epoch >= self.before.controller_epoch
        assert self.image.position >= self.before.position
        for node, broker in self.image.brokers.items():
            old_broker = self.before.brokers.get(node)
            assert old_broker is None or broker.epoch >= old_broker.epoch
        self.before = self.image

    @invariant()
    def voters_are_sound(self) -> None:
        ids = [one.voter_id for one in self.image.voters]
        assert ids == sorted(set(ids))
        assert ids[-1] < self.image.voters_end <= self.image.next_voter_id
        assert set(self.image.voters_leaving) <= set(ids)

    @invariant()
    def order_does_not_depend_on_history(self) -> None:
        for entries in (self.image.brokers, self.image.topics, self.image.deleted_topics):
            assert list(entries) == sorted(entries)

    @invariant()
    def a_snapshot_is_the_image(self) -> None:
        data = encode_image(self.image)
        assert decode_image(data) == self.image
        assert encode_image(decode_image(data)) == data

    def teardown(self) -> None:
        """The log alone, and the newest snapshot with what follows it, give the same image."""
        assert replayed(self.cluster.history, ClusterImage("")) == self.image
        start, data = self.snapshot
        from_snapshot = replayed(self.cluster.history[start:], decode_image(data))
        assert encode_image(from_snapshot) == encode_image(self.image)


def _check_change(old: PartitionInfo, new: PartitionInfo) -> None:
    assert new.replicas == old.replicas
    assert all(LostRanges(new.losses).covers(start, end) for start, end in LostRanges(old.losses))
    assert [loss for loss in new.losses if loss in old.losses] == list(old.losses), "the audit record stays"
    ends = [0, *(offset for loss in new.losses for offset in (loss.start, loss.end))]
    assert ends == sorted(ends)
    old, new = replace(old, losses=()), replace(new, losses=())
    assert new.partition_epoch - old.partition_epoch >= (new != old)
    assert new.leader_epoch - old.leader_epoch >= (new.leader != old.leader)
    assert set(new.isr) <= {*old.isr, *old.elr}, "nobody asked that others come in sync"


ClusterMachine.TestCase.settings = settings(stateful_step_count=50)
TestClusterMachine = ClusterMachine.TestCase
