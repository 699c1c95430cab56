"""The cluster as one broker knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.model.cluster import BrokerInfo, ClusterImage, Topic
from tidelog.model.ids import NodeId
from tidelog.model.levels import LevelRange


class Cluster(Protocol):
    """The metadata that a broker has applied, and this broker in it. Brokers may differ for a moment."""

    @property
    def node_id(self) -> NodeId:
        """This broker."""
        ...

    @property
    def config(self) -> BrokerConfig:
        """This broker's settings."""
        ...

    @property
    def insecure_listeners(self) -> Sequence[str]:
        """Returns a sentence about each listener of this broker that strangers on other machines can reach, and that
        believes them."""
        ...

    @property
    def cluster_id(self) -> str:
        """Empty until it is known."""
        ...

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last applied metadata record."""
        ...

    @property
    def levels(self) -> LevelRange:
        """Returns the feature levels that this broker speaks."""
        ...

    def levels_of(self, broker: BrokerInfo) -> LevelRange | None:
        """Returns the feature levels that a registered broker speaks; None if that is not known here."""
        ...

    @property
    def controller_node(self) -> int | None:
        """The broker that leads the metadata log, as far as this one knows."""
        ...

    def topic(self, name: str) -> Topic:
        """Raises `UnknownTopic`."""
        ...

    def topic_config(self, name: str) -> TopicConfig:
        """Returns the settings in force for a topic. Raises `UnknownTopic`."""
        ...
