"""The cluster metadata as one broker has applied them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.model.cluster import BrokerInfo, ClusterImage, Topic
from tidelog.model.ids import NodeId
from tidelog.model.levels import LevelRange


class Cluster(Protocol):
    """The cluster metadata that this broker has applied, and its own identity and settings. Brokers may differ for a
    moment.
    """

    @property
    def node_id(self) -> NodeId:
        """Node id of this broker."""

    @property
    def config(self) -> BrokerConfig:
        """This broker's settings."""

    @property
    def insecure_listeners(self) -> Sequence[str]:
        """A sentence for each listener of this broker that other machines can reach in plain text or without proving
        their identity.
        """

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty until it is known."""

    @property
    def image(self) -> ClusterImage:
        """The cluster's metadata image as of the last applied metadata record."""

    @property
    def levels(self) -> LevelRange:
        """The range of feature levels that this broker supports."""

    def levels_of(self, broker: BrokerInfo) -> LevelRange | None:
        """Returns the range of feature levels that a registered broker supports; None if it is not known here."""

    @property
    def controller_node(self) -> int | None:
        """Node id of the active controller (the leader of the metadata log), as far as this broker knows; None if
        unknown.
        """

    @property
    def ended_brokers(self) -> Collection[int]:
        """Node ids of the brokers whose processes have surely ended, though the metadata may not say so yet: their
        hosts refuse connections. Brokers that are not fenced by the end of a session (`broker.session.timeout.ms`) are
        refused to this broker alone, and are not among them.
        """

    @property
    def missed_brokers(self) -> Collection[int]:
        """Node ids of the brokers whose processes have ended, and of those that may have, since all connections to them
        were lost a moment ago."""

    def topic(self, name: str) -> Topic:
        """Returns a topic of the metadata image. Raises `UnknownTopic`."""

    def topic_config(self, name: str) -> TopicConfig:
        """Returns the settings in force for a topic. Raises `UnknownTopic`."""
