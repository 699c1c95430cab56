"""A broker introduces itself to others by its hello, and learns from theirs which feature levels they speak.

A hello names the cluster, the process and its epoch, the history that the cluster has come to by recoveries, and the
feature levels that the broker speaks. It is made anew when one of them changes.
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
    """The hello of one broker. `peers` is to be set before anything is asked of others."""

    peers: PeerNode

    def __init__(
        self, node_id: NodeId, incarnation: str, levels: LevelRange, image: Callable[[], ClusterImage]
    ) -> None:
        self.hello = Hello(node_id, incarnation, levels=levels)
        self._image = image

    def introduce(self, cluster_id: str, generation: int, recovery_id: str, epoch: int) -> None:
        """Says from now on which cluster this broker belongs to, and the epoch of its registration (-1 before it)."""
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
        """Says from now on at which level the cluster is."""
        if image.cluster_id and image.level != self.hello.cluster_level:
            self.hello = msgspec.structs.replace(self.hello, cluster_level=image.level)

    def is_admitted(self, image: ClusterImage) -> bool:
        """True if an image has this very process as its node's broker."""
        broker = image.brokers.get(NodeId(self.hello.node_id))
        return broker is not None and broker.incarnation == self.hello.incarnation

    # -- feature levels --------------------------------------------------------------------------------------------

    @property
    def levels(self) -> LevelRange:
        """Returns the feature levels that this broker speaks."""
        return self.hello.levels

    def levels_of(self, broker: BrokerInfo) -> LevelRange | None:
        """Returns the feature levels that a registered broker speaks: as its process says, or as it has registered at a
        level at which that is written down; None if neither is known here."""
        if broker.incarnation == self.hello.incarnation:
            return self.hello.levels
        hello = self.peers.hello_of(broker.node_id)
        if hello is not None and hello.incarnation == broker.incarnation:
            return hello.levels
        return broker.levels if self._image().level > LEVEL_MIN else None

    def spoken_levels(self) -> list[SpokenLevels]:
        """Returns what this broker speaks, and what those say that it is connected to."""
        heard = [self.peers.hello_of(node_id) for node_id in self.peers.connected]
        hellos = [self.hello, *(hello for hello in heard if hello is not None)]
        return [SpokenLevels(hello.node_id, hello.incarnation, hello.levels) for hello in hellos]
