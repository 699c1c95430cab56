"""The shipped controller as far as it is pure: `decide` and `apply`, over one list of images.

All images stay, as brokers learn of them late, and may skip some. The controller never fails here; commands and answers
that get lost, come twice or come late are the network's part, and to a broker a controller that fails over looks no
different.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.topics import topic_config
from tidelog.controller import commands
from tidelog.controller import decide as deciding
from tidelog.controller.apply import apply_all
from tidelog.controller.isr_leadership import min_isr
from tidelog.model.cluster import BrokerInfo, ClusterImage, PartitionInfo
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId
from tidelog.model.levels import LEVEL_MAX, SPOKEN_LEVELS
from tidelog.sim.isr.scenario import Topic

TOPIC, TOPIC_ID = "walks", "walks-id"

Watcher = Callable[[commands.Command, ClusterImage, ClusterImage], None]
"""Function that is called with each command that changed the image, and the images before and after."""


class SimController:
    """The controller of one cluster, which has one topic of one partition."""

    def __init__(self, watcher: Watcher) -> None:
        self.config = BrokerConfig()
        self.image = ClusterImage("")
        self.history: list[ClusterImage] = []
        self._settings: dict[tuple[str, ...], TopicConfig] = {}
        self._watcher = watcher
        self.submit(commands.LeadCluster(1, 1, "cluster", LEVEL_MAX))

    def submit(self, command: commands.Command) -> commands.CommandAnswer:
        """Decides a command, applies its records, and returns the answer. Raises the `TidelogError` with which the
        controller refuses the command."""
        before = self.image
        decision = deciding.decide(before, command, self.config)
        if decision.records:
            self.image = apply_all(before, decision.records, before.position)
            self.history.append(self.image)
            self._watcher(command, before, self.image)
        return decision.answer(self.image)

    def tell(self, command: commands.Command) -> bool:
        """Submits an administrator's command; returns False if it is refused."""
        try:
            self.submit(command)
        except TidelogError:
            return False
        return True

    def create(self, topic: Topic) -> None:
        """Creates the topic, with all its replicas live."""
        configs = {
            "min.insync.replicas": str(topic.min_isr),
            "ack.durability": "fsynced" if topic.is_fsynced else "replicated",
            "unclean.leader.election.enable": str(topic.is_unclean_allowed).lower(),
        }
        assignments = {0: list(range(1, topic.replicas + 1))}
        self.submit(commands.CreateTopic(commands.NewTopic(TOPIC, assignments=assignments, configs=configs), TOPIC_ID))

    # -- what there is -----------------------------------------------------------------------------------------------

    @property
    def now(self) -> PartitionInfo:
        return partition_of(self.image)

    def settings(self, image: ClusterImage) -> TopicConfig:
        """Returns the topic's settings, from a cache, as they take long to read."""
        configs = image.topics[TOPIC].configs
        key = tuple(configs.values())
        if key not in self._settings:
            self._settings[key] = topic_config(self.config, configs)
        return self._settings[key]

    def min_isr(self, image: ClusterImage) -> int:
        """Returns the number of in-sync replicas that a commit needs."""
        return min_isr(partition_of(image), self.settings(image))

    def broker(self, node: int) -> BrokerInfo:
        return self.image.brokers[NodeId(node)]


def partition_of(image: ClusterImage) -> PartitionInfo:
    return image.topics[TOPIC].partitions[0]


def registration(node: int, incarnation: str, storage: str, clean_epoch: int, replaces: int) -> commands.RegisterBroker:
    """Returns the registration of a process; without listener addresses, which are not used here."""
    return commands.RegisterBroker(
        node, incarnation, storage, {}, "", 0, clean_epoch=clean_epoch, replaces=replaces, levels=SPOKEN_LEVELS
    )


def first_heartbeat(image: ClusterImage, node: int) -> commands.BrokerHeartbeat:
    """Returns the heartbeat of a broker that has applied everything."""
    return commands.BrokerHeartbeat(node, image.brokers[NodeId(node)].epoch, image.position)
