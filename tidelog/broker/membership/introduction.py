"""This broker's hello to other brokers, and the feature levels that the others' hellos report.

A hello names the cluster, the process and its broker epoch, the recovery history of the cluster, and the feature levels
that the broker supports. It is made anew when one of them changes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidelog.controller.commands import SpokenLevels
from tidelog.model.cluster import BrokerInfo, ClusterImage
from tidelog.model.ids import NodeId
from tidelog.model.levels import LEVEL_MIN, UNKNOWN_LEVEL, LevelRange
from tidelog.transport.peer import Hello, PeerNode


class Introduction:
    """The hello of one broker. `peers` must be set before messages are sent to other brokers."""

    peers: PeerNode

    def __init__(
        self, node_id: NodeId, incarnation: str, levels: LevelRange, image: Callable[[], ClusterImage]
    ) -> None:
        self.hello = Hello(node_id, incarnation, levels=levels)
        self._image = image

    def introduce(self, cluster_id: str, generation: int, recovery_id: str, epoch: int) -> None:
        """Sets the cluster that this broker belongs to, its recovery history, and the broker epoch of its registration
        (-1 before it)."""
        image = self._image()
        self.hello = msgspec.structs.replace(
            self.hello,
            cluster_id=cluster_id,
            broker_epoch=epoch,
            generation=generation,
            recovery_id=recovery_id,
            cluster_level=image.level if image.cluster_id else UNKNOWN_LEVEL,
        )

    def image_changed(self, image: ClusterImage) -> None:
        """Takes the cluster's feature level from an image into the hello."""
        if image.cluster_id and image.level != self.hello.cluster_level:
            self.hello = msgspec.structs.replace(self.hello, cluster_level=image.level)

    def is_admitted(self, image: ClusterImage) -> bool:
        """True if an image has this very process registered as the broker of its node id."""
        broker = image.brokers.get(NodeId(self.hello.node_id))
        return broker is not None and broker.incarnation == self.hello.incarnation

    # -- feature levels --------------------------------------------------------------------------------------------

    @property
    def levels(self) -> LevelRange:
        """Returns the feature levels that this broker supports."""
        return self.hello.levels

    def levels_of(self, broker: BrokerInfo) -> LevelRange | None:
        """Returns the feature levels that a registered broker supports: from its process's hello, or from its
        registration if that records them; None if neither is known here."""
        if broker.incarnation == self.hello.incarnation:
            return self.hello.levels
        hello = self.peers.hello_of(broker.node_id)
        if hello is not None and hello.incarnation == broker.incarnation:
            return hello.levels
        return broker.levels if self._image().level > LEVEL_MIN else None

    def spoken_levels(self) -> list[SpokenLevels]:
        """Returns the feature levels of this broker and of the brokers that it is connected to."""
        heard = [self.peers.hello_of(node_id) for node_id in self.peers.connected]
        hellos = [self.hello, *(hello for hello in heard if hello is not None)]
        return [SpokenLevels(hello.node_id, hello.incarnation, hello.levels) for hello in hellos]
