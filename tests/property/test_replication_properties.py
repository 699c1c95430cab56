"""Whatever happens to brokers, who may lead holds all that was acknowledged: the controller's part of replication.

Beside the cluster's metadata runs a ledger of what is true: how much was acknowledged of each partition, and how much
of that each replica still holds. Leaders commit by the metadata's own rules. The numbers are those of docs/cluster.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.property.test_controller_properties import replayed
from tests.unit.controller.cluster import Cluster, newest, registration, topic_id
from tidelog.controller.commands import (
    AddPartitions,
    AlterTopicConfigs,
    BrokerHeartbeat,
    Command,
    CommandAnswer,
    CreateTopic,
    FenceBroker,
    NewTopic,
    RemoveBroker,
)
from tidelog.controller.moves import planned
from tidelog.controller.partition_commands import (
    AlterCode,
    AlterOutcome,
    AlterPartition,
    AlterReassignments,
    ElectionType,
    ElectLeaders,
    IsrAnswer,
    IsrAsked,
    IsrMember,
    LostReplica,
    NewReplicas,
    PartitionsAltered,
    ReportLostReplicas,
)
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId

NODES = st.integers(1, 5).map(NodeId)
WHICH = st.integers(0, 5)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "min.insync.replicas": st.sampled_from(["1", "2", "3"]),
        "ack.durability": st.sampled_from(["fsynced", "replicated"]),
        "unclean.leader.election.enable": st.sampled_from(["true", "false"]),
    },
)


@dataclass
class Ledger:
    """Of one partition."""

    acknowledged: int = 0
    held: dict[NodeId, int] = field(default_factory=dict)
    """By replica: how much of it, from the beginning on."""
    has_forgotten: bool = False
    """A replica has lost what `ack.durability=replicated` let it keep in memory, whatever the topic says now."""
    is_unclean: bool = False
    """The ISR is one that an unclean election made: it ends no move."""


def is_replicated(topic: Topic) -> bool:
    return topic.configs.get("ack.durability") == "replicated"


def is_unclean_allowed(topic: Topic) -> bool:
    return topic.configs.get("unclean.leader.election.enable") == "true"


def least_in_sync(topic: Topic, info: PartitionInfo) -> int:
    before = len(info.replicas) - len(info.adding)
    replicas = min(before, len(info.replicas) - len(info.removing))
    return min(int(topic.configs.get("min.insync.replicas", 2 if replicas >= 3 else 1)), replicas)


class ReplicationMachine(RuleBasedStateMachine):
    """Five brokers, three of them voters, and two topics."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(voters=3)
        self.ledgers: dict[tuple[str, int], Ledger] = {}
        self.processes = 0

    @property
    def image(self) -> ClusterImage:
        return self.cluster.image

    def partitions(self) -> Iterator[tuple[Topic, PartitionInfo]]:
        for topic in self.image.topics.values():
            for info in topic.partitions:
                yield topic, info

    def pick(self, which: int) -> tuple[Topic, PartitionInfo]:
        known = list(self.partitions())
        return known[which % len(known)]

    def ledger(self, topic: Topic, info: PartitionInfo) -> Ledger:
        return self.ledgers.setdefault((topic.topic_id, info.partition), Ledger())

    def ask(self, command: Command) -> CommandAnswer | None:
        """None if it is refused; then nothing has changed."""
        before = self.image
        try:
            answer = self.cluster.do(command)
        except TidelogError:
            assert self.image is before
            return None
        is_forced = isinstance(command, ElectLeaders) and command.election is ElectionType.UNCLEAN
        for topic, info in self.partitions():
            old_topic = before.topics.get(topic.name)
            if old_topic is None or info.partition >= len(old_topic.partitions):
                self.ledger(topic, info).held = dict.fromkeys(info.replicas, 0)
            else:
                self.follow(topic, old_topic.partitions[info.partition], info, is_forced=is_forced)
        return answer

    def follow(self, topic: Topic, old: PartitionInfo, new: PartitionInfo, *, is_forced: bool) -> None:
        """The ledger after a change of the metadata. Records are lost only where that was allowed."""
        ledger = self.ledger(topic, new)
        assert new.partition_epoch - old.partition_epoch >= (new != old)
        assert new.leader_epoch - old.leader_epoch >= (new.leader != old.leader)
        removed = [node for node in old.replicas if node not in new.replicas]
        assert not removed or new.leader_epoch > old.leader_epoch
        ledger.held = {node: ledger.held.get(node, 0) for node in new.replicas}
        if new.isr != old.isr:
            ledger.is_unclean = bool(new.isr) and not {*new.isr} & {*old.isr, *old.elr}
        if new.leader not in (old.leader, NO_LEADER) and ledger.held[new.leader] < ledger.acknowledged:
            assert new.leader not in (*old.isr, *old.elr)
            is_complete = any(ledger.held.get(node, 0) >= ledger.acknowledged for node in old.elr)
            is_last = not is_complete and old.last_known_elr == (new.leader,) and ledger.has_forgotten
            assert is_forced or is_unclean_allowed(topic) or is_last
            ledger.acknowledged = ledger.held[new.leader]
            ledger.held = {node: min(end, ledger.acknowledged) for node, end in ledger.held.items()}

    def alter(self, topic: Topic, info: PartitionInfo, isr: list[NodeId], *, late: int = 0, old_life: int = 0) -> None:
        """The leader asks; a second time, because the answer got lost."""
        asked = IsrAsked(
            topic.topic_id,
            info.partition,
            info.leader_epoch,
            info.partition_epoch - late,
            [
                IsrMember(node, self.image.brokers[node].epoch - (old_life if node != info.leader else 0))
                for node in isr
            ],
        )
        command = AlterPartition(info.leader, self.image.brokers[info.leader].epoch, [asked])
        before = self.image
        first = self.answered(command)
        _, now = self.pick_exactly(topic, info)
        self.judge(info, now, first, set(isr), late=late, old_life=old_life)
        assert (first.leader_epoch, first.partition_epoch, first.isr) == (
            now.leader_epoch,
            now.partition_epoch,
            now.isr,
        )
        after = self.image
        second = self.answered(command)
        assert self.image == after
        is_same = second.outcome is first.outcome
        assert is_same or (first.outcome, second.outcome) == (AlterOutcome.NOT_APPLIED, AlterOutcome.STALE)
        assert first.outcome is not AlterOutcome.STALE or now.leader_epoch > info.leader_epoch or before == after

    def judge(
        self, was: PartitionInfo, now: PartitionInfo, first: IsrAnswer, isr: set[NodeId], *, late: int, old_life: int
    ) -> None:
        """23: what is applied saw the change before it, and only live members in their present life."""
        is_sound = all(self.image.is_live(node) for node in isr) and not (old_life and len(isr) > 1)
        if late and now == was:
            assert first.code in (AlterCode.INVALID_UPDATE_VERSION, AlterCode.NONE)
        elif not is_sound:
            assert first.outcome is AlterOutcome.NOT_APPLIED
            assert now.isr == was.isr
            assert now.partition_epoch > was.partition_epoch, "nothing sent before may be applied later"
        elif first.outcome is AlterOutcome.APPLIED:
            assert not late
            assert set(now.isr) == isr - set(was.removing) or set(now.isr) == isr
        else:
            assert first.code is AlterCode.NEW_LEADER_ELECTED

    def answered(self, command: AlterPartition) -> IsrAnswer:
        answer = self.ask(command)
        assert isinstance(answer, PartitionsAltered)
        return answer.partitions[0]

    def pick_exactly(self, topic: Topic, info: PartitionInfo) -> tuple[Topic, PartitionInfo]:
        found = self.image.topic_by_id(topic.topic_id)
        assert found is not None
        return found, found.partitions[info.partition]

    # -- topics --------------------------------------------------------------------------------------------------------

    @initialize(
        one=CONFIGS, two=CONFIGS, factors=st.tuples(st.integers(1, 3), st.integers(1, 4)), live=st.integers(3, 5)
    )
    def begin(self, one: dict[str, str], two: dict[str, str], factors: tuple[int, int], live: int) -> None:
        self.cluster.start(*range(1, live + 1))
        for name, configs, factor in zip("ab", (one, two), factors, strict=True):
            self.ask(CreateTopic(NewTopic(name, 2, min(factor, live), None, configs), topic_id(name)))

    @rule(name=st.sampled_from("ab"), configs=CONFIGS)
    def alter_configs(self, name: str, configs: dict[str, str]) -> None:
        self.ask(AlterTopicConfigs(name, configs))

    @rule(name=st.sampled_from("ab"))
    def add_partition(self, name: str) -> None:
        have = len(self.image.topics[name].partitions)
        if have < 4:
            self.ask(AddPartitions(name, have, have + 1))

    # -- what leaders do -----------------------------------------------------------------------------------------------

    @rule()
    def commit(self) -> None:
        for topic, info in self.partitions():
            if info.leader != NO_LEADER and len(info.isr) >= least_in_sync(topic, info):
                ledger = self.ledger(topic, info)
                ledger.acknowledged += 1
                for node in info.isr:
                    assert ledger.held[node] == ledger.acknowledged - 1
                    ledger.held[node] = ledger.acknowledged

    @rule(
        which=WHICH, count=st.integers(1, 5), late=st.sampled_from([0, 0, 0, 1, 2]), old_life=st.sampled_from([0, 0, 1])
    )
    def expand(self, which: int, count: int, late: int, old_life: int) -> None:
        topic, info = self.pick(which)
        if info.leader != NO_LEADER:
            outside = [node for node in info.replicas if node not in info.isr][:count]
            ledger = self.ledger(topic, info)
            ledger.held |= dict.fromkeys(outside, ledger.held[info.leader])
            self.alter(topic, info, [*info.isr, *outside], late=late, old_life=old_life)

    @rule(which=WHICH, left=st.integers(0, 3))
    def shrink(self, which: int, left: int) -> None:
        topic, info = self.pick(which)
        if info.leader != NO_LEADER:
            others = [node for node in info.isr if node != info.leader][:left]
            self.alter(topic, info, [info.leader, *others])

    @rule(which=WHICH, node=NODES)
    def ask_without_leading(self, which: int, node: NodeId) -> None:
        topic, info = self.pick(which)
        broker = self.image.brokers.get(node)
        if broker is not None and node != info.leader:
            isr = [IsrMember(node, broker.epoch)]
            asked = IsrAsked(topic.topic_id, info.partition, info.leader_epoch, info.partition_epoch, isr)
            assert self.answered(AlterPartition(node, broker.epoch, [asked])).code is AlterCode.INVALID_REQUEST
            assert self.pick_exactly(topic, info)[1] == info

    # -- brokers -------------------------------------------------------------------------------------------------------

    @rule(node=NODES)
    def live(self, node: NodeId) -> None:
        broker = self.image.brokers.get(node)
        if broker is not None:
            self.ask(BrokerHeartbeat(node, broker.epoch, self.image.position))

    @rule(node=NODES)
    def fence(self, node: NodeId) -> None:
        broker = self.image.brokers.get(node)
        self.ask(FenceBroker(node, -1 if broker is None else broker.epoch))

    @rule(node=NODES)
    def restart_cleanly(self, node: NodeId) -> None:
        broker = self.image.brokers.get(node)
        if broker is not None:
            self.ask(BrokerHeartbeat(node, broker.epoch, self.image.position, wants_shutdown=True))
            self.processes += 1
            name = f"p{self.processes}"
            epoch = broker.epoch
            command = registration(node, process=name, storage=broker.storage, clean_epoch=epoch, replaces=epoch)
            self.ask(command)

    @rule(node=NODES, lost=st.integers(1, 3))
    def crash(self, node: NodeId, lost: int) -> None:
        """What was not fsynced may be gone."""
        self.commit()
        broker = self.image.brokers.get(node)
        if broker is None:
            return
        for topic, info in self.partitions():
            if node in info.replicas and is_replicated(topic):
                ledger = self.ledger(topic, info)
                ledger.held[node] = max(ledger.held[node] - lost, 0)
                ledger.has_forgotten = True
        self.processes += 1
        name = f"p{self.processes}"
        self.ask(registration(node, process=name, storage=broker.storage, replaces=broker.epoch))

    @rule(node=NODES)
    def lose_disk(self, node: NodeId) -> None:
        self.commit()
        self.fence(node)
        for topic, info in self.partitions():
            if node in info.replicas:
                self.ledger(topic, info).held[node] = 0
        self.processes += 1
        name, storage = f"p{self.processes}", f"new-{self.processes}"
        answer = self.ask(registration(node, process=name, storage=storage, replaces=newest(self.image, node)))
        assert answer is not None
        for _, info in self.partitions():
            assert node not in (*info.isr, *info.elr, *info.last_known_elr)

    @rule(node=NODES, which=WHICH, is_live=st.booleans())
    def lose_log(self, node: NodeId, which: int, is_live: bool) -> None:
        """A directory is gone while its broker is down; or is found to be only when the broker is live again."""
        self.crash(node, 1)
        topic, info = self.pick(which)
        if node not in self.image.brokers or node not in info.replicas:
            return
        if is_live and node not in (*info.isr, *info.elr) and not is_unclean_allowed(topic):
            self.live(node)
            topic, info = self.pick_exactly(topic, info)
        self.ledger(topic, info).held[node] = 0
        lost = LostReplica(topic.topic_id, info.partition, info.since_of(node))
        command = ReportLostReplicas(node, self.image.brokers[node].epoch, [lost])
        assert self.ask(command) is not None
        _, now = self.pick_exactly(topic, info)
        assert node not in (*now.isr, *now.elr, *now.last_known_elr)
        assert now.since_of(node) > info.since_of(node)
        after = self.image
        assert self.ask(command) is not None
        assert self.image == after, "it has begun anew"

    @rule(node=NODES)
    def remove(self, node: NodeId) -> None:
        self.ask(RemoveBroker(node))

    # -- operators -----------------------------------------------------------------------------------------------------

    @rule(unclean=st.booleans())
    def elect(self, unclean: bool) -> None:
        election = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        assert self.ask(ElectLeaders(election)) is not None
        for _, info in self.partitions():
            if unclean:
                assert info.leader != NO_LEADER or not any(self.image.is_live(node) for node in info.original)
            else:
                assert info.leader == info.replicas[0] or info.replicas[0] not in info.isr

    @rule(
        which=WHICH,
        wanted=st.lists(NODES, min_size=1, max_size=4, unique=True),
        throttle=st.sampled_from([None, 0, 1_000, 2_000]),
        again=st.booleans(),
    )
    def reassign(self, which: int, wanted: list[NodeId], throttle: int | None, again: bool) -> None:
        topic, info = self.pick(which)
        before = self.image.moves_throttle
        command = AlterReassignments([NewReplicas(topic.topic_id, info.partition, wanted)], throttle)
        if self.ask(command) is not None:
            is_moving = any(found.is_moving for _, found in self.partitions())
            assert self.image.moves_throttle == (is_moving and (before if throttle is None else throttle))
            now = self.pick_exactly(topic, info)[1]
            assert now.target == tuple(wanted)
            assert now.adding or now.removing or now.replicas == tuple(wanted)
            assert set(now.original) == set(info.original) or set(now.isr) >= set(wanted)
            if again:
                after = self.image
                assert self.ask(command) is not None
                assert self.image == after

    @rule(which=WHICH)
    def call_off(self, which: int) -> None:
        topic, info = self.pick(which)
        if self.ask(AlterReassignments([NewReplicas(topic.topic_id, info.partition, None)])) is not None:
            now = self.pick_exactly(topic, info)[1]
            assert set(now.replicas) == set(info.original)
            assert not (now.adding or now.removing)
        else:
            assert not set(info.isr) & set(info.original)

    @precondition(lambda self: len(self.image.brokers) > 3)
    @rule(leaving=st.lists(NODES, max_size=2, unique=True))
    def rebalance(self, leaving: list[NodeId]) -> None:
        try:
            commands = planned(self.image, leaving)
        except TidelogError:
            return
        if all(self.ask(command) is not None for command in commands):
            assert all(node not in info.target for _, info in self.partitions() for node in leaving)
            assert planned(self.image, leaving) == []

    # -- what always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def a_throttle_ends_with_the_last_move(self) -> None:
        assert self.image.moves_throttle == 0 or any(info.is_moving for _, info in self.partitions())

    @invariant()
    def whoever_may_lead_has_everything_acknowledged(self) -> None:
        """16, 17 and 22."""
        for topic, info in self.partitions():
            ledger = self.ledger(topic, info)
            for node in (*info.isr, *info.elr):
                assert ledger.held[node] == ledger.acknowledged, (info, ledger)

    @invariant()
    def sets_are_sound(self) -> None:
        """21."""
        for topic, info in self.partitions():
            eligible = (*info.isr, *info.elr)
            assert len(set(eligible)) == len(eligible)
            assert set(eligible) | set(info.last_known_elr) <= set(info.replicas)
            assert all(self.image.is_live(node) for node in info.isr)
            assert (info.leader == NO_LEADER) == (not info.isr)
            assert info.leader in (*info.isr, NO_LEADER)
            assert not (info.isr and info.last_known_elr)
            if len(info.isr) >= least_in_sync(topic, info):
                assert not info.elr

    @invariant()
    def somebody_leads_if_anybody_may(self) -> None:
        for topic, info in self.partitions():
            if info.leader == NO_LEADER:
                candidates = [*info.elr]
                if is_replicated(topic) and not info.elr:
                    candidates += info.last_known_elr
                if is_unclean_allowed(topic):
                    candidates += info.original
                assert not any(self.image.is_live(node) for node in candidates)

    @invariant()
    def replicas_are_sound(self) -> None:
        """39."""
        for topic, info in self.partitions():
            assert len(set(info.replicas)) == len(info.replicas)
            assert all(node in self.image.brokers for node in info.replicas)
            assert set(info.adding) | set(info.removing) <= set(info.replicas)
            assert info.original
            assert info.target == info.replicas[: len(info.target)] != ()
            assert tuple(node for node, _ in info.since) == info.replicas
            assert all(0 < since < self.image.position for _, since in info.since)
            is_moving = bool(info.adding or info.removing) and not self.ledger(topic, info).is_unclean
            assert not is_moving or not set(info.target) <= set(info.isr), "a move that ended"

    @invariant()
    def a_snapshot_is_the_image(self) -> None:
        assert decode_image(encode_image(self.image)) == self.image

    def teardown(self) -> None:
        assert replayed(self.cluster.history, ClusterImage("")) == self.image


ReplicationMachine.TestCase.settings = settings(stateful_step_count=40, report_multiple_bugs=False)
TestReplicationMachine = ReplicationMachine.TestCase
