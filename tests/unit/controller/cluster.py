"""A cluster that consists of its metadata: commands go in, records are applied, everything is remembered."""

from __future__ import annotations

import msgspec

from tidelog.config.schema import BrokerConfig
from tidelog.controller.apply import apply, apply_all, with_voters
from tidelog.controller.broker_state import Brokers
from tidelog.controller.commands import (
    BrokerAdmitted,
    BrokerHeartbeat,
    Command,
    CommandAnswer,
    CreateTopic,
    FenceBroker,
    HeartbeatAnswered,
    LeadCluster,
    NewTopic,
    RegisterBroker,
    TopicPlaced,
)
from tidelog.controller.decide import decide
from tidelog.controller.member_steps import MemberSet, MemberStep, is_report_due, next_step
from tidelog.controller.partition_commands import (
    AlterCode,
    AlterMembers,
    AlterPartition,
    AlterReassignments,
    IsrAnswer,
    IsrAsked,
    IsrMember,
    LostTerm,
    LostVote,
    MembersAltered,
    MembersAnswer,
    MembersAsked,
    NewReplicas,
    PartitionsAltered,
    ReportLostVotes,
    ReportPaxosLeader,
    TermEnd,
)
from tidelog.controller.records import MetadataRecord, decode_record, encode_record
from tidelog.model.cluster import HTTP, ClusterImage, Endpoint, PartitionInfo, PartitionMember, Voter
from tidelog.model.ids import NodeId
from tidelog.model.levels import LEVEL_MAX, SPOKEN_LEVELS

CONFIG = BrokerConfig()


def voter(node: int, voter_id: int | None = None, storage: str | None = None) -> Voter:
    return Voter(voter_id or node, node, storage or f"disk-{node}", f"10.0.0.{node}", 9192)


class Cluster:
    """Of the voters on nodes 1 to `voters`, led by node 1, without any broker yet."""

    def __init__(self, voters: int = 1, config: BrokerConfig = CONFIG, level: int = LEVEL_MAX) -> None:
        self.config = config
        self.image = ClusterImage("")
        self.history: list[tuple[MetadataRecord, int] | tuple[tuple[Voter, ...], int]] = []
        self.set_voters(tuple(voter(node) for node in range(1, voters + 1)), voters + 1)
        self.do(LeadCluster(1, 1 << 16, "c1", level))

    def do(self, command: Command) -> CommandAnswer:
        """Decides, applies the records as they come back from the log, answers. Raises what is raised."""
        decision = decide(self.image, command, self.config)
        for record in decision.records:
            self.history.append((decode_record(encode_record(record)), self.image.position))
            self.image = apply(self.image, record, self.image.position)
        return decision.answer(self.image)

    def preview(self, command: Command) -> ClusterImage:
        return apply_all(self.image, decide(self.image, command, self.config).records, self.image.position)

    def set_voters(self, voters: tuple[Voter, ...], next_voter_id: int) -> None:
        self.history.append((voters, next_voter_id))
        self.image = with_voters(self.image, voters, next_voter_id)

    def register(self, node: int, *, process: str = "p", storage: str = "", rack: str | None = None) -> int:
        """The broker's epoch; it is fenced."""
        command = registration(node, process=process, storage=storage, rack=rack, replaces=newest(self.image, node))
        answer = self.do(command)
        assert isinstance(answer, BrokerAdmitted)
        return answer.broker_epoch

    def heartbeat(self, node: int, *, wants_shutdown: bool = False) -> HeartbeatAnswered:
        epoch = self.image.brokers[NodeId(node)].epoch
        answer = self.do(BrokerHeartbeat(node, epoch, self.image.position, wants_shutdown))
        assert isinstance(answer, HeartbeatAnswered)
        return answer

    def start(self, *nodes: int, racks: dict[int, str] | None = None) -> None:
        """Registers brokers, and has them unfenced."""
        for node in nodes:
            self.register(node, rack=(racks or {}).get(node))
            self.heartbeat(node)

    def create(self, name: str, partitions: int = 1, replicas: int | None = None) -> list[list[int]]:
        answer = self.do(CreateTopic(NewTopic(name, partitions, replicas), topic_id(name)))
        assert isinstance(answer, TopicPlaced)
        return answer.assignments

    def leaders(self, name: str) -> list[int]:
        return [info.leader for info in self.image.topics[name].partitions]

    def held(self, node: int) -> list[tuple[str, int]]:
        """Returns the partitions of which the broker has a replica, including replicas that are added or removed."""
        return [
            (topic.name, info.partition)
            for topic in self.image.topics.values()
            for info in topic.partitions
            if node in info.replicas
        ]

    def moving(self) -> list[tuple[str, int]]:
        """Returns the partitions that are being reassigned."""
        topics = self.image.topics.values()
        return [(topic.name, info.partition) for topic in topics for info in topic.partitions if info.is_moving]


def registration(
    node: int,
    *,
    process: str = "p",
    storage: str = "",
    rack: str | None = None,
    clean_epoch: int = -1,
    replaces: int = -1,
    starts: int = 0,
    stamp: int = 0,
) -> RegisterBroker:
    host = f"10.0.0.{node}"
    disk = storage or f"disk-{node}"
    return RegisterBroker(
        node, process, disk, {HTTP: Endpoint(host, 8082)}, host, 9192, rack, "", clean_epoch, replaces,
        starts=starts, stamp=stamp, levels=SPOKEN_LEVELS,
    )  # fmt: skip


def newest(image: ClusterImage, node: int) -> int:
    """The epoch of the node's registration; -1 if there is none."""
    known = image.brokers.get(NodeId(node))
    return -1 if known is None else known.epoch


