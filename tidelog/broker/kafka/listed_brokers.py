"""`ListedBrokers`: the brokers that Metadata names to Kafka's clients.

These are the live brokers, as in Kafka, and for `broker.session.timeout.ms` those whose processes have ended: so long
a dead broker is named in Kafka, whose controller notices its death only then. Clients depend on that. librdkafka drops
what it knows of a broker that is named no more; if the same answer names the new leaders of its partitions, it drops
these, too, and looks for leaders again only up to a second later. A broker that hangs, or is cut off, is named no more
at once: librdkafka gives up its open connection to it then, and would wait for its answers otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tidelog.model.cluster import KAFKA, BrokerInfo, ClusterImage
from tidelog.model.ids import NodeId


class ListedBrokers:
    """The brokers with a Kafka listener that clients are told of."""

    def __init__(self, now_s: Callable[[], float], ended: Callable[[], Collection[int]], linger_s: float) -> None:
        """`ended` returns the node ids of the brokers whose processes have surely ended."""
        self._now_s = now_s
        self._ended = ended
        self._linger_s = linger_s
        """Seconds for which a broker that has ended is named after it was fenced."""
        self._image: ClusterImage | None = None
        self._fenced: dict[NodeId, float] = {}
        """The brokers that have ended lately, with the time until which they are named."""

    def of(self, image: ClusterImage) -> list[BrokerInfo]:
        """Returns the brokers to be named, in order of their ids. `image` is the newest one."""
        now_s = self._now_s()
        if image is not self._image:
            self._follow(image, now_s)
        if self._fenced:
            self._fenced = {node_id: until_s for node_id, until_s in self._fenced.items() if now_s < until_s}
        return [
            broker
            for broker in image.brokers.values()
            if KAFKA in broker.listeners and (not broker.is_fenced or broker.node_id in self._fenced)
        ]

    def _follow(self, image: ClusterImage, now_s: float) -> None:
        before, self._image = self._image, image
        for node_id in self._ended():
            if before is not None and before.is_live(node_id):
                self._fenced[NodeId(node_id)] = now_s + self._linger_s
        for node_id in [*self._fenced]:
            if node_id not in image.brokers or image.is_live(node_id):
                del self._fenced[node_id]
