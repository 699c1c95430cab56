"""A cluster that consists of its metadata: commands go in, records are applied, everything is remembered."""

from __future__ import annotations

from tidelog.broker.controller.apply import apply, apply_all, with_voters
from tidelog.broker.controller.commands import (
    BrokerAdmitted,
    BrokerHeartbeat,
    Command,
    CommandAnswer,
    CreateTopic,
    HeartbeatAnswered,
    LeadCluster,
    NewTopic,
    RegisterBroker,
    TopicPlaced,
)
from tidelog.broker.controller.decide import decide
from tidelog.broker.controller.records import MetadataRecord, decode_record, encode_record
from tidelog.config.schema import BrokerConfig
from tidelog.model.cluster import ClusterImage, Voter
from tidelog.model.ids import NodeId

CONFIG = BrokerConfig()


def voter(node: int, voter_id: int | None = None, storage: str | None = None) -> Voter:
    return Voter(voter_id or node, node, storage or f"disk-{node}", f"10.0.0.{node}", 9192)


class Cluster:
    """Of the voters on nodes 1 to `voters`, led by node 1, without any broker yet."""

    def __init__(self, voters: int = 1, config: BrokerConfig = CONFIG) -> None:
        self.config = config
        self.image = ClusterImage("")
        self.history: list[tuple[MetadataRecord, int] | tuple[tuple[Voter, ...], int]] = []
        self.set_voters(tuple(voter(node) for node in range(1, voters + 1)), voters + 1)
        self.do(LeadCluster(1, 1 << 16, "c1"))

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
        command = registration(node, process=process, storage=storage, rack=rack)
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


def registration(
    node: int, *, process: str = "p", storage: str = "", rack: str | None = None, clean_epoch: int = -1
) -> RegisterBroker:
    host = f"10.0.0.{node}"
    disk = storage or f"disk-{node}"
    return RegisterBroker(node, process, disk, host, 8082, host, 9192, rack, clean_epoch=clean_epoch)


def topic_id(name: str) -> str:
    return name.encode().hex().ljust(32, "0")
