"""`ListedBrokers`: the brokers that Metadata names to Kafka's clients.

These are the live brokers, as in Kafka, and those that were live until `broker.session.timeout.ms` ago: so long a dead
broker is named in Kafka, whose controller notices its death only then. Clients depend on that. librdkafka drops what it
knows of a broker that is named no more; if the same answer names the new leaders of its partitions, it drops these,
too, and looks for leaders again only up to a second later.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.model.cluster import KAFKA, BrokerInfo, ClusterImage
from tidelog.model.ids import NodeId


class ListedBrokers:
    """The brokers with a Kafka listener that clients are told of."""

    def __init__(self, now_s: Callable[[], float], linger_s: float) -> None:
        self._now_s = now_s
        self._linger_s = linger_s
        """Seconds for which a broker is named after it was fenced."""
        self._image: ClusterImage | None = None
        self._fenced: dict[NodeId, float] = {}
        """The registered brokers that were live lately, with the time until which they are named."""

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
        for broker in self._image.live_brokers if self._image is not None else ():
            self._fenced.setdefault(broker.node_id, now_s + self._linger_s)
        self._image = image
        for node_id in [*self._fenced]:
            if node_id not in image.brokers or image.is_live(node_id):
                del self._fenced[node_id]