def topic_id(name: str) -> str:
    return name.encode().hex().ljust(32, "0")


class IsrCluster(Cluster):
    """Brokers 1 to `brokers`, and a topic "t" of one partition whose replicas are the first `replicas` of them."""

    def __init__(self, brokers: int = 3, replicas: int = 3, config: BrokerConfig = CONFIG, **configs: str) -> None:
        super().__init__(config=config)
        self.start(*range(1, brokers + 1))
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        topic = NewTopic("t", None, None, {0: list(range(1, replicas + 1))}, settings)
        self.do(CreateTopic(topic, topic_id("t")))

    @property
    def partition(self) -> PartitionInfo:
        return self.image.topics["t"].partitions[0]

    @property
    def sets(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Leader, ISR, ELR."""
        return self.partition.leader, self.partition.isr, self.partition.elr

    def fence(self, *nodes: int) -> None:
        for node in nodes:
            self.do(FenceBroker(node, self.image.brokers[NodeId(node)].epoch))

    def crash(self, *nodes: int, new_disk: bool = False) -> None:
        """They register again, without their clean marks."""
        for node in nodes:
            process = f"after {self.image.position}"
            if new_disk:
                self.fence(node)
            self.register(node, process=process, storage=process if new_disk else "")

    def ask(self, *nodes: int, **changes: int) -> IsrAnswer:
        """The leader asks for this ISR."""
        return self.ask_as(self.asked(*nodes, **changes))

    def asked(self, *nodes: int, **changes: int) -> IsrAsked:
        info = self.partition
        isr = [IsrMember(node, self.image.brokers[NodeId(node)].epoch) for node in nodes]
        asked = IsrAsked(topic_id("t"), 0, info.leader_epoch, info.partition_epoch, isr)
        return msgspec.structs.replace(asked, **changes)

    def ask_as(self, asked: IsrAsked, sender: int | None = None) -> IsrAnswer:
        node = self.partition.leader if sender is None else sender
        answer = self.do(AlterPartition(node, self.image.brokers[NodeId(node)].epoch, [asked]))
        assert isinstance(answer, PartitionsAltered)
        return answer.partitions[0]

    def reassign(self, *nodes: int, throttle: int | None = None) -> None:
        self.do(AlterReassignments([NewReplicas(topic_id("t"), 0, nodes)], throttle))

    def call_off(self) -> None:
        self.do(AlterReassignments([NewReplicas(topic_id("t"), 0, None)]))


class PaxosCluster(IsrCluster):
    """The same, of a topic that commits by majority. `log` is what its log's newest VOTERS value says."""

    def __init__(self, brokers: int = 3, replicas: int = 3, config: BrokerConfig = CONFIG, **configs: str) -> None:
        super().__init__(brokers, replicas, config, commit_protocol="paxos", **configs)
        self.log = MemberSet(self.partition.members, replicas + 1)
        self.behind_for_long: set[int] = set()
        """Engine ids whose logs lack, on the disk, what was there before the present members were."""

    @property
    def led(self) -> tuple[int, int, tuple[int, ...]]:
        """Leader, its epoch, the live members."""
        return self.partition.leader, self.partition.leader_epoch, self.partition.isr

    @property
    def votes(self) -> tuple[dict[int, int], dict[int, int]]:
        """The nodes of the members and of those wanted, by engine id."""
        members, wanted = self.partition.members, self.partition.wanted
        return {one.engine_id: one.node_id for one in members}, {one.engine_id: one.node_id for one in wanted}

    def is_live(self, member: PartitionMember) -> bool:
        return Brokers(self.image).is_voting(member)

    def step(self, *behind: int) -> MemberStep | None:
        """Returns what the leader would do next; the engine ids `behind` have not caught up."""
        caught_up = {one.engine_id for one in self.partition.wanted if self.is_live(one)} - set(behind)
        return next_step(
            self.partition,
            self.log,
            is_live=self.is_live,
            has_caught_up=lambda one: one.engine_id in caught_up,
            keeps=lambda one: one.engine_id not in self.behind_for_long,
        )

    def advance(self, *behind: int) -> MemberStep | None:
        """The leader takes the next step, or none, and reports."""
        step = self.step(*behind)
        if step is not None:
            self.log = step.of(self.log)
        if is_report_due(self.partition, self.log):
            assert self.tell().code in (AlterCode.NONE, AlterCode.NEW_LEADER_ELECTED)
        return step

    def told(self, **changes: object) -> MembersAsked:
        info = self.partition
        asked = MembersAsked(topic_id("t"), 0, info.leader_epoch, info.partition_epoch, self.log)
        return msgspec.structs.replace(asked, **changes)

    def tell(self, asked: MembersAsked | None = None, sender: int | None = None) -> MembersAnswer:
        node = self.partition.leader if sender is None else sender
        command = AlterMembers(node, self.image.brokers[NodeId(node)].epoch, [asked or self.told()])
        answer = self.do(command)
        assert isinstance(answer, MembersAltered)
        return answer.partitions[0]

    def forget(self, engine_id: int, node: int) -> None:
        """A replica's journal is gone."""
        vote = LostVote(topic_id("t"), 0, engine_id)
        self.do(ReportLostVotes(node, self.image.brokers[NodeId(node)].epoch, [vote]))

    def lose(self, end: TermEnd, leader_epoch: int | None = None) -> None:
        """The leader reports that its term is over."""
        info = self.partition
        epoch = info.leader_epoch if leader_epoch is None else leader_epoch
        lost = LostTerm(topic_id("t"), 0, epoch, end)
        self.do(ReportPaxosLeader(info.leader, self.image.brokers[info.leader].epoch, [lost]))
